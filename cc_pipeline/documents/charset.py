"""A wrong charset spoils a whole page. The charset is taken from a credible header, mark or ``meta`` tag, else
detected. Labels and decoders are those of the WHATWG Encoding Standard, as in browsers."""

from __future__ import annotations

import codecs
import re
from functools import partial
from itertools import chain
from typing import NamedTuple

import endec

#: Labels of the encodings of the WHATWG Encoding Standard, by name.
_LABELS: dict[str, str] = {
    "UTF-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8",
    "IBM866": "866 cp866 csibm866 ibm866",
    "ISO-8859-2": "csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2",
    "ISO-8859-3": "csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3",
    "ISO-8859-4": "csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4",
    "ISO-8859-5": "csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988",
    "ISO-8859-6": (
        "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6 iso-8859-6-e "
        "iso-8859-6-i iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987"
    ),
    "ISO-8859-7": (
        "csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 iso8859-7 iso88597 iso_8859-7 "
        "iso_8859-7:1987 sun_eu_greek"
    ),
    "ISO-8859-8": (
        "csiso88598e csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e iso-ir-138 iso8859-8 iso88598 iso_8859-8 "
        "iso_8859-8:1988 visual"
    ),
    "ISO-8859-8-I": "csiso88598i iso-8859-8-i logical",
    "ISO-8859-10": "csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 l6 latin6",
    "ISO-8859-13": "iso-8859-13 iso8859-13 iso885913",
    "ISO-8859-14": "iso-8859-14 iso8859-14 iso885914",
    "ISO-8859-15": "csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9",
    "ISO-8859-16": "iso-8859-16",
    "KOI8-R": "cskoi8r koi koi8 koi8-r koi8_r",
    "KOI8-U": "koi8-ru koi8-u",
    "macintosh": "csmacintosh mac macintosh x-mac-roman",
    "windows-874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874",
    "windows-1250": "cp1250 windows-1250 x-cp1250",
    "windows-1251": "cp1251 windows-1251 x-cp1251",
    "windows-1252": (
        "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591 "
        "iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252"
    ),
    "windows-1253": "cp1253 windows-1253 x-cp1253",
    "windows-1254": (
        "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 latin5 "
        "windows-1254 x-cp1254"
    ),
    "windows-1255": "cp1255 windows-1255 x-cp1255",
    "windows-1256": "cp1256 windows-1256 x-cp1256",
    "windows-1257": "cp1257 windows-1257 x-cp1257",
    "windows-1258": "cp1258 windows-1258 x-cp1258",
    "x-mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "GBK": "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk",
    "gb18030": "gb18030",
    "Big5": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "EUC-JP": "cseucpkdfmtjapanese euc-jp x-euc-jp",
    "ISO-2022-JP": "csiso2022jp iso-2022-jp",
    "Shift_JIS": "csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis",
    "EUC-KR": (
        "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 windows-949"
    ),
    "replacement": "replacement",
    "UTF-16BE": "unicodefffe utf-16be",
    "UTF-16LE": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le",
    "x-user-defined": "x-user-defined",
}

#: Charsets that Python decodes, with their labels: charsets that the standard lacks, and those of its "replacement",
#: which browsers do not show for their users' safety. An archive must decode them; of ISO-2022-CN only the ASCII, since
#: there is no decoder for it.
_BEYOND_STANDARD: dict[str, tuple[str, str]] = {
    "ISO-2022-CN": ("ascii", "iso-2022-cn iso-2022-cn-ext"),
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
    "ISO-8859-1": ("latin-1", ""),
}

#: Labels in everyday use that the standard does not list.
_ALIASES = {
    "cp949": "EUC-KR",
    "uhc": "EUC-KR",
    "cp932": "Shift_JIS",
    "cp936": "GBK",
    "cp950": "Big5",
    "eucjp": "EUC-JP",
    "euckr": "EUC-KR",
    "maccyrillic": "x-mac-cyrillic",
    "mac-cyrillic": "x-mac-cyrillic",
    "windows1251": "windows-1251",
    "windows1252": "windows-1252",
    "win1251": "windows-1251",
    "utf8mb4": "UTF-8",
    "utf-8-sig": "UTF-8",
    "cp65001": "UTF-8",
    "cp874": "windows-874",
    "iso-8859-1-windows-3.1-latin-1": "windows-1252",
}

