"""Headers name the type of a page, and are often wrong: media types, the parser for each, feeds that are labelled as
pages; and headers as the 2012 document has them."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from cc_pipeline.documents.page import Headers

#: The media types of JSON Feed.
JSON_FEED_TYPES = frozenset({"application/feed+json", "application/vnd.feed+json"})
#: The bytes of a document that are searched for its root element, or the version of a JSON Feed.
_HEAD_BYTES = 8192
#: A feed's root as its writer begins it, so that a page which only mentions feeds does not match.
_FEED_ROOT = re.compile(
    rb"""<(?:[a-z0-9_.-]{1,20}:)?(?:rss\b[^<>]{0,4000}>\s{0,200}(?:<!--[^<>]{0,500}-->\s{0,200})?<(?:[a-z]{1,20}:)?channel\b"""
    rb"""|feed\b[^<>]{0,4000}(?:www\.w3\.org/2005/atom|purl\.org/atom/ns#)"""
    rb"""|rdf\b[^<>]{0,4000}(?:purl\.org/(?:rss/|net/rss)|my\.netscape\.com/rdf/simple/))""",
    re.IGNORECASE,
)
_PAGE = re.compile(rb"<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_JSON_FEED_VERSION = re.compile(rb""""version"\s*:\s*"https?:\\?/\\?/(?:www\.)?jsonfeed\.org\\?/version\\?/""")

Kind = Literal["html", "feed", "xml", "text", "other"]

#: The type that the 2012 crawler wrote if none was given.
DEFAULT_MIME = "text/html"

_TYPE = re.compile(r"[^a-z0-9]*([a-z0-9][a-z0-9/.+-]*)", re.IGNORECASE)
#: The same with a type and a subtype, after any other characters.
_FULL_TYPE = re.compile(r"[^a-z0-9/]*[a-z0-9][a-z0-9.+-]*/[a-z0-9]", re.IGNORECASE)
#: Types that leave the decision to the bytes (WHATWG MIME Sniffing, 7); ``*/*`` is no type either.
_UNSPECIFIC_TYPES = frozenset({"unknown/unknown", "application/unknown"})
_HTML_TYPES = ("text/html", "application/xhtml+xml")
#: Programs and styles, in which markup may stand.
_PROGRAM = re.compile("script|css|json")
#: The bytes of a body that decide its type, and the beginning of HTML in them (WHATWG MIME Sniffing, 5 and 7.1).
_SNIFFED_BYTES = 1445
_HTML_START = re.compile(
    rb"\s*<(?:!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p|!--)[ >]", re.IGNORECASE
)
_CHARSET = re.compile(r"""charset\s*=\s*(?:["']\s*)?([^\s"';,]+)""", re.IGNORECASE)
_SUBTYPE = re.compile(r"[.+-]*(?:x-|vnd\.)*([^+]*)\+*([a-z]*)")

_BINARY = ("binary", "octet", "file", "image", "audio", "video", "font", "true-type", "x-epoc", "chemical", "plugin")
_TEXTUAL = ("text", "plain", "message", "multipart")
_TEXT_SUBTYPES = frozenset({"txt", "text", "plain", "csv", "json", "vcard", "javascript", "ecmascript"})
_ROOT = re.compile(rb"<(?:[a-z0-9_.-]{1,20}:)?(rss|feed|rdf|channel|html|urlset|sitemapindex)\b", re.IGNORECASE)
_SITEMAPS = frozenset({"urlset", "sitemapindex"})
_SPACE = re.compile(rb"\s*")
#: Sections that may precede the root element: their start and end.
_PROLOGUE = ((b"<?", b"?>"), (b"<!--", b"-->"), (b"<!", b">"))
_PROLOGUE_BYTES = 8192

_REWRITTEN = "x-crawler-"
_MAX_LENGTH_DIGITS = 18


def is_feed(payload: bytes) -> bool:
    """Whether a feed's root element is within the first bytes; junk may precede it, but no page."""
    head = payload[:_HEAD_BYTES]
    feed_root = _FEED_ROOT.search(head)
    return feed_root is not None and _PAGE.search(head, 0, feed_root.start()) is None


def is_json_feed(payload: bytes) -> bool:
    """Whether an object names its version of JSON Feed, at its beginning or its end."""
    if not payload[:200].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return False
    return any(_JSON_FEED_VERSION.search(part) for part in (payload[:_HEAD_BYTES], payload[-_HEAD_BYTES:]))


def split_content_type(value: str | None) -> tuple[str | None, str | None]:
    """Returns the media type in lower case and the charset label of a Content-Type value; ``None`` for a missing part.

    A value without type or subtype is no media type (MIME Sniffing, 4.4), except an unambiguous word such as ``html``;
    ``text`` may be anything.
    """
    if not value:
        return None, None
    match = _TYPE.match(value)
    mime = match.group(1).lower() if match else None
    if mime and not _FULL_TYPE.match(value):
        mime = mime.strip("/")
        if mime == "text" or (kind_of(mime) == "other" and not mime.startswith(_BINARY)):
            mime = None
    label = _CHARSET.search(value)
    return mime, (label.group(1) if label else None)


def content_type(headers: Headers) -> tuple[str | None, str | None]:
    """Returns media type and charset label of a message. The last field that names a type counts, with the label of the
    previous field if that is of the same type (Fetch, 2.2.2)."""
    mime = label = None
    for value in header_values(headers, "content-type"):
        media_type, charset = split_content_type(value)
        if media_type is not None and media_type != mime:
            mime, label = media_type, None
        label = charset or label
    return mime, label


def kind_of(mime: str) -> Kind:
    """Returns the family of a media type, as the 2012 filter sorted them (except PDF and Office types: the filter took
    their bytes for text)."""
    primary, _, subtype = mime.partition("/")
    if primary.startswith(_BINARY) and subtype not in ("xml", "html"):
        return "other"
    parts = _SUBTYPE.match(subtype or primary)
    names = parts.groups() if parts else ()
    if "html" in names or "xhtml" in names:
        return "html"
    if any(name in ("atom", "rss", "rdf") for name in names):
        return "feed"
    if "xml" in names:
        return "xml"
    if primary.startswith(_TEXTUAL):
        return "other" if names and names[0].startswith(("javascript", "css")) else "text"
    return "text" if any(name in _TEXT_SUBTYPES for name in names) else "other"


def root_element(payload: bytes) -> str | None:
    """Returns the root element of a document (``rss``, ``feed``, ``rdf``, ``channel``, ``html`` or a sitemap's), if it
    is within the first bytes."""
    position = 3 if payload.startswith(b"\xef\xbb\xbf") else 0
    while position < _PROLOGUE_BYTES:
        space = _SPACE.match(payload, position)
        position = space.end() if space else position
        for start, end in _PROLOGUE:
            if payload.startswith(start, position):
                prologue_end = payload.find(end, position + len(start), position + _PROLOGUE_BYTES)
                break
        else:
            root = _ROOT.match(payload, position)
            return root.group(1).decode("ascii").lower() if root else None
        if prologue_end < 0:
            return None
        position = prologue_end + len(end)
    return None


class ChosenKind(NamedTuple):
    """The parser for a page. ``source`` is the reason: the ``header``, the ``archive`` (the type that it identified),
    or the ``bytes``. ``is_mislabelled`` marks HTML that the archive identified under another type."""

    kind: Kind
    source: Literal["header", "archive", "bytes"]
    is_mislabelled: bool = False


def choose_kind(mime: str | None, detected: str | None, plain: bytes) -> ChosenKind:
    """Chooses the parser for a page by its header. Without a specific header the type that the archive ``detected``
    decides, else the bytes (WHATWG MIME Sniffing). ``plain`` is the body as ``narrowed`` returns it.

    The archive overrules ``text/plain`` and ``application/octet-stream``, and if it found HTML every type that is
    neither text nor a program. A feed or a sitemap under another type is recognized by its root element or its version,
    and a page under any type of XML by its root element.
    """
    if mime in JSON_FEED_TYPES:
        return ChosenKind("feed", "header")
    if detected in _UNSPECIFIC_TYPES or (detected is not None and "octet" in detected):
        detected = None
    choice = _choose_by_type(mime, detected, plain)
    kind = _kind_by_root(choice.kind, mime, detected, plain)
    return choice if kind == choice.kind else ChosenKind(kind, "bytes")


def _choose_by_type(mime: str | None, detected: str | None, payload: bytes) -> ChosenKind:
    if mime is None or mime in _UNSPECIFIC_TYPES:
        return ChosenKind(kind_of(detected), "archive") if detected else ChosenKind(_sniffed(payload), "bytes")
    kind = kind_of(mime)
    if detected is None or kind not in ("other", "text"):
        return ChosenKind(kind, "header")
    is_html = detected in _HTML_TYPES
    follows = mime == "text/plain" or (kind == "other" and ("octet" in mime or (is_html and not is_program(mime))))
    detected_kind = kind_of(detected)
    return (
        ChosenKind(detected_kind, "archive", is_html)
        if follows and detected_kind != kind
        else ChosenKind(kind, "header")
    )


def is_xml(mime: str | None) -> bool:
    """Whether a media type is one of XML (RFC 7303): a page under it is XHTML."""
    return mime is not None and mime.endswith(("/xml", "+xml"))


def is_program(mime: str | None) -> bool:
    """Whether a media type means a program or a style."""
    return mime is not None and _PROGRAM.search(mime) is not None


def begins_as_markup(payload: bytes) -> bool:
    """Whether a document begins as a page, a feed, a sitemap or other XML."""
    return _sniffed(payload) != "text" or root_element(payload) is not None


def _sniffed(payload: bytes) -> Kind:
    """Returns the kind of a document without a type, by its bytes."""
    head = payload.removeprefix(b"\xef\xbb\xbf")[:_SNIFFED_BYTES]
    if _HTML_START.match(head) or _PAGE.search(head):
        return "html"
    return "xml" if head.lstrip().startswith(b"<?xml") else "text"


def _kind_by_root(kind: Kind, mime: str | None, detected: str | None, payload: bytes) -> Kind:
    root = root_element(payload)
    if root == "html" and kind != "feed" and is_xml(mime):
        return "html"
    if kind == "other":
        # compressed files and files of bytes: a sitemap or a feed counts under any type
        return "feed" if root in ("rss", "feed") else "xml" if root in _SITEMAPS else kind
    if root in ("rss", "feed") or (root == "rdf" and kind in ("xml", "feed")):
        return "feed"
    if root in _SITEMAPS:
        return "feed" if kind == "feed" else "xml"
    if root == "html" and (kind == "xml" or (kind == "text" and detected in _HTML_TYPES)):
        return "html"
    return "feed" if root is None and (is_feed(payload) or is_json_feed(payload)) else kind


def header(headers: Headers, name: str) -> str | None:
    """Returns the first value of a header as the server sent it; ``name`` in lower case."""
    renamed = _REWRITTEN + name
    plain = None
    for key, value in headers:
        lowered = key.lower()
        if lowered == renamed:
            return value
        if plain is None and lowered == name:
            plain = value
    return plain


def header_values(headers: Headers, name: str) -> list[str]:
    """Returns every value of a header that may be repeated; ``name`` in lower case."""
    return [value for key, value in headers if key.lower() == name]


def headers_map(headers: Headers, status_line: str | None) -> dict[str, str]:
    """Returns values by lower-case name, the status line under ``response``. Repeated headers are joined with a comma,
    cookies with a line feed."""
    header_map: dict[str, str] = {}
    if status_line is not None:
        header_map["response"] = status_line
    restored = {key.lower().removeprefix(_REWRITTEN) for key, _ in headers if key.lower().startswith(_REWRITTEN)}
    for key, value in headers:
        name = key.lower()
        if name in restored:
            continue
        name = name.removeprefix(_REWRITTEN)
        glue = "\n" if name == "set-cookie" else ", "
        header_map[name] = header_map[name] + glue + value if name in header_map else value
    return header_map


def was_gzip(headers: Headers) -> bool:
    """Whether the body was sent gzipped."""
    coding = header(headers, "content-encoding")
    return coding is not None and "gzip" in coding.lower()


def original_length(headers: Headers) -> int | None:
    """Returns the Content-Length that the server sent, in bytes on the wire; ``None`` if it is missing or no number."""
    value = (header(headers, "content-length") or "").strip()
    return int(value) if value.isascii() and value.isdigit() and len(value) <= _MAX_LENGTH_DIGITS else None
