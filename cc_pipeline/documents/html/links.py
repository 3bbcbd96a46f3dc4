"""What the links of a page are made with: the addresses that a browser would open."""

from __future__ import annotations

import re
from collections.abc import Callable

from cc_pipeline.documents.html.marks import Linking, Mark, Place
from cc_pipeline.documents.html.urls import Resolved, browser_resolver, domain_of, shown_host

#: The maximum length of a base element's URL; each link of a page can be as long again.
_BASE_CHARS = 2_048

#: An address in a srcset, with the commas around it.
_CANDIDATE = re.compile(r"[\s,]*+(\S++)")
#: The descriptors after an address, up to the next comma; commas in brackets do not count (HTML, 4.8.4.2.2).
_DESCRIPTORS = re.compile(r"(?:[^,(]++|\([^)]*+\)?)*+")
_MAX_CANDIDATES = 64
#: A scheme and a host in lower case, before a path.
_ROOT = re.compile(r"https?://[a-z0-9.-]+(?=/)")
#: The resolved roots of linked sites: pages of a site link to the same ones.
_ROOTS: dict[str, Place] = {}
_MAX_ROOTS = 65_536


def base_resolver(facts: list[Mark], url: str, charset: str) -> tuple[Callable[[str], Resolved], bool]:
    """Returns the resolver of a page's references, and whether its ``base`` can be used: the first with an address
    counts."""
    resolve = browser_resolver(url, charset)
    hrefs = (mark.attributes["href"] for mark in facts if mark.tag == "base" and "href" in mark.attributes)
    written = next(hrefs, "")
    if not written:
        return resolve, True
    base, host = resolve(written) if len(written) <= _BASE_CHARS else (None, None)
    return (browser_resolver(base, charset), True) if base and host else (resolve, False)


def linking(resolve: Callable[[str], Resolved], item_index: int | None) -> Linking:
    """Returns what the links of a page are made with; ``resolve`` makes its references absolute."""
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

    top, host, domain, display_host = place("/")
    page_root = (top.removesuffix("/"), host, domain, display_host) if top and _ROOT.match(top) else None
    return Linking(places, place, page_root, _ROOTS, split_srcset, item_index)


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


def split_srcset(value: str, max_urls: int) -> list[str]:
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