#: Charsets that Python decodes. It decodes UTF-8 as the standard says, and faster.
_CODECS: dict[str, str] = {"UTF-8": "utf-8"} | {name: codec for name, (codec, _) in _BEYOND_STANDARD.items()}
#: The names of all charsets that are decoded.
CHARSETS = frozenset(_LABELS) | frozenset(_CODECS)
#: Encodings in which browsers write the queries of a page's links. For pages in other encodings it is UTF-8.
QUERY_ENCODINGS = frozenset(_LABELS) - {"UTF-8", "UTF-16BE", "UTF-16LE", "replacement"}

_NAMES: dict[str, str] = {
    label: name
    for name, labels in chain(_LABELS.items(), ((name, labels) for name, (_, labels) in _BEYOND_STANDARD.items()))
    for label in labels.split()
} | _ALIASES

#: Bytes of a document that detection reads.
_SAMPLE_BYTES = 256 * 1024
#: Characters at the end of a sample that may come from a cut character.
_CUT_CHARACTERS = 4
#: Bytes in which zero bytes are counted, and the share of them that means UTF-16 or UTF-32.
_NUL_SAMPLE = 4096
_NUL_SHARE = 0.3
_ASCII = bytes(range(128))
_HIGH_BYTE = re.compile(rb"[\x80-\xff]")

#: The letters of Johab, which statistics do not know, and the share of a text's non-ASCII characters that they must be.
_HANGUL = re.compile("[\uac00-\ud7a3]")
_HANGUL_SHARE = 0.5
#: Sequences that only one charset of seven bits has.
_ESCAPES = (
    (b"\x1b$)C", "ISO-2022-KR"),
    (b"\x1b$B", "ISO-2022-JP"),
    (b"\x1b$@", "ISO-2022-JP"),
    (b"\x1b(J", "ISO-2022-JP"),
    (b"\x1b(I", "ISO-2022-JP"),
)
#: An ISO charset has no letters where windows charsets have quotes and dashes.
_WINDOWS_TWIN = {
    "ISO-8859-2": "windows-1250",
    "ISO-8859-5": "windows-1251",
    "ISO-8859-7": "windows-1253",
    "ISO-8859-8": "windows-1255",
    "ISO-8859-15": "windows-1252",
}

HEADER, META, SHAPE, STATISTICS, UNDETERMINED = 0, 1, 2, 3, 10

_PRESCAN_BYTES = 4096
#: Bytes that are searched for a ``meta`` tag, bytes of such a tag, and the maximum number of tags.
_LATE_BYTES = 1024 * 1024
_META_BYTES = 2048
_META_TAGS = 500
_MARKUP = re.compile(
    rb"<(!--|meta(?=[\s/])|(?:script|style|title|textarea|xmp|noembed|noframes|iframe)(?=[\s/>]))", re.I
)
_BOMS = (
    (codecs.BOM_UTF8, "UTF-8"),
    (codecs.BOM_UTF32_LE, "UTF-32LE"),
    (codecs.BOM_UTF32_BE, "UTF-32BE"),
    (codecs.BOM_UTF16_LE, "UTF-16LE"),
    (codecs.BOM_UTF16_BE, "UTF-16BE"),
)
_WIDE = frozenset(name for _, name in _BOMS) - {"UTF-8"}
_CHARSET = re.compile(rb"charset", re.IGNORECASE)
_META = re.compile(rb"<meta[\s/]((?:[^>\"']|\"[^\"]*\"|'[^']*')*)>", re.IGNORECASE)
_XML_DECLARATION = re.compile(rb"""<\?xml\s[^>]*?encoding\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_ATTRIBUTE = re.compile(rb"""([^\s/>=]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+)))?""")
_CONTENT_CHARSET = re.compile(rb"""charset\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;"']+))""", re.IGNORECASE)


def encoding_for_label(label: str) -> str | None:
    """Returns the standard's name for a label in a header or a page; ``None`` for an unknown label."""
    return _NAMES.get(label.strip(" \t\r\n\f\"'").lower())


class Detected(NamedTuple):
    """A charset's WHATWG name, and whether the bytes' shape alone decided."""

    charset: str
    by_shape: bool


