"""Media types: what a header says, and which parser that means."""

from __future__ import annotations

import re
from typing import Literal

Kind = Literal["html", "feed", "xml", "text", "other"]

#: What the 2012 crawler wrote where no type was given.
DEFAULT_MIME = "text/html"

_TYPE = re.compile(r"[^a-z0-9]*([a-z0-9/.+-]+)", re.IGNORECASE)
_CHARSET = re.compile(r"""charset\s*=\s*["']?\s*([^\s"';,]+)""", re.IGNORECASE)
_SUBTYPE = re.compile(r"[.+-]*(?:x-|vnd\.)*([^+]*)\+*([a-z]*)")

_BINARY = ("binary", "octet", "file", "image", "audio", "video", "font", "true-type", "x-epoc", "chemical", "plugin")
_TEXTUAL = ("text", "plain", "message", "multipart")
_TEXT_SUBTYPES = frozenset({"txt", "text", "plain", "csv", "json", "vcard", "javascript", "ecmascript"})
_ROOT = re.compile(rb"<(?:[a-z0-9_.-]{1,20}:)?(rss|feed|rdf|channel|html)\b", re.IGNORECASE)
_SPACE = re.compile(rb"\s*")
#: What may stand before the root element: how it starts and how it ends.
_PROLOGUE = ((b"<?", b"?>"), (b"<!--", b"-->"), (b"<!", b">"))
_PROLOGUE_BYTES = 8192


def split_content_type(value: str | None) -> tuple[str | None, str | None]:
    """A Content-Type value as (media type in lower case, charset label); ``None`` for what is not there."""
    if not value:
        return None, None
    kind = _TYPE.match(value)
    label = _CHARSET.search(value)
    return (kind.group(1).lower() if kind else None), (label.group(1) if label else None)


def kind_of(mime: str) -> Kind:
    """Which family a media type belongs to, as the 2012 filter sorted them (PDF and Office types excepted:
    it took their bytes for text)."""
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
    """The root element a document starts with (``rss``, ``feed``, ``rdf``, ``channel``, ``html``), if it shows
    within the first bytes."""
    at = 3 if payload.startswith(b"\xef\xbb\xbf") else 0
    while at < _PROLOGUE_BYTES:
        space = _SPACE.match(payload, at)
        at = space.end() if space else at
        for start, end in _PROLOGUE:
            if payload.startswith(start, at):
                after = payload.find(end, at + len(start), at + _PROLOGUE_BYTES)
                break
        else:
            found = _ROOT.match(payload, at)
            return found.group(1).decode("ascii").lower() if found else None
        if after < 0:
            return None
        at = after + len(end)
    return None


def choose_kind(mime: str | None, detected: str | None, payload: bytes) -> Kind:
    """The parser for a page: the header's word, unless it is missing or says nothing, then the index's.

    A feed labelled as HTML or plain text is known by its root element.
    """
    kind = kind_of(mime) if mime else "html"
    if detected and (
        mime is None or (kind == "other" and "octet" in mime) or (kind == "text" and mime == "text/plain")
    ):
        kind = kind_of(detected)
    if kind in ("html", "text", "xml", "feed"):
        root = root_element(payload)
        if root in ("rss", "feed") or (root == "rdf" and kind in ("xml", "feed")):
            return "feed"
        if root == "html" and kind in ("xml", "text"):
            return "html" if kind == "xml" or detected in ("text/html", "application/xhtml+xml") else kind
    return kind
