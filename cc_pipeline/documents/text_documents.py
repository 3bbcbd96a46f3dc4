"""Readers of the pages that are not HTML: texts, JSON, XML, sitemaps and PDF files.

PDFium is C++ that reads hostile bytes: it belongs into the supervised worker, whose time and memory are bounded. The
limits here are pages, characters and the size of a page's drawing commands: PDFium needs 2 s and 200 MB for a megabyte
of them, and few pages of text have a tenth. Cuts are flagged.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from cc_pipeline.documents.feeds.xml import Element, local_name, parse_xml
from cc_pipeline.documents.headers import content_type
from cc_pipeline.documents.html.urls import browser_resolver, domain_of
from cc_pipeline.documents.html.whitespace import collapsed
from cc_pipeline.documents.page import Limits, Link, PageInput, ParseOptions

TextType = Literal["html", "feed", "text", "json", "xml", "sitemap", "pdf"]

_ENTRIES = {"urlset": "url", "sitemapindex": "sitemap"}
#: Elements inside of extensions (images, videos, news) that hold an address, and the link's type.
_ADDRESSES = {"loc": "image", "content_loc": "video", "player_loc": "video", "thumbnail_loc": "image"}
_FACTS = frozenset({"lastmod", "changefreq", "priority"})

#: Programs are no texts, although the 2012 filter let some through.
_PROGRAM = re.compile(r"[a-z]+/(?:x-)?(?:java|ecma)script\b")
#: A JSON string, with the colon after it if it is a member's name; or an unfinished string.
_JSON_STRING = re.compile(r'("(?:[^"\\]++|\\.)*+")(\s*+:)?|"(?:[^"\\]++|\\.)*+\\?\Z', re.DOTALL)
_JSON_MIME = re.compile(r"[a-z]+/(?:[a-z0-9.-]+\+)?json\b")


@dataclass(frozen=True, slots=True)
class TextDocument:
    """The content of a document. ``text`` has its white space collapsed; ``main_content`` keeps lines, and is ``None``
    for documents that are no prose."""

    kind: TextType
    text: str
    main_content: str | None = None
    extractor: str | None = None
    title: str | None = None
    author: str | None = None
    links: tuple[Link, ...] = ()
    flags: set[str] = field(default_factory=set)


def entries(root: Element, url: str, limits: Limits, flags: set[str]) -> tuple[Link, ...]:
    """Returns a link for each entry: type ``url``, or ``sitemap`` in an index, with ``lastmod``, ``changefreq`` and
    ``priority`` as attributes; after it its alternatives in other languages (``link``, with their attributes), images
    and videos. ``item_index`` is the index of the entry."""
    entry_name = _ENTRIES[local_name(root)[1]]
    resolve = browser_resolver(url)
    links: list[Link] = []

    def add(kind: str, href: str | None, attributes: dict[str, str], place: int) -> None:
        if not href:
            return
        if len(links) >= limits.sitemap_links:
            flags.add("links_cut")
            return
        bound = limits.attribute_chars
        if len(href) > bound or any(len(value) > bound for value in attributes.values()):
            flags.add("attributes_cut")
            href, attributes = href[:bound], {name: value[:bound] for name, value in attributes.items()}
        absolute, host = resolve(href)
        domain = domain_of(host) if host else None
        links.append(Link(kind, href, absolute, "", attributes.get("rel"), attributes, host, domain, place))

    for place, entry in enumerate(element for element in root if local_name(element)[1] == entry_name):
        if "links_cut" in flags:
            break
        location, facts, extensions = None, {}, []
        for child in entry:
            name, text = local_name(child)[1], (child.text or "").strip()
            if name == "loc":
                location = location or text
            elif name in _FACTS:
                facts[name] = text
            else:
                extensions.append(child)
        add(entry_name, location, facts, place)
        for extension in extensions:
            if local_name(extension)[1] == "link":
                attributes = {str(name): str(value) for name, value in extension.attrib.items() if name != "href"}
                add("link", extension.get("href"), attributes, place)
                continue
            for inner in extension:
                if kind := _ADDRESSES.get(local_name(inner)[1]):
                    add(kind, (inner.text or "").strip(), {}, place)
    return tuple(links)


def read_other(kind: str, text: str, page: PageInput, options: ParseOptions) -> TextDocument | None:
    """Reads a document of kind ``text``, or ``xml`` or ``feed`` that is no feed; returns ``None`` for programs."""
    if kind != "text" and text.lstrip("\ufeff \t\r\n").startswith("<"):
        return read_xml(text, page.url, options.limits)
    return read_text(text, content_type(page.content_headers)[0], options.limits)


def read_text(text: str, mime: str | None, limits: Limits) -> TextDocument | None:
    """Reads plain text unchanged, or every string value of JSON, one a line.

    The label decides; invalid JSON is read as plain text, flagged ``json_invalid``. Returns ``None`` for programs.
    """
    if mime and _PROGRAM.match(mime):
        return None
    flags: set[str] = set()
    if mime and _JSON_MIME.match(mime):
        if text.count("[") + text.count("{") > limits.elements:
            # parsed values would take fifty times the text: the strings are read one by one
            flags.add("elements_cut")
            texts = "\n".join(
                _unescaped(string[1])
                for string in _JSON_STRING.finditer(text[: limits.text_chars])
                if string[1] and not string[2]
            )
            return TextDocument("json", collapsed(texts), flags=flags)
        try:
            value = json.loads(text.lstrip("\ufeff"), strict=False)
        except (ValueError, RecursionError):
            flags.add("json_invalid")
        else:
            lines = "\n".join(_strings(value))
            return TextDocument("json", collapsed(_cut(lines, limits, flags)), flags=flags)
    plain_text = _cut(text.lstrip("\ufeff"), limits, flags).strip()
    return TextDocument("text", collapsed(plain_text), plain_text or None, "as it is", flags=flags)


def _unescaped(written: str) -> str:
    try:
        return str(json.loads(written, strict=False)) if "\\" in written else written[1:-1]
    except ValueError:
        return written[1:-1]


def _strings(value: Any) -> Iterator[str]:
    """Yields the strings of a JSON value in document order, without the names of members. Needs no recursion."""
    waiting = [iter((value,))]
    while waiting:
        for member in waiting[-1]:
            if isinstance(member, str):
                yield member
            elif isinstance(member, (dict, list)):
                waiting.append(iter(member.values() if isinstance(member, dict) else member))
                break
        else:
            waiting.pop()


def read_xml(text: str, url: str, limits: Limits) -> TextDocument:
    """Reads all character data of an XML document, and the entries of a sitemap as links. ``url`` is the document's."""
    flags: set[str] = set()
    root, well_formed, cut = parse_xml(text, limits, feed=False)
    if cut:
        flags.add("elements_cut")
    if root is None:
        return TextDocument("xml", "", flags=flags | {"xml_unreadable"})
    if not well_formed:
        flags.add("xml_malformed")
    full_text = collapsed(_cut(" ".join(root.itertext()), limits, flags))
    if local_name(root)[1] not in _ENTRIES:  # in any namespace
        return TextDocument("xml", full_text, flags=flags)
    return TextDocument("sitemap", full_text, links=entries(root, url, limits, flags), flags=flags)


