"""The text of PDF files, through PDFium.

PDFium is C++ that reads hostile bytes: it belongs into the supervised worker, whose time and memory are bounded. The
bounds here are pages, characters and seconds, looked at between pages, and the size of what a page draws: PDFium
needs 2 s and 200 MB for a megabyte of it, and few pages of text have a tenth. What they cut is flagged.
"""

from __future__ import annotations

import re
import time
import zlib
from functools import lru_cache
from typing import Any

from cc_pipeline.documents.html.whitespace import collapsed
from cc_pipeline.documents.other import Found
from cc_pipeline.documents.page import Limits

_START = b"%PDF-"
_STREAM = re.compile(rb">>\s{0,4}stream\r?\n")
#: Where a stream's dictionary is looked for, and what it says of streams that are needed whole.
_ABOUT_BYTES = 1024
#: Inflated at most to find large streams; bounds the time of a file made of nothing else.
_LOOKED_BYTES = 128 * 1024 * 1024
_NEEDED = re.compile(rb"/Length1\b|/Type1C|/CIDFontType0C|/OpenType|/ObjStm|/XRef")
#: Readers look for the first and the last marker within so many bytes.
_MARKER_BYTES = 1024


def is_pdf(payload: bytes) -> bool:
    """Whether bytes begin as a PDF file does, leading junk allowed."""
    return _START in payload[: _MARKER_BYTES + len(_START)]


def read_pdf(payload: bytes, limits: Limits, *, cut: bool) -> Found:
    """Title and author of the file, and the text of its pages.

    ``cut`` says that the bytes are known to be incomplete. Flags: ``pdf_truncated`` where they are, or end without
    the marker that ends a file; ``pdf_unreadable`` where PDFium opens nothing (a lost table of contents among
    them), ``pdf_locked`` where it needs a password; ``text_cut`` beyond a bound. Never raises for what the bytes hold.
    """
    import pypdfium2  # noqa: PLC0415 - a tenth of a second, wanted by PDF files alone

    flags = set()
    if cut or b"%%EOF" not in payload[-_MARKER_BYTES:]:
        flags.add("pdf_truncated")
    try:
        document = pypdfium2.PdfDocument(_without_large_streams(payload, limits, flags))
    except pypdfium2.PdfiumError as error:
        locked = getattr(error, "err_code", None) == pypdfium2.raw.FPDF_ERR_PASSWORD
        return Found("pdf", "", flags=flags | {"pdf_locked" if locked else "pdf_unreadable"})
    try:
        facts = document.get_metadata_dict(skip_empty=True)
        text = _text(document, limits, flags)
    finally:
        document.close()
    title, author = (collapsed(facts.get(name, ""))[: limits.attribute_chars] or None for name in ("Title", "Author"))
    return Found("pdf", collapsed(text), text or None, _reader(), title, author, flags=flags)


def _without_large_streams(payload: bytes, limits: Limits, flags: set[str]) -> bytes:
    """The file with every deflated stream blanked that is larger than the bound, but those PDFium needs whole: fonts,
    and streams of objects. Pictures may go: text is all that is read."""
    blanked = bytearray()
    view = memoryview(payload)
    at = done = looked = 0
    while looked < _LOOKED_BYTES and (found := _STREAM.search(payload, at)) is not None:
        begin = at = found.end()
        about = payload[max(0, found.start() - _ABOUT_BYTES) : found.start()].rpartition(b" obj")[2]
        if (b"/FlateDecode" not in about and b"/Fl " not in about) or _NEEDED.search(about):
            continue
        inflating = zlib.decompressobj()
        try:
            size = len(inflating.decompress(view[begin : begin + limits.pdf_stream_bytes], limits.pdf_stream_bytes))
        except zlib.error:
            continue
        looked += size
        if size < limits.pdf_stream_bytes:
            continue
        end = payload.find(b"endstream", begin)
        end = len(payload) if end < 0 else end
        blanked += payload[done:begin] + bytes(end - begin)
        at = done = end
        if b"/Image" not in about:
            flags.add("text_cut")
    return bytes(blanked + payload[done:]) if done else payload


def _text(document: Any, limits: Limits, flags: set[str]) -> str:
    import pypdfium2  # noqa: PLC0415

    parts: list[str] = []
    left = limits.text_chars
    until = time.monotonic() + limits.pdf_seconds
    for number in range(len(document)):
        if number >= limits.pdf_pages or left <= 0 or time.monotonic() > until:
            flags.add("text_cut")
            break
        try:
            page = document[number]
            try:
                text = page.get_textpage()
                count = text.count_chars()
                if count > left:
                    flags.add("text_cut")
                part = text.get_text_range(0, min(count, left)) if count > 0 else ""
            finally:
                page.close()
        except pypdfium2.PdfiumError:
            flags.add("pdf_page_unreadable")
            continue
        left -= len(part)
        parts.append("\n".join(line for each in part.splitlines() if (line := each.strip("\x00 \t\ufffe"))))
    return "\n".join(part for part in parts if part)


@lru_cache(maxsize=1)
def _reader() -> str:
    from importlib.metadata import version  # noqa: PLC0415 - reading package metadata is slow

    return f"pypdfium2 {version('pypdfium2')}"
