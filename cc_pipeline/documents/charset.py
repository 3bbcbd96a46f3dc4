"""The charset of a page: from header, mark or meta tag where they can be believed, else detected."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from resiliparse.parse.encoding import detect_encoding

from cc_pipeline.documents.charset_names import CODECS, encoding_for_label

#: Bytes of a document that detection looks at.
_SAMPLE_BYTES = 256 * 1024
#: Bytes in which zero bytes are counted, and the share of them that tells UTF-16 or UTF-32 from other charsets.
_NUL_SAMPLE = 4096
_NUL_SHARE = 0.3
_ASCII = bytes(range(128))

#: What text in a multi-byte charset is mostly made of; tried where statistics have no answer.
_SCRIPTS = (
    ("EUC-KR", re.compile("[\uac00-\ud7a3]")),
    ("Johab", re.compile("[\uac00-\ud7a3]")),
    ("EUC-JP", re.compile("[\u3040-\u30ff]")),
    ("Shift_JIS", re.compile("[\u3040-\u30ff]")),
    ("Big5", re.compile("[\u4e00-\u9fff]")),
    ("GBK", re.compile("[\u4e00-\u9fff]")),
)
#: Sequences that only one charset of seven bits has.
_ESCAPES = (
    (b"\x1b$)C", "ISO-2022-KR"),
    (b"\x1b$B", "ISO-2022-JP"),
    (b"\x1b$@", "ISO-2022-JP"),
    (b"\x1b(J", "ISO-2022-JP"),
    (b"\x1b(I", "ISO-2022-JP"),
)
#: Share of the non-ASCII characters that must be of the script for its charset to be taken.
_SCRIPT_SHARE = 0.5
#: An ISO charset has no letters where windows charsets have quotes and dashes.
_WINDOWS_TWIN = {
    "ISO-8859-2": "windows-1250",
    "ISO-8859-5": "windows-1251",
    "ISO-8859-7": "windows-1253",
    "ISO-8859-8": "windows-1255",
    "ISO-8859-15": "windows-1252",
}


class Detected(NamedTuple):
    """A charset's WHATWG name, and whether the bytes' shape alone decided."""

    charset: str
    by_shape: bool


def detect(payload: bytes) -> Detected | None:
    """The charset of unlabelled bytes, ``None`` where no charset can be told."""
    sample = payload[:_SAMPLE_BYTES]
    if not sample:
        return None
    if (wide := _wide(sample[:_NUL_SAMPLE])) is not None:
        return Detected(wide, True)
    if b"\x1b" in sample and (switched := _by_escapes(sample)):
        return Detected(switched, True)
    if sample.isascii() or _valid_utf8(sample, whole=len(sample) == len(payload)):
        return Detected("UTF-8", True)
    high = sample.translate(None, _ASCII)
    if max(high) <= 0x9F and len(high) * 20 < len(sample):
        return Detected("windows-1252", False)  # quotes, dashes and dots in English text
    name = _guess(sample)
    if name in _WINDOWS_TWIN and any(0x80 <= byte <= 0x9F for byte in set(high)):
        name = _WINDOWS_TWIN[name]
    if name is None or not _decodes(sample, name):
        name = _by_script(sample) or name
    return Detected(name, False) if name else None


def _guess(sample: bytes) -> str | None:
    guess = detect_encoding(sample, max_len=len(sample), html5_compatible=False)
    return encoding_for_label(guess) or encoding_for_label(guess.replace("_", "-")) if guess else None


def has_wide_characters(head: bytes) -> bool:
    """Whether bytes begin as UTF-16 or UTF-32, with a mark or by where their zero bytes lie."""
    return head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)) or _wide(head) is not None


def _wide(head: bytes) -> str | None:
    """UTF-16 or UTF-32 without a mark, by where the zero bytes of ASCII characters lie."""
    if head.count(0) < len(head) * _NUL_SHARE:
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
    """A charset of seven bits by the sequences that switch to its letters."""
    if not sample.isascii():
        return None
    name = next((name for escape, name in _ESCAPES if escape in sample), None)
    return name if name and _decodes(sample, name) else None


def _valid_utf8(sample: bytes, *, whole: bool) -> bool:
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        return not whole and error.start >= len(sample) - 3
    return True


def _decodes(sample: bytes, name: str) -> bool:
    try:
        sample.decode(CODECS[name])
    except UnicodeDecodeError as error:
        return error.start >= len(sample) - 4 and len(sample) >= _SAMPLE_BYTES
    except UnicodeError:
        return False
    return True


def _by_script(sample: bytes) -> str | None:
    for name, letters in _SCRIPTS:
        try:
            text = sample.decode(CODECS[name])
        except UnicodeError:
            continue
        foreign = sum(1 for character in text if not character.isascii())
        if foreign and len(letters.findall(text)) >= _SCRIPT_SHARE * foreign:
            return name
    return None


HEADER, META, SHAPE, STATISTICS, UNDETERMINED = 0, 1, 2, 3, 10

_PRESCAN_BYTES = 4096
#: Bytes in which a later ``meta`` tag is looked for, bytes of such a tag, and how many are looked at.
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
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_META = re.compile(rb"<meta[\s/]((?:[^>\"']|\"[^\"]*\"|'[^']*')*)>", re.IGNORECASE)
_XML_DECLARATION = re.compile(rb"""<\?xml\s[^>]*?encoding\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_ATTRIBUTE = re.compile(rb"""([^\s/>=]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+)))?""")
_CONTENT_CHARSET = re.compile(rb"""charset\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;"']+))""", re.IGNORECASE)


