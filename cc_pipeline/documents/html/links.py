"""The links of a page: rows of its marks, with the addresses that a browser would open."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from cc_pipeline import compiled
from cc_pipeline.documents.html.marks import Mark, RawLink, WalkedPage
from cc_pipeline.documents.html.tags import IS_FOREIGN, IS_UNSEEN, LINK_KEYS, SRCSETS, SVG_LINK_KEYS
from cc_pipeline.documents.html.urls import Resolved, browser_resolver, domain_of, shown_host
from cc_pipeline.documents.html.walk import COMPILED
from cc_pipeline.documents.page import Limits, Link

#: The maximum length of a base element's URL; each link of a page can be as long again.
_BASE_CHARS = 2_048

#: An address in a srcset, with the commas around it.
_CANDIDATE = re.compile(r"[\s,]*+(\S++)")
#: The descriptors after an address, up to the next comma; commas in brackets do not count (HTML, 4.8.4.2.2).
_DESCRIPTORS = re.compile(r"(?:[^,(]++|\([^)]*+\)?)*+")
_MAX_CANDIDATES = 64
#: A scheme and a host in lower case, before a path.
_ROOT = re.compile(r"https?://[a-z0-9.-]+(?=/)")
#: Absolute URL, host, domain, and host as browsers show it.
Place = tuple[str | None, str | None, str | None, str | None]
#: The resolved roots of linked sites: pages of a site link to the same ones.
_ROOTS: dict[str, Place] = {}
_MAX_ROOTS = 65_536


class PageLinks(NamedTuple):
    """The links, whether there are more than the limit, and whether one has more text than the limit."""

    links: list[Link]
    links_cut: bool
    text_cut: bool


def base_resolver(bases: list[Mark], url: str, charset: str) -> tuple[Callable[[str], Resolved], bool]:
    """Returns the resolver of a page's references, and whether its ``base`` can be used: the first with an address
    counts."""
    resolve = browser_resolver(url, charset)
    written = next((mark.attributes["href"] for mark in bases if "href" in mark.attributes), "")
    if not written:
        return resolve, True
    base, host = resolve(written) if len(written) <= _BASE_CHARS else (None, None)
    return (browser_resolver(base, charset), True) if base and host else (resolve, False)


def page_links(
    page: WalkedPage, resolve: Callable[[str], Resolved], limits: Limits, item_index: int | None
) -> PageLinks:
    """Returns the links of a page, in document order."""
    places: dict[str, Place] = {}

    def place(href: str) -> Place:
        absolute, host = resolve(href)
        domain, display_host = (domain_of(host), shown_host(host)) if host else (None, None)
        places[href] = resolved = absolute, host, domain, display_host
        if absolute == href and (root := _ROOT.match(href)):
            if len(_ROOTS) >= _MAX_ROOTS:
                _ROOTS.clear()
            _ROOTS[root[0]] = resolved
        return resolved

    bounds = (limits.links, limits.attribute_chars, limits.text_chars)
    if not COMPILED:
        return links_plainly(page.links, page.text, page.unseen, places, place, _split_srcset, item_index, *bounds)
    top, host, domain, display_host = place("/")
    page_root = (top.removesuffix("/"), host, domain, display_host) if top and _ROOT.match(top) else None
    texts = page.text, page.unseen
    return PageLinks(*_links(page.links, *texts, places, place, page_root, _ROOTS, _split_srcset, item_index, *bounds))


def relation_links(
    marks: list[Mark], resolve: Callable[[str], Resolved], words: frozenset[str]
) -> list[tuple[str, str, dict[str, str]]]:
    """Returns ``rel``, URL and attributes of those ``link`` elements that have one of the words in ``rel``."""
    links = []
    for mark in marks:
        rel, href = mark.attributes.get("rel", ""), mark.attributes.get("href", "#")
        if href[:1] not in ("", "#") and not words.isdisjoint(rel.lower().split()):
            url = resolve(href)[0]
            if url is not None:
                links.append((rel, url, mark.attributes))
    return links


def links_plainly(
    raw: list[RawLink],
    text: str,
    unseen: str,
    places: dict[str, Place],
    place: Callable[[str], Place],
    split_srcset: Callable[[str, int], list[str]],
    item_index: int | None,
    max_links: int,
    bound: int,
    room: int,
) -> PageLinks:
    """Makes rows of links in Python. ``places`` has the resolved references, ``place`` resolves another one. A text has
    at most ``bound`` characters, all have about ``room``."""
    links: list[Link] = []
    text_cut = False
    for tag, attributes, start, end, state in raw:
        for key in (SVG_LINK_KEYS if state & IS_FOREIGN else LINK_KEYS)[tag]:
            href = attributes.get(key)
            if href is None:
                continue
            if key in SRCSETS:
                for image in split_srcset(href, max_links - len(links)):
                    url, host, domain, display_host = places.get(image) or place(image)
                    links.append(Link(tag, image, url, "", None, {}, host, domain, item_index, key, display_host))
                continue
            if not href or href[0] == "#":
                continue
            if len(links) >= max_links:
                return PageLinks(links, True, text_cut)
            # links can nest through other elements, and each has the text of all elements inside it
            length = end - start if tag == "a" else 0
            taken = 0 if room < 0 else min(length, bound)
            text_cut |= taken < length
            room -= length
            others = {name: value for name, value in attributes.items() if name != key}
            url, host, domain, display_host = places.get(href) or place(href)
            label = (unseen if state & IS_UNSEEN else text)[start : start + taken]
            row = (tag, href, url, label, others.get("rel"), others, host, domain, item_index, key, display_host)
            links.append(Link(*row))
            if state & IS_FOREIGN:
                break  # its old name does not count beside the new one
    return PageLinks(links, False, text_cut)


def _split_srcset(value: str, max_urls: int) -> list[str]:
    """Returns the image addresses of a srcset: descriptors follow each, up to a comma. Addresses may have commas."""
    urls: list[str] = []
    position = 0
    for _ in range(_MAX_CANDIDATES):
        candidate = _CANDIDATE.match(value, position)
        if candidate is None or len(urls) >= max_urls:
            break
        href = candidate.group(1)
        position = candidate.end()
        if href[-1] == ",":
            href = href.rstrip(",")
        elif descriptors := _DESCRIPTORS.match(value, position):
            position = descriptors.end()
        if href:
            urls.append(href)
    return urls


_links = compiled("documents.html._walk", "links")