def detect(payload: bytes) -> Detected | None:
    """Returns the charset of unlabelled bytes; ``None`` if it cannot be determined."""
    sample = payload[:_SAMPLE_BYTES]
    if not sample:
        return None
    if sample.isascii() and (high_byte := _HIGH_BYTE.search(payload, _SAMPLE_BYTES)):
        sample = payload[high_byte.start() - _SAMPLE_BYTES // 2 :][:_SAMPLE_BYTES]
    if (wide := _wide(sample[:_NUL_SAMPLE])) is not None:
        return Detected(wide, True)
    if b"\x1b" in sample and (switched := _by_escapes(sample)):
        return Detected(switched, True)
    if sample.isascii() or _valid_utf8(sample, is_complete=payload.endswith(sample)):
        return Detected("UTF-8", True)
    high = sample.translate(None, _ASCII)
    if max(high) <= 0x9F and len(high) * 20 < len(sample):
        return Detected("windows-1252", False)  # quotes, dashes and dots in English text
    name = _guess(sample)
    if name in _WINDOWS_TWIN and any(0x80 <= byte <= 0x9F for byte in set(high)):
        name = _WINDOWS_TWIN[name]
    if name is None and _is_johab(sample):
        name = "Johab"
    return Detected(name, False) if name else None


def _guess(sample: bytes) -> str | None:
    # slow to import, and not needed to read headers
    from resiliparse.parse.encoding import detect_encoding  # noqa: PLC0415

    guess = detect_encoding(sample, max_len=len(sample), html5_compatible=False)
    return encoding_for_label(guess) or encoding_for_label(guess.replace("_", "-")) if guess else None


def narrowed(payload: bytes, http_label: str | None = None) -> bytes:
    """Returns a document in UTF-16 or UTF-32 as UTF-8, so that its markup can be searched; others unchanged. It is one
    by its mark, by ``http_label`` if its beginning is valid, or by where its zero bytes lie."""
    head = payload[:_NUL_SAMPLE]
    name = next((name for mark, name in _BOMS if payload.startswith(mark)), None)
    labelled = encoding_for_label(http_label or "")
    if name is None and labelled in _WIDE and "\ufffd" not in decode_as(head, labelled)[0][:-_CUT_CHARACTERS]:
        name = labelled
    name = name or _wide(head)
    return payload if name in (None, "UTF-8") else decode_as(payload, name)[0].encode("utf-8")


def _wide(head: bytes) -> str | None:
    """Detects UTF-16 or UTF-32 without a mark, by the positions of the zero bytes of ASCII characters."""
    if not head or head.count(0) < len(head) * _NUL_SHARE:
        return None
    zeros = [head[place::4].count(0) * 4 / len(head) for place in range(4)]
    often = [share > _NUL_SHARE for share in zeros]
    names = {
        (False, True, True, True): "UTF-32LE",
        (True, True, True, False): "UTF-32BE",
        (False, True, False, True): "UTF-16LE",
        (True, False, True, False): "UTF-16BE",
    }
    name = names.get((often[0], often[1], often[2], often[3]))
    # a character above U+FFFF has no zero in the third byte, yet the fourth is always one
    return name if name is None or _decodes(head[: len(head) // 4 * 4], name) else None


def _by_escapes(sample: bytes) -> str | None:
    """Detects a charset of seven bits by the sequences that switch to its letters."""
    if not sample.isascii():
        return None
    name = next((name for escape, name in _ESCAPES if escape in sample), None)
    return name if name and _decodes(sample, name) else None


def _valid_utf8(sample: bytes, *, is_complete: bool) -> bool:
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        return not is_complete and error.start >= len(sample) - 3
    return True


def _decodes(sample: bytes, name: str) -> bool:
    text, clean = decode_as(sample, name)
    return clean or (len(sample) >= _SAMPLE_BYTES and "\ufffd" not in text[:-_CUT_CHARACTERS])


def _is_johab(sample: bytes) -> bool:
    text, clean = decode_as(sample, "Johab")
    foreign = sum(not character.isascii() for character in text)
    return clean and len(_HANGUL.findall(text)) >= _HANGUL_SHARE * foreign


class Decoded(NamedTuple):
    """A page's text, the charset's WHATWG name, the 2012 detector code, and whether every byte fitted."""

    text: str
    charset: str
    detector: int
    clean: bool


def decode(payload: bytes, http_label: str | None = None, *, markup: bool = True) -> Decoded:
    """Decodes a body. ``http_label`` is the charset of the Content-Type header; with ``markup``, a ``meta`` tag or an
    XML declaration may name the charset."""
    name, detector = determine(payload, http_label, markup=markup)
    text, clean = decode_as(payload, name)
    return Decoded(text, name, detector, clean)


def determine(payload: bytes, http_label: str | None, *, markup: bool) -> tuple[str, int]:
    """Returns the charset's name and the code of its source (``HEADER``, ``META``, ...)."""
    for mark, name in _BOMS:
        if payload.startswith(mark):
            return name, SHAPE
    charset = encoding_for_label(http_label) if http_label else None
    if charset:
        return charset, HEADER
    if markup and (charset := declared(payload)):
        return charset, META
    detected = detect(payload)
    if detected is None:
        return "ISO-8859-1", UNDETERMINED
    return detected.charset, SHAPE if detected.by_shape else STATISTICS


def declared(payload: bytes) -> str | None:
    """Returns the charset a document names in its XML declaration, else in a ``meta`` tag of its first MiB."""
    xml = _XML_DECLARATION.match(payload[:_PRESCAN_BYTES].lstrip())
    if xml and (charset := encoding_for_label((xml.group(1) or xml.group(2) or b"").decode("latin-1"))):
        return _resolve_page_charset(charset)
    return _declared_by_tag(payload[:_LATE_BYTES]) if _CHARSET.search(payload, 0, _LATE_BYTES) else None


def _declared_by_tag(payload: bytes) -> str | None:
    """Searches tag by tag, so that tags in comments and scripts do not count."""
    position = tags = 0
    while (markup := _MARKUP.search(payload, position)) and tags < _META_TAGS:
        position = markup.end()
        name = markup.group(1).lower()
        if name == b"!--":
            end = payload.find(b"-->", position - 2)
            position = end + 3
        elif name == b"meta":
            tags += 1
            tag = _META.match(payload, markup.start(), markup.start() + _META_BYTES)
            if tag and (charset := _meta_charset(tag.group(1))):
                return charset
            end = position
        else:
            closing = re.compile(b"</" + name, re.IGNORECASE).search(payload, position)
            end = position = closing.end() if closing else -1
        if end < 0:
            return None
    return None


def _meta_charset(attributes: bytes) -> str | None:
    content = charset = None
    pragma = False
    for key, double, single, bare in _ATTRIBUTE.findall(attributes):
        name, value = key.lower(), double or single or bare
        if name == b"http-equiv":
            pragma = value.lower() == b"content-type"
        elif name == b"content" and content is None:
            match = _CONTENT_CHARSET.search(value)
            content = next((part for part in match.groups() if part), None) if match else None
        elif name == b"charset" and charset is None:
            charset = value
    label = charset or (content if pragma else None)
    found_name = encoding_for_label(label.decode("latin-1")) if label else None
    return _resolve_page_charset(found_name) if found_name else None


def _resolve_page_charset(name: str) -> str:
    """Returns the charset to use when a page itself names ``name`` (HTML, 13.2.3.2): bytes with a readable ASCII
    declaration are not UTF-16, and ``x-user-defined`` is for scripts."""
    return {"UTF-16LE": "UTF-8", "UTF-16BE": "UTF-8", "x-user-defined": "windows-1252"}.get(name, name)


def without_mark(payload: bytes, name: str) -> bytes:
    """Returns bytes in the charset ``name`` without their byte order mark."""
    mark = next((mark for mark, charset in _BOMS if charset == name), b"")
    return payload.removeprefix(mark)


def decode_as(payload: bytes, name: str) -> tuple[str, bool]:
    """Returns the text of bytes in the charset ``name``, and whether all are valid; invalid bytes become U+FFFD."""
    payload = without_mark(payload, name)
    codec = _CODECS.get(name)
    decode = partial(payload.decode, codec) if codec else partial(endec.decode, payload, name, bom="ignore")
    try:
        return decode(errors="strict"), True
    except UnicodeError:
        return decode(errors="replace"), False