def _cut(text: str, limits: Limits, flags: set[str]) -> str:
    if len(text) <= limits.text_chars:
        return text
    flags.add("text_cut")
    return text[: limits.text_chars]


_START = b"%PDF-"
_STREAM = re.compile(rb">>\s{0,4}stream\r?\n")
#: The bytes before a stream that are searched for its dictionary, which marks streams that are needed in full.
_ABOUT_BYTES = 1024
#: Bytes that are inflated at most to find large streams; limits the time of a file full of them.
_MAX_INFLATED_BYTES = 128 * 1024 * 1024
_NEEDED = re.compile(rb"/Length1\b|/Type1C|/CIDFontType0C|/OpenType|/ObjStm|/XRef")
#: Readers search for the first and the last marker within so many bytes.
_MARKER_BYTES = 1024


def is_pdf(payload: bytes) -> bool:
    """Whether bytes begin as a PDF file; leading junk is allowed."""
    return _START in payload[: _MARKER_BYTES + len(_START)]


def read_pdf(payload: bytes, limits: Limits, *, cut: bool) -> TextDocument:
    """Reads title and author of a PDF file, and the text of its pages.

    ``cut``: the bytes are known to be incomplete. Flags: ``pdf_truncated`` if they are, or lack the marker at the end
    of a file; ``pdf_unreadable`` if PDFium cannot open it (for example without a table of contents), ``pdf_locked`` if
    it needs a password; ``text_cut`` beyond a limit. Never raises because of the bytes.
    """
    import pypdfium2  # noqa: PLC0415 - takes a tenth of a second, for PDF files only

    flags = set()
    if cut or b"%%EOF" not in payload[-_MARKER_BYTES:]:
        flags.add("pdf_truncated")
    try:
        document = pypdfium2.PdfDocument(_without_large_streams(payload, limits, flags))
    except pypdfium2.PdfiumError as error:
        locked = getattr(error, "err_code", None) == pypdfium2.raw.FPDF_ERR_PASSWORD
        return TextDocument("pdf", "", flags=flags | {"pdf_locked" if locked else "pdf_unreadable"})
    try:
        facts = document.get_metadata_dict(skip_empty=True)
        text = _text(document, limits, flags)
    finally:
        document.close()
    title, author = (collapsed(facts.get(name, ""))[: limits.attribute_chars] or None for name in ("Title", "Author"))
    return TextDocument("pdf", collapsed(text), text or None, _reader(), title, author, flags=flags)


