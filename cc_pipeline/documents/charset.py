"""Which charset a page is in, who said so, and its text. Decoding never fails.

The codes are the 2012 document's: 0 HTTP header, 1 ``meta`` tag or XML declaration, 2 (there: ICU) the shape of
the bytes, that is a byte order mark or multi-byte sequences that are valid UTF-8, 3 (there: Mozilla) a
statistical detector, 10 nothing found, read as ISO-8859-1. Labels and decoders follow the WHATWG Encoding
Standard (https://encoding.spec.whatwg.org/).
"""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from cc_pipeline.documents.charset_detect import detect
from cc_pipeline.documents.charset_labels import CODECS, encoding_for_label

HEADER, META, SHAPE, STATISTICS, UNDETERMINED = 0, 1, 2, 3, 10

_PRESCAN_BYTES = 4096
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
    """The charset a document names in its first bytes, by the standard's prescan, or ``None``."""
    head = payload[:_PRESCAN_BYTES]
    if xml := _XML_DECLARATION.match(head.lstrip()):
        found = encoding_for_label((xml.group(1) or xml.group(2) or b"").decode("latin-1"))
        if found:
            return _not_utf16(found)
    if b"<meta" not in head and b"<META" not in head and b"<Meta" not in head:
        return None
    for tag in _META.finditer(_COMMENT.sub(b"", head)):
        if found := _meta_charset(tag.group(1)):
            return found
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
