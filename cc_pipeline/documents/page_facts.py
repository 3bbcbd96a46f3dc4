"""Title, description, site, author and date of a page, from whatever it says about itself best.

JSON-LD comes first, then the vocabularies made for it (Dublin Core, OpenGraph), then plain ``meta`` tags and the
title element; the order is the one Mozilla's Readability has, so that its expectations hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from cc_pipeline.documents.feed_dates import parse_date
from cc_pipeline.documents.whitespace import collapsed

_TITLE = (
    "dc:title",
    "dcterm:title",
    "dcterms:title",
    "og:title",
    "weibo:article:title",
    "parsely-title",
    "twitter:title",
)
_DESCRIPTION = ("dc:description", "dcterm:description", "dcterms:description", "og:description", "description")
_DESCRIPTION_LAST = ("weibo:article:description", "twitter:description")
_AUTHOR = ("dc:creator", "dcterm:creator", "dcterms:creator", "author", "parsely-author", "article:author")
_SITE = ("og:site_name", "application-name")
_PUBLISHED = ("article:published_time", "parsely-pub-date", "dc:date", "dcterms:created", "date", "pubdate")
_ARTICLE = re.compile(
    r"(?:Advertiser|News|AnalysisNews|AskPublicNews|BackgroundNews|OpinionNews|ReportageNews|ReviewNews|Satirical|"
    r"Scholarly|MedicalScholarly|SocialMedia|Tech)?(?:Article|BlogPosting|Posting|Report|LiveBlogPosting|APIReference)\Z"
)
_SEPARATED = re.compile(r"(.+?)\s+[|\-\u2013\u2014\\/>\u00bb]\s+([^|]*)\Z", re.DOTALL)
_MAX_NODES = 2_000


class PageFacts(NamedTuple):
    """What a page says about itself; ``None`` where it says nothing."""

    title: str | None
    description: str | None
    site_name: str | None
    author: str | None
    published: datetime | None


def page_facts(title: str | None, meta_tags: Iterable[Mapping[str, Any]], json_ld: Iterable[Any]) -> PageFacts:
    """Picks the facts. ``title`` is the title element's text, ``json_ld`` the values of the page's scripts."""
    meta = _index(meta_tags)
    article = _article(json_ld) or {}
    site = _first(meta, _SITE) or _name(article.get("publisher"))
    author = _name(article.get("author")) or _first(meta, _AUTHOR)
    return PageFacts(
        _word(article.get("headline")) or _word(article.get("name")) or _first(meta, _TITLE) or _own_title(title, site),
        _word(article.get("description")) or _first(meta, _DESCRIPTION) or _first(meta, _DESCRIPTION_LAST),
        site,
        None if author and author.startswith(("http://", "https://")) else author,
        parse_date(_word(article.get("datePublished")) or _first(meta, _PUBLISHED)),
    )


def _index(meta_tags: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Key to the first non-empty content, ``property`` before ``name``. A ``property`` may hold several keys;
    names may have dots for colons."""
    properties: dict[str, str] = {}
    names: dict[str, str] = {}
    for tag in meta_tags:
        content = tag["content"]
        if not content or content.isspace():
            continue
        attributes = tag["attributes"]
        if several := attributes.get("property"):
            for key in several.lower().split():
                properties.setdefault(key, content)
        if name := attributes.get("name"):
            names.setdefault(_key(name), content)
    return names | properties


@lru_cache(maxsize=1024)
def _key(name: str) -> str:
    return "".join(name.lower().split()).replace(".", ":")


def _first(meta: Mapping[str, str], keys: Iterable[str]) -> str | None:
    for key in keys:
        if key in meta and (found := _word(meta[key])):
            return found
    return None


def _word(value: Any) -> str | None:
    """Text with its white space tidied, ``None`` for anything else."""
    return collapsed(value) or None if isinstance(value, str) else None


def _name(value: Any) -> str | None:
    """The name of a person or organisation, or the names of several."""
    if isinstance(value, list):
        return ", ".join(name for each in value[:20] if (name := _name(each))) or None
    return _word(value.get("name")) if isinstance(value, dict) else _word(value)


def _article(values: Iterable[Any]) -> dict[str, Any] | None:
    """The first node of the JSON-LD that is an article of some kind."""
    waiting = list(values)
    for _ in range(_MAX_NODES):
        if not waiting:
            return None
        node = waiting.pop(0)
        if isinstance(node, list):
            waiting[:0] = node
        elif isinstance(node, dict):
            kinds = node.get("@type")
            named = kinds if isinstance(kinds, list) else [kinds]
            if any(isinstance(kind, str) and _ARTICLE.match(kind) for kind in named):
                return node
            if isinstance(graph := node.get("@graph"), list):
                waiting[:0] = graph
    return None


def _own_title(title: str | None, site: str | None) -> str | None:
    """The title element without the site's name behind a separator."""
    tidy = _word(title)
    found = _SEPARATED.match(tidy) if tidy else None
    if tidy is None or found is None:
        return tidy
    head, tail = found.group(1), found.group(2)
    if site and tail.lower() == site.lower():
        return head
    few = 3
    return head if len(head.split()) > few and len(tail.split()) <= few else tidy
