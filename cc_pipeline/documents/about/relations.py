"""The relations of a page to others: canonical URL, other languages, feeds, the page it forwards readers to.

From ``link`` elements, and from the ``Link`` and ``Refresh`` headers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from cc_pipeline.documents.headers import header_values
from cc_pipeline.documents.html.urls import Resolved, escape_header
from cc_pipeline.documents.page import Headers

_MAX_LANGUAGES = 1_000
_MAX_FEEDS = 100
_MAX_IN_HEADER = 200
_HEADER_CHARS = 64 * 1024
_FEED_TYPES = {
    "application/rss+xml": "rss",
    "application/atom+xml": "atom",
    "application/feed+json": "json",
    "application/rdf+xml": "rss",
    "text/rss+xml": "rss",
    "application/x.atom+xml": "atom",
}
_TARGET = re.compile(r"\s*<([^<>]*)>")
_PARAMETER = re.compile(r"""\s*;\s*([a-zA-Z*-]{1,40})\s*(?:=\s*(?:"((?:[^"\\]|\\.)*+)"|([^\s;,"]*)))?""")
_REFRESH = re.compile(
    r"\s*(\d{0,9}(?:\.\d{0,9})?)[\d.]*\s*(?:[;,\s]\s*(?:url\s*=\s*)?(.*))?\Z", re.DOTALL | re.IGNORECASE
)


#: The words of ``rel`` that are read.
RELATION_WORDS = frozenset({"canonical", "alternate", "feed"})
#: ``rel``, URL and attributes of a ``link`` element.
ElementLink = tuple[str, str, dict[str, str]]


class HeaderLink(NamedTuple):
    """One link of a ``Link`` header, its parameters in lower-case names."""

    url: str
    parameters: dict[str, str]


class Relations(NamedTuple):
    """The values of the columns; ``None`` if the page states nothing."""

    canonical_url: str | None
    canonical_from: str | None
    alternates: list[dict[str, str | None]] | None
    feed_links: list[dict[str, str | None]] | None


def header_links(headers: Headers) -> list[HeaderLink]:
    """Returns the links of all ``Link`` headers (RFC 8288); a header is read up to its first malformed link."""
    links: list[HeaderLink] = []
    for value in (header[:_HEADER_CHARS] for header in header_values(headers, "link")):
        position = 0
        while len(links) < _MAX_IN_HEADER and (target := _TARGET.match(value, position)):
            position = target.end()
            parameters: dict[str, str] = {}
            while parameter := _PARAMETER.match(value, position):
                name, quoted, bare = parameter.groups()
                parameters.setdefault(
                    name.lower(), re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else bare or ""
                )
                position = parameter.end()
            links.append(HeaderLink(escape_header(target.group(1).strip()), parameters))
            comma = value.find(",", position)
            if comma < 0:
                break
            position = comma + 1
    return links


def relations(links: Iterable[ElementLink], headers: Headers, resolve: Callable[[str], Resolved]) -> Relations:
    """Returns the page's relations. ``links`` are its elements, ``resolve`` makes a header's references absolute.
    Elements come before headers."""
    canonical: tuple[str, str] | None = None
    alternates: dict[tuple[str, str], str] = {}
    feeds: dict[str, dict[str, str | None]] = {}
    for source, rel, url, attributes in _all_links(links, headers, resolve):
        words = rel.lower().split()
        if canonical is None and "canonical" in words:
            canonical = url, source
        if "alternate" not in words and "feed" not in words:
            continue
        language = attributes.get("hreflang", "").strip().lower()
        kind = _FEED_TYPES.get(attributes.get("type", "").partition(";")[0].strip().lower())
        if kind or "feed" in words:
            if len(feeds) < _MAX_FEEDS:
                feeds.setdefault(
                    url, {"type": kind, "url": url, "title": attributes.get("title") or None, "source": source}
                )
        elif language and len(alternates) < _MAX_LANGUAGES:
            alternates.setdefault((language[:40], url), source)
    return Relations(
        canonical[0] if canonical else None,
        canonical[1] if canonical else None,
        [{"hreflang": name, "url": url, "source": source} for (name, url), source in alternates.items()] or None,
        list(feeds.values()) or None,
    )


def _all_links(
    links: Iterable[ElementLink], headers: Headers, resolve: Callable[[str], Resolved]
) -> Iterable[tuple[str, str, str, dict[str, str]]]:
    for link in links:
        yield "link", *link
    for header_link in header_links(headers):
        rel = header_link.parameters.get("rel")
        # a link with an anchor belongs to another page
        if rel and "anchor" not in header_link.parameters and (url := resolve(header_link.url)[0]):
            yield "header", rel, url, header_link.parameters


def refresh(
    contents: Sequence[str],
    headers: Headers,
    resolve: Callable[[str], Resolved],
    resolve_by_url: Callable[[str], Resolved],
) -> dict[str, Any] | None:
    """Returns seconds and URL of the first ``meta`` tag whose content can be read, else of the ``Refresh`` header.
    ``resolve`` makes the tag's reference absolute, ``resolve_by_url`` the header's. Without a URL, the page reloads
    itself."""
    sent = header_values(headers, "refresh")[:1]
    stated = [("meta", content, resolve) for content in contents] + [("header", text, resolve_by_url) for text in sent]
    for source, text, absolute in stated:
        match = _REFRESH.match(text[:_HEADER_CHARS]) if text else None
        if match is None or not match.group(1).strip("."):
            continue
        written = (match.group(2) or "").strip()
        if written[:1] in ("'", '"'):
            written = written[1:].partition(written[0])[0]
        url = absolute(written.strip())[0] if written.strip() else None
        return {"seconds": float(match.group(1)), "url": url, "source": source}
    return None
