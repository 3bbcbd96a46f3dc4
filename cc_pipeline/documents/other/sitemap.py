"""Sitemaps (sitemaps.org 0.9): their entries as links."""

from __future__ import annotations

from cc_pipeline.documents.feeds.xml import Element, local_name
from cc_pipeline.documents.html.urls import domain_of, resolver
from cc_pipeline.documents.page import Limits, Link

_ENTRIES = {"urlset": "url", "sitemapindex": "sitemap"}
#: Elements inside of extensions (images, videos, news) that hold an address, and the link's type.
_ADDRESSES = {"loc": "image", "content_loc": "video", "player_loc": "video", "thumbnail_loc": "image"}
_FACTS = frozenset({"lastmod", "changefreq", "priority"})


def is_sitemap(root: Element) -> bool:
    """Whether a document is a sitemap or an index of some, in whatever namespace."""
    return local_name(root)[1] in _ENTRIES


def entries(root: Element, url: str, limits: Limits, flags: set[str]) -> tuple[Link, ...]:
    """A link for each entry: type ``url``, or ``sitemap`` in an index, with ``lastmod``, ``changefreq`` and
    ``priority`` as attributes; behind it its alternatives in other languages (``link``, with their attributes), images
    and videos. ``item_index`` is the place of the entry."""
    wanted = _ENTRIES[local_name(root)[1]]
    resolve = resolver(url)
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

    for place, entry in enumerate(each for each in root if local_name(each)[1] == wanted):
        if "links_cut" in flags:
            break
        location, facts, others = None, {}, []
        for child in entry:
            name, text = local_name(child)[1], (child.text or "").strip()
            if name == "loc":
                location = location or text
            elif name in _FACTS:
                facts[name] = text
            else:
                others.append(child)
        add(wanted, location, facts, place)
        for other in others:
            if local_name(other)[1] == "link":
                attributes = {str(name): str(value) for name, value in other.attrib.items() if name != "href"}
                add("link", other.get("href"), attributes, place)
                continue
            for inner in other:
                if kind := _ADDRESSES.get(local_name(inner)[1]):
                    add(kind, (inner.text or "").strip(), {}, place)
    return tuple(links)