def _without_large_streams(payload: bytes, limits: Limits, flags: set[str]) -> bytes:
    """Returns the file with every deflated stream above the limit blanked, except those PDFium needs in full: fonts,
    and streams of objects. Images may be blanked: only text is read."""
    blanked = bytearray()
    view = memoryview(payload)
    position = copied = inflated_bytes = 0
    while inflated_bytes < _MAX_INFLATED_BYTES and (stream := _STREAM.search(payload, position)) is not None:
        begin = position = stream.end()
        dictionary = payload[max(0, stream.start() - _ABOUT_BYTES) : stream.start()].rpartition(b" obj")[2]
        if (b"/FlateDecode" not in dictionary and b"/Fl " not in dictionary) or _NEEDED.search(dictionary):
            continue
        inflating = zlib.decompressobj()
        try:
            size = len(inflating.decompress(view[begin : begin + limits.pdf_stream_bytes], limits.pdf_stream_bytes))
        except zlib.error:
            continue
        inflated_bytes += size
        if size < limits.pdf_stream_bytes:
            continue
        end = payload.find(b"endstream", begin)
        end = len(payload) if end < 0 else end
        blanked += payload[copied:begin] + bytes(end - begin)
        position = copied = end
        if b"/Image" not in dictionary:
            flags.add("text_cut")
    return bytes(blanked + payload[copied:]) if copied else payload


def _text(document: Any, limits: Limits, flags: set[str]) -> str:
    import pypdfium2  # noqa: PLC0415

    parts: list[str] = []
    remaining_chars = limits.text_chars
    for number in range(len(document)):
        if number >= limits.pdf_pages or remaining_chars <= 0:
            flags.add("text_cut")
            break
        try:
            page = document[number]
            try:
                text = page.get_textpage()
                count = text.count_chars()
                if count > remaining_chars:
                    flags.add("text_cut")
                part = text.get_text_range(0, min(count, remaining_chars)) if count > 0 else ""
            finally:
                page.close()
        except pypdfium2.PdfiumError:
            flags.add("pdf_page_unreadable")
            continue
        remaining_chars -= len(part)
        parts.append("\n".join(line for raw_line in part.splitlines() if (line := raw_line.strip("\x00 \t\ufffe"))))
    return "\n".join(part for part in parts if part)


@lru_cache(maxsize=1)
def _reader() -> str:
    from importlib.metadata import version  # noqa: PLC0415 - reading package metadata is slow

    return f"pypdfium2 {version('pypdfium2')}"
