"""Whether bytes are a feed, whatever their label says."""

from __future__ import annotations

import re

#: The media types of JSON Feed.
JSON_FEED_TYPES = frozenset({"application/feed+json", "application/vnd.feed+json"})
#: How far into a document its root element, or the version of a JSON Feed, is looked for.
_HEAD_BYTES = 8192
#: A feed's root as its writer begins it, so that a page which merely speaks of feeds is none.
_ROOT = re.compile(
    rb"""<(?:[a-z0-9_.-]{1,20}:)?(?:rss\b[^<>]{0,4000}>\s{0,200}(?:<!--[^<>]{0,500}-->\s{0,200})?<(?:[a-z]{1,20}:)?channel\b"""
    rb"""|feed\b[^<>]{0,4000}(?:www\.w3\.org/2005/atom|purl\.org/atom/ns#)"""
    rb"""|rdf\b[^<>]{0,4000}(?:purl\.org/(?:rss/|net/rss)|my\.netscape\.com/rdf/simple/))""",
    re.IGNORECASE,
)
_PAGE = re.compile(rb"<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_JSON_FEED_VERSION = re.compile(rb""""version"\s*:\s*"https?:\\?/\\?/(?:www\.)?jsonfeed\.org\\?/version\\?/""")


def is_feed(payload: bytes) -> bool:
    """Whether a feed's root element stands within the first bytes, with junk before it but no page."""
    head = payload[:_HEAD_BYTES]
    found = _ROOT.search(head)
    return found is not None and _PAGE.search(head, 0, found.start()) is None


def is_json_feed(payload: bytes) -> bool:
    """Whether an object names the version of JSON Feed it is in, at its begin or its end."""
    if not payload[:200].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return False
    return any(_JSON_FEED_VERSION.search(part) for part in (payload[:_HEAD_BYTES], payload[-_HEAD_BYTES:]))
