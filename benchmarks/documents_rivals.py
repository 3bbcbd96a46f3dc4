"""What others would use for the same work; each is optional."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import urljoin, urlsplit

from publicsuffixlist import PublicSuffixList
from resiliparse.extract.html2text import extract_plain_text

from cc_pipeline.documents.page import PageInput

_LINKS = {"a": "href", "area": "href", "frame": "src", "iframe": "src", "script": "src", "link": "href", "img": "src"}


def bs4_page(page: PageInput) -> tuple[Any, ...]:
    """What ``parse_page`` gives for metadata, links and text, by BeautifulSoup: the payload's digest, title, meta tags,
    OpenGraph, JSON-LD and canonical URL, links with all attributes, text, absolute URL, host and registered domain,
    and the full text."""
    soup = importlib.import_module("bs4").BeautifulSoup(page.payload, "lxml", from_encoding="utf-8")
    digest = hashlib.md5(page.payload, usedforsecurity=False).hexdigest()
    title = soup.title.get_text() if soup.title else None
    tags = [dict(tag.attrs) for tag in soup.find_all("meta")]
    graph = {tag["property"]: tag.get("content") for tag in tags if tag.get("property", "").startswith("og:")}
    documents = [_json(tag.get_text()) for tag in soup.find_all("script", type="application/ld+json")]
    canonical = soup.find("link", rel="canonical")
    links = []
    domains: dict[str | None, str | None] = {None: None}
    for tag in soup.find_all(list(_LINKS)):
        href = tag.get(_LINKS[tag.name])
        if href and not href.startswith("#"):
            try:
                url = urljoin(page.url, href)
                host = urlsplit(url).hostname
            except ValueError:
                url = host = None
            if host not in domains:
                domains[host] = _suffixes().privatesuffix(host)
            links.append((tag.name, href, url, host, domains[host], tag.get_text(" ", strip=True), dict(tag.attrs)))
    for tag in soup(["script", "style", "noscript"]):
        tag.decompose()
    return digest, title, tags, graph, documents, canonical, links, soup.get_text(" ", strip=True)


@lru_cache(maxsize=1)
def _suffixes() -> PublicSuffixList:
    return PublicSuffixList()


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def feedparser_feed(data: bytes) -> object:
    """A feed by feedparser."""
    return importlib.import_module("feedparser").parse(data)


def resiliparse_main(markup: str) -> str:
    """Main content by resiliparse alone."""
    return extract_plain_text(markup, main_content=True, alt_texts=False, comments=False, post_meta=False)


def charset_rivals() -> dict[str, Callable[[bytes], str | None]]:
    """Detectors that are installed, as decoders."""

    def resiliparse(data: bytes) -> str | None:
        detect = importlib.import_module("resiliparse.parse.encoding").detect_encoding
        return _decoded(data, detect(data, html5_compatible=False, max_len=len(data)))

    def chardet(data: bytes) -> str | None:
        return _decoded(data, importlib.import_module("chardet").detect(data)["encoding"])

    def cchardet(data: bytes) -> str | None:
        return _decoded(data, importlib.import_module("cchardet").detect(data)["encoding"])

    def charset_normalizer(data: bytes) -> str | None:
        best = importlib.import_module("charset_normalizer").from_bytes(data).best()
        return _decoded(data, best.encoding if best else None)

    found: dict[str, Callable[[bytes], str | None]] = {}
    for module, decoder in (
        ("resiliparse", resiliparse),
        ("chardet", chardet),
        ("cchardet", cchardet),
        ("charset_normalizer", charset_normalizer),
    ):
        try:
            importlib.import_module(module)
        except ImportError:
            continue
        found[module] = decoder
    return found


def _decoded(data: bytes, name: str | None) -> str | None:
    try:
        return data.decode(name, "replace") if name else None
    except (LookupError, UnicodeError):
        return None
