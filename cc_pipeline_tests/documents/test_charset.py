"""Who says which charset a page is in, and that decoding never fails."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.documents import charset as charsets
from cc_pipeline.documents.charset import (
    CHARSETS,
    QUERY_ENCODINGS,
    declared,
    decode,
    detect,
    encoding_for_label,
    narrowed,
)
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.documents.unlabelled import unlabelled_documents

#: Charsets browsers refuse to read, and an archive should not.
_READ_HERE = {"csiso2022kr", "iso-2022-kr", "hz-gb-2312", "iso-2022-cn", "iso-2022-cn-ext"}
#: Who decided, as the documents of 2012 say it.
_HEADER, _META, _SHAPE, _STATISTICS, _UNDETERMINED = 0, 1, 2, 3, 10


@pytest.mark.parametrize(
    ("payload", "label", "charset", "detector"),
    [
        (b"\xef\xbb\xbfabc", "iso-8859-2", "UTF-8", _SHAPE),
        ("a\u00e9".encode("utf-16"), None, "UTF-16LE", _SHAPE),
        (b"\xfe\xff\0a\0\xe9", None, "UTF-16BE", _SHAPE),
        (b"\xff\xfe\0\0a\0\0\0", None, "UTF-32LE", _SHAPE),
        (b"\0\0\xfe\xff\0\0\0a", "utf-8", "UTF-32BE", _SHAPE),
        ("<p>\u00e9".encode("utf-16-be"), None, "UTF-16BE", _SHAPE),
        (b"\xe9t\xe9", "ISO-8859-1", "windows-1252", _HEADER),
        (b"<meta charset=koi8-r>", "no-such-charset", "KOI8-R", _META),
        (b'<meta http-equiv="content-type" content="text/html; charset=Shift_JIS">', None, "Shift_JIS", _META),
        (b'<meta http-equiv="refresh" content="text/html; charset=Shift_JIS">', None, "UTF-8", _SHAPE),
        (b'<meta content="a;charset=big5" http-equiv=content-type content="charset=gbk">', None, "Big5", _META),
        (b"<meta charset=koi8-r charset=big5>", None, "KOI8-R", _META),
        (b'<?xml version="1.0" encoding="ISO-8859-2"?><meta charset=big5>', None, "ISO-8859-2", _META),
        (b" <?xml version='1.0' encoding='nonsense'?><meta charset=big5>", None, "Big5", _META),
        (b'<?xml version="1.0" encoding="utf-16"?><rss/>', None, "UTF-8", _META),
        (b"<!-- <meta charset=big5> --><p>x", None, "UTF-8", _SHAPE),
        (b"<!-- a --><meta charset=big5>", None, "Big5", _META),
        (b"<!--><meta charset=big5>", None, "Big5", _META),
        (b"<meta content='text/html; charset=big5'>", None, "UTF-8", _SHAPE),
        (b'<meta charset="utf-16">', None, "UTF-8", _META),
        (b"<meta charset=x-user-defined>", None, "windows-1252", _META),
        ("d\u00e9j\u00e0 vu".encode(), None, "UTF-8", _SHAPE),
        (
            "le chat est all\u00e9 \u00e0 la p\u00eache, d\u00e9j\u00e0".encode("latin-1"),
            None,
            "windows-1252",
            _STATISTICS,
        ),
        (b"", None, "ISO-8859-1", _UNDETERMINED),
    ],
)
def test_who_decides(payload: bytes, label: str | None, charset: str, detector: int) -> None:
    found = decode(payload, label)
    assert (found.charset, found.detector) == (charset, detector)
    assert "\ufeff" not in found.text
    if detector == _META:
        assert decode(payload, label, markup=False).detector != _META


#: Labels of what the standard lacks or refuses, with a codec of Python that reads the same.
_LABELS = {
    "UTF-32LE": ("utf-32-le", "utf-32le utf-32 utf32"),
    "UTF-32BE": ("utf-32-be", "utf-32be"),
    "IBM850": ("cp850", "ibm850 cp850"),
    "IBM852": ("cp852", "ibm852 cp852"),
    "IBM855": ("cp855", "ibm855 cp855"),
    "IBM862": ("cp862", "ibm862 cp862"),
    "IBM437": ("cp437", "ibm437 cp437"),
    "Johab": ("johab", "johab ms1361"),
    "ISO-2022-KR": ("iso2022_kr", "iso-2022-kr csiso2022kr"),
    "HZ-GB-2312": ("hz", "hz hz-gb-2312"),
    "TCVN": ("cp1258", "tcvn viscii"),
    "ISO-2022-CN": ("ascii", "iso-2022-cn iso-2022-cn-ext"),
    "EUC-KR": ("cp949", "cp949 uhc euckr"),
    "Shift_JIS": ("cp932", "cp932"),
    "GBK": ("gbk", "cp936"),
    "Big5": ("ascii", "cp950"),
    "EUC-JP": ("euc_jp", "eucjp"),
    "x-mac-cyrillic": ("mac_cyrillic", "maccyrillic mac-cyrillic"),
    "windows-1251": ("cp1251", "windows1251 win1251"),
    "windows-1252": ("cp1252", "windows1252 iso-8859-1-windows-3.1-latin-1"),
    "windows-874": ("cp874", "cp874"),
    "UTF-8": ("utf-8", "utf8mb4 utf-8-sig cp65001"),
}


@pytest.mark.parametrize("name", _LABELS)
def test_labels_beyond_the_standard(name: str) -> None:
    codec, labels = _LABELS[name]
    written = "a \u00e9 \u0451 \u05d0 \u0e01 \u1ea1 \ud55c \u3042 \u4e2d \u0107".encode(codec, "ignore")
    for label in labels.split():
        assert encoding_for_label(f" {label.title()}\n") == name
        assert decode(written, label)[:2] == (written.decode(codec), name)


@pytest.mark.parametrize(
    ("payload", "guess", "charset"),
    [
        # dots and quotes in English, if they are few
        (b"x" * 20 + b"\x80", None, "windows-1252"),
        (b"x" * 20 + b"\x9f", None, "windows-1252"),
        (b"x" * 20 + b"\xa0", None, None),
        (b"x" * 19 + b"\x93", None, None),
        # no ISO charset has a letter there
        (b"\xe6\x80", "ISO-8859-2", "windows-1250"),
        (b"\xe6\x9f", "ISO-8859-5", "windows-1251"),
        (b"\xe6\x93", "ISO-8859-7", "windows-1253"),
        (b"\xe6\x93", "ISO-8859-8", "windows-1255"),
        (b"\xe6\x93", "ISO-8859-15", "windows-1252"),
        (b"\xe6\x93", "KOI8-R", "KOI8-R"),
        (b"\xe6\xa0", "ISO-8859-2", "ISO-8859-2"),
        # statistics do not know Johab
        ("\ud55c \u4e00".encode("johab"), None, "Johab"),
        ("\ud55c \u4e00\u4e00".encode("johab"), None, None),
        ("\ud55c\uad6d\uc5b4".encode("johab"), "KOI8-R", "KOI8-R"),
        (b"\xff\xff", None, None),
    ],
)
def test_what_is_made_of_a_guess(
    payload: bytes, guess: str | None, charset: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charsets, "_guess", lambda sample: guess)
    found = detect(payload)
    assert found == (None if charset is None else (charset, False))


@pytest.mark.parametrize(
    ("text", "codec", "charset"),
    [
        ("<p>a \U0001f600", "utf-32-le", "UTF-32LE"),
        ("<p>a \U0001f600", "utf-32-be", "UTF-32BE"),
        ("<p>a b\u4e2d", "utf-16-le", "UTF-16LE"),
        ("<p>a b\u4e2d", "utf-16-be", "UTF-16BE"),
        ("\0\0\0\0", "utf-8", "UTF-8"),
        ("abc\0\0\0\0abcd", "utf-8", "UTF-8"),
        ("\u65e5\u672c", "iso2022_jp", "ISO-2022-JP"),
        ("\ud55c\uad6d", "iso2022_kr", "ISO-2022-KR"),
    ],
)
def test_the_shape_of_bytes_decides(text: str, codec: str, charset: str) -> None:
    found = detect(text.encode(codec))
    assert found == (charset, True)
    assert not codec.startswith("utf-16") or detect(text.encode(codec) + b"x") == found, "half a character behind it"


@pytest.mark.parametrize(
    ("escape", "charset"),
    [
        (b"\x1b$@8l", "ISO-2022-JP"),
        (b"\x1b(Ja", "ISO-2022-JP"),
        (b"\x1b(I1", "ISO-2022-JP"),
        (b"\x1b[1mbold\x1b[0m", "UTF-8"),
        # not every escape is followed by letters of its charset
        (b"\x1b$B\x01\x01", "UTF-8"),
    ],
)
def test_charsets_of_seven_bits_have_escapes(escape: bytes, charset: str) -> None:
    assert detect(escape) == (charset, True)
    # of eight bits none is
    assert detect(escape + "\u00e9t\u00e9".encode()) == ("UTF-8", True)


@pytest.mark.parametrize("cut", range(4))
def test_a_sample_may_end_within_a_character(cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charsets, "_SAMPLE_BYTES", 40 + cut)
    monkeypatch.setattr(charsets, "_guess", lambda sample: None)
    text = ("a" * 36 + "\U0001f600" * 20).encode()
    assert detect(text) == ("UTF-8", True)
    # the whole may not, nor may a character break off within the sample
    assert (detect(text[: 40 + cut]) == ("UTF-8", True)) == (cut == 0)
    assert detect(text[:20] + b"\xf0\x9f" + text[20:]) is None
    assert detect(text[: 36 + cut] + b"\xffaaa" + text) is None
    seven_bits = ("\u65e5" * 50).encode("iso2022_jp")
    assert detect(seven_bits) == ("ISO-2022-JP", True)
    assert detect(seven_bits[:9] + b"\x01\x01" + seven_bits[9:]) == ("UTF-8", True)
    # it is taken where the letters begin
    assert detect(b"a" * 100 + b"\xf0" * 9) is None


def test_bytes_that_do_not_fit_are_replaced_and_reported() -> None:
    found = decode(b"caf\xe9", "utf-8")
    assert (found.text, found.clean) == ("caf\ufffd", False)


@given(st.binary(max_size=400), st.one_of(st.none(), st.text(max_size=12), st.sampled_from(sorted(CHARSETS))))
def test_decoding_never_fails(payload: bytes, label: str | None) -> None:
    found = decode(payload, label)
    assert found.charset in CHARSETS
    assert isinstance(found.text, str)


def test_queries_are_written_in_the_charset_of_the_page_but_for_utf_16() -> None:
    assert set(charsets._LABELS) - QUERY_ENCODINGS == {"UTF-8", "UTF-16BE", "UTF-16LE", "replacement"}


@needs_corpus
def test_every_label_of_the_standard() -> None:
    listed = json.loads((CORPUS / "charset" / "whatwg_encoding" / "encodings.json").read_text())
    for encoding in (each for group in listed for each in group["encodings"]):
        for label in encoding["labels"]:
            if label not in _READ_HERE:
                assert encoding_for_label(f" {label.upper()} ") == encoding["name"]


@needs_corpus
def test_single_byte_tables_of_the_standard() -> None:
    differences = {}
    for path in (CORPUS / "charset" / "whatwg_encoding").glob("index-*.txt"):
        rows = [line.split()[:2] for line in path.read_text().splitlines() if line.strip()[:1].isdigit()]
        name = encoding_for_label(path.stem.removeprefix("index-"))
        if name is not None and len(rows) <= 128:
            wrong = [code for at, code in rows if decode(bytes([int(at) + 0x80]), name).text != chr(int(code, 16))]
            differences[name] = wrong
    assert len(differences) > 20
    assert not any(differences.values()), differences


@needs_corpus
def test_prescan_cases_of_html5lib() -> None:
    data = (CORPUS / "charset" / "html5lib-tests" / "tests2.dat").read_bytes()
    for case in data.split(b"#data\n")[1:]:
        document, _, wanted = case.partition(b"\n#encoding\n")
        expected = encoding_for_label(wanted.strip().decode())
        # their default is windows-1252; none of our declarations may differ from a declaration of theirs
        assert (declared(document) or "windows-1252") == expected or b"Content-Type<meta" in document


@needs_corpus
def test_unlabelled_documents_are_detected() -> None:
    documents = unlabelled_documents()
    wrong = [text[:40] for data, text in documents if decode(data, markup=False).text.lstrip("\ufeff") != text]
    assert len(documents) > 40
    assert len(wrong) <= 1, wrong


@pytest.mark.parametrize("before", ["<script>%s</script>", "<!--%s-->", "<style>%s</style>", "<p>%s</p>"])
def test_a_meta_tag_is_found_however_late(before: str) -> None:
    text = before % ("x < y " * 2_000) + "<META charset='windows-1251'><p>\u041f\u0440\u0438\u0432\u0435\u0442"
    assert declared(text.encode("cp1251")) == "windows-1251"


@pytest.mark.parametrize("around", ["<script>%s</script>", "<!--%s-->", "<title>%s</title>", "<script>%s", "<!-- %s"])
def test_a_late_meta_tag_in_a_script_or_comment_is_none(around: str) -> None:
    text = "<p>x</p>" * 1_000 + around % "<meta charset=windows-1251>" + "<p>\u00e9t\u00e9 \u00e0 la plage"
    assert decode(text.encode("utf-8")).charset == "UTF-8"


@pytest.mark.parametrize(
    ("form", "bound"),
    [
        # a document's bytes, a tag's bytes, the tags of a document, and the bytes with an XML declaration
        (lambda size: b" " * (size - 21) + b"<meta charset=koi8-r>", 1 << 20),
        (lambda size: b"<meta charset=koi8-r%b>" % (b" " * (size - 21)), 2_048),
        (lambda size: b"<meta name=a>" * (size - 1) + b"<meta charset=koi8-r>", 500),
        (lambda size: b"<?xml %bencoding='koi8-r'?>" % (b" " * (size - 23)), 4_096),
    ],
    ids=["bytes", "bytes of a tag", "tags", "bytes of a declaration"],
)
def test_a_charset_is_looked_for_within_bounds(form: Callable[[int], bytes], bound: int) -> None:
    assert (declared(form(bound)), declared(form(bound + 1))) == ("KOI8-R", None)


@pytest.mark.parametrize("codec", ["utf-8", "koi8-r"])
def test_letters_decide_however_late(codec: str) -> None:
    text = "some words " * (24 << 10) + "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440. " * 40
    assert decode(text.encode(codec))[:2] == (text, codec.upper())


def test_a_label_of_wide_characters_is_asked_before_the_bytes() -> None:
    text = "\u041f\u0440\u0438\u0432\u0435\u0442" * 400
    assert narrowed(text.encode("utf-16-le")) != text.encode()
    assert narrowed(text.encode("utf-16-le"), "UTF-16") == text.encode()
    assert narrowed(text.encode("utf-16-be"), "utf-16be") == text.encode()
    for unchanged in (text.encode(), b"\xef\xbb\xbfa", b"a\xff"):
        assert narrowed(unchanged, "utf-8") == unchanged
    assert narrowed(b"", "utf-16") == b""
    lone_surrogates = b"\x01\xd8" * 2_000
    assert narrowed(lone_surrogates, "utf-16") == lone_surrogates
