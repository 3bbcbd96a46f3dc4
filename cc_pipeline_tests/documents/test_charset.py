"""Who says which charset a page is in, and that decoding never fails."""

from __future__ import annotations

import json

import endec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.documents.charset import (
    CHARSETS,
    HEADER,
    META,
    QUERY_ENCODINGS,
    SHAPE,
    STATISTICS,
    UNDETERMINED,
    declared,
    decode,
    encoding_for_label,
    narrowed,
)
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.documents.unlabelled import unlabelled_documents

#: Charsets browsers refuse to read, and an archive should not.
_READ_HERE = {"csiso2022kr", "iso-2022-kr", "hz-gb-2312", "iso-2022-cn", "iso-2022-cn-ext"}


@pytest.mark.parametrize(
    ("payload", "label", "charset", "detector"),
    [
        (b"\xef\xbb\xbfabc", "iso-8859-2", "UTF-8", SHAPE),
        ("aé".encode("utf-16"), None, "UTF-16LE", SHAPE),
        ("<p>é".encode("utf-16-be"), None, "UTF-16BE", SHAPE),
        (b"\xe9t\xe9", "ISO-8859-1", "windows-1252", HEADER),
        (b"<meta charset=koi8-r>", "no-such-charset", "KOI8-R", META),
        (b'<meta http-equiv="content-type" content="text/html; charset=Shift_JIS">', None, "Shift_JIS", META),
        (b'<?xml version="1.0" encoding="ISO-8859-2"?><rss/>', None, "ISO-8859-2", META),
        (b"<!-- <meta charset=big5> --><p>x", None, "UTF-8", SHAPE),
        (b'<meta charset="utf-16">', None, "UTF-8", META),
        ("déjà vu".encode(), None, "UTF-8", SHAPE),
        ("le chat est allé à la pêche, déjà".encode("latin-1"), None, "windows-1252", STATISTICS),
        (b"", None, "ISO-8859-1", UNDETERMINED),
    ],
)
def test_who_decides(payload: bytes, label: str | None, charset: str, detector: int) -> None:
    found = decode(payload, label)
    assert (found.charset, found.detector) == (charset, detector)


def test_the_mark_is_not_part_of_the_text() -> None:
    assert decode(b"\xef\xbb\xbfabc").text == "abc"
    assert decode("aé".encode("utf-16")).text == "aé"


def test_bytes_that_do_not_fit_are_replaced_and_reported() -> None:
    found = decode(b"caf\xe9", "utf-8")
    assert (found.text, found.clean) == ("caf\ufffd", False)


def test_unassigned_bytes_of_windows_1252_are_controls_as_in_browsers() -> None:
    assert decode(b"a\x81b\x93", "windows-1252")[::3] == ("a\x81b\u201c", True)


@given(st.binary(max_size=400), st.one_of(st.none(), st.text(max_size=12), st.sampled_from(sorted(CHARSETS))))
def test_decoding_never_fails(payload: bytes, label: str | None) -> None:
    found = decode(payload, label)
    assert found.charset in CHARSETS
    assert isinstance(found.text, str)


@given(st.text(), st.sampled_from(sorted(QUERY_ENCODINGS)))
def test_a_labelled_text_is_that_of_its_bytes(text: str, name: str) -> None:
    try:
        payload = endec.encode(text, name)
    except UnicodeError:
        return
    if not payload.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")):
        found = decode(payload, name)
        # some encodings write two characters alike: full and half width, or a yen sign and a backslash
        assert found.clean and endec.encode(found.text, name) == payload


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


JAPANESE = "<title>\u65e5\u672c\u8a9e\u306e\u30da\u30fc\u30b8</title><p>\u3053\u3093\u306b\u3061\u306f"
KOREAN = "<title>\ud55c\uad6d\uc5b4</title><p>\uc548\ub155\ud558\uc138\uc694"


@pytest.mark.parametrize(
    ("text", "codec", "name"), [(JAPANESE, "iso2022_jp", "ISO-2022-JP"), (KOREAN, "iso2022_kr", "ISO-2022-KR")]
)
def test_charsets_of_seven_bits_are_known_by_their_escapes(text: str, codec: str, name: str) -> None:
    found = decode(text.encode(codec))
    assert (found.text, found.charset, found.clean) == (text, name, True)


def test_an_escape_character_alone_is_plain_text() -> None:
    assert decode(b"\x1b[1mbold\x1b[0m").charset == "UTF-8"


@pytest.mark.parametrize("before", ["<script>%s</script>", "<!--%s-->", "<style>%s</style>", "<p>%s</p>"])
def test_a_meta_tag_is_found_however_late(before: str) -> None:
    text = before % ("x < y " * 2_000) + "<META charset='windows-1251'><p>\u041f\u0440\u0438\u0432\u0435\u0442"
    assert decode(text.encode("cp1251")).text == text


@pytest.mark.parametrize("around", ["<script>%s</script>", "<!--%s-->", "<title>%s</title>", "<script>%s", "<!-- %s"])
def test_a_late_meta_tag_in_a_script_or_comment_is_none(around: str) -> None:
    text = "<p>x</p>" * 1_000 + around % "<meta charset=windows-1251>" + "<p>\u00e9t\u00e9 \u00e0 la plage"
    assert decode(text.encode("utf-8")).charset == "UTF-8"


def test_no_charset_is_looked_for_behind_the_bounds() -> None:
    """A tag in the first MiB counts, one behind it does not."""
    tag = b"<meta charset=koi8-r>"
    within, beyond = (b" " * ((1 << 20) - len(tag) + extra) + tag for extra in (0, 1))
    assert (declared(within), declared(beyond)) == ("KOI8-R", None)


@pytest.mark.parametrize("codec", ["utf-8", "koi8-r"])
def test_letters_decide_however_late(codec: str) -> None:
    text = "some words " * (24 << 10) + "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440. " * 40
    assert decode(text.encode(codec))[:2] == (text, codec.upper())


def test_a_label_of_wide_characters_is_asked_before_the_bytes() -> None:
    text = "\u041f\u0440\u0438\u0432\u0435\u0442" * 400
    assert narrowed(text.encode("utf-16-le")) != text.encode()
    assert narrowed(text.encode("utf-16-le"), "UTF-16") == text.encode()
    assert narrowed(text.encode("utf-16-be"), "utf-16be") == text.encode()
    assert narrowed(text.encode(), "utf-8") == text.encode()
    lone_surrogates = b"\x01\xd8" * 2_000
    assert narrowed(lone_surrogates, "utf-16") == lone_surrogates