class Decoded(NamedTuple):
    """A page's text, the charset's WHATWG name, the 2012 detector code, and whether every byte fitted."""

    text: str
    charset: str
    detector: int
    clean: bool


def decode(payload: bytes, http_label: str | None = None, *, markup: bool = True) -> Decoded:
    """Decodes a body. ``http_label`` is the charset of the Content-Type header; ``markup`` says that a
    ``meta`` tag or an XML declaration may name the charset."""
    name, detector = determine(payload, http_label, markup=markup)
    text, clean = decode_as(payload, name)
    return Decoded(text, name, detector, clean)


def determine(payload: bytes, http_label: str | None = None, *, markup: bool = True) -> tuple[str, int]:
    """The charset's name and the code of who said so."""
    for mark, name in _BOMS:
        if payload.startswith(mark):
            return name, SHAPE
    named = encoding_for_label(http_label) if http_label else None
    if named:
        return named, HEADER
    if markup and (named := declared(payload)):
        return named, META
    found = detect(payload)
    if found is None:
        return "ISO-8859-1", UNDETERMINED
    return found.charset, SHAPE if found.by_shape else STATISTICS


def declared(payload: bytes) -> str | None:
    """The charset a document names, or ``None``: in its first bytes by the standard's prescan, else in a ``meta`` tag
    further on, which browsers begin again for."""
    head = payload[:_PRESCAN_BYTES]
    if xml := _XML_DECLARATION.match(head.lstrip()):
        found = encoding_for_label((xml.group(1) or xml.group(2) or b"").decode("latin-1"))
        if found:
            return _not_utf16(found)
    if b"<meta" in head or b"<META" in head or b"<Meta" in head:
        for tag in _META.finditer(_COMMENT.sub(b"", head)):
            if found := _meta_charset(tag.group(1)):
                return found
    if b"charset" in payload[_PRESCAN_BYTES - len(b"charset") : _LATE_BYTES].lower():
        return _declared_late(payload[:_LATE_BYTES])
    return None


def _declared_late(payload: bytes) -> str | None:
    """Tag by tag, so that what stands in comments and scripts does not count."""
    at = tags = 0
    while (found := _MARKUP.search(payload, at)) and tags < _META_TAGS:
        at = found.end()
        name = found.group(1).lower()
        if name == b"!--":
            end = payload.find(b"-->", at - 2)
            at = end + 3
        elif name == b"meta":
            tags += 1
            tag = _META.match(payload, found.start(), found.start() + _META_BYTES)
            if tag and (charset := _meta_charset(tag.group(1))):
                return charset
            end = at
        else:
            closing = re.compile(b"</" + name, re.IGNORECASE).search(payload, at)
            end = at = closing.end() if closing else -1
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
            found = _CONTENT_CHARSET.search(value)
            content = next((part for part in found.groups() if part), None) if found else None
        elif name == b"charset" and charset is None:
            charset = value
    label = charset or (content if pragma else None)
    found_name = encoding_for_label(label.decode("latin-1")) if label else None
    return _not_utf16(found_name) if found_name else None


def _not_utf16(name: str) -> str:
    """Bytes in which an ASCII declaration could be read are not UTF-16."""
    return "UTF-8" if name.startswith("UTF-16") else name


def decode_as(payload: bytes, name: str) -> tuple[str, bool]:
    """Text of bytes in a charset by its name, and whether every byte fitted; misfits become U+FFFD."""
    codec = CODECS.get(name, "latin-1")
    for mark, marked in _BOMS:
        if marked == name and payload.startswith(mark):
            payload = payload[len(mark) :]
            break
    try:
        return payload.decode(codec), True
    except (UnicodeDecodeError, UnicodeError):
        pass
    try:
        if codec.startswith("cp125") or codec == "cp874":
            text = payload.decode(codec, "c1_control")
            return text, "\ufffd" not in text
        return payload.decode(codec, "replace"), False
    except UnicodeError:
        return payload.decode("latin-1"), False


def _c1_control(error: UnicodeError) -> tuple[str, int]:
    """The standard reads bytes 80 to 9F that a windows charset has not assigned as the control characters."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    bad = error.object[error.start : error.end]
    return "".join(chr(byte) if byte <= 0x9F else "\ufffd" for byte in bad), error.end


codecs.register_error("c1_control", _c1_control)
