"""Compares our reading of a feed with the JSON that gofeed's own tests expect of it, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from cc_pipeline.documents.feeds.model import Content, Feed, FeedItem, Person
from cc_pipeline_tests.documents.feeds.feedparser_expect import alike

Pair = tuple[str, Any, Any]


def item_differences(feed: Feed, expected: dict[str, Any], kind: str) -> list[Pair]:
    """Differences between the items of a feed, in the fields our schema has. ``kind`` is the folder of the case."""
    items = expected.get("entries") if kind == "parser/atom" else expected.get("items")
    pairs: list[Pair] = [("count", len(feed.items), len(items or []))]
    fields = {"parser/atom": _atom, "parser/rss": _rss}.get(kind, _universal)
    for item, theirs in zip(feed.items, items or [], strict=False):
        pairs += fields(item, theirs)
    return [pair for pair in pairs if not _same(pair[1], pair[2])]


def feed_differences(feed: Feed, expected: dict[str, Any], kind: str) -> list[Pair]:
    """Differences of the feed itself."""
    link = next((each.href for each in feed.links if each.rel == "alternate"), None)
    pairs: list[Pair] = [("title", _value(feed.title), expected.get("title"))]
    if kind == "parser/atom":
        pairs += [("subtitle", _value(feed.description), expected.get("subtitle"))]
        pairs += [("updated", feed.updated, expected.get("updatedParsed"))]
        pairs += [("authors", _people(feed.authors), [author for author in expected.get("authors", []) if author])]
        pairs += [("generator", feed.generator, (expected.get("generator") or {}).get("value"))]
    else:
        pairs += [
            ("description", _value(feed.description), expected.get("description")),
            ("link", link, expected.get("link")),
        ]
        pairs += [("generator", feed.generator, expected.get("generator"))]
    return [pair for pair in pairs if not _same(pair[1], pair[2])]


def _same(ours: Any, theirs: Any) -> bool:
    if not ours and not theirs:
        return True
    theirs = _with_paths(theirs)
    if isinstance(ours, datetime) or (isinstance(ours, str) and isinstance(theirs, str)):
        return theirs is not None and alike(ours, theirs)
    return bool(ours == theirs)


def _with_paths(expected: Any) -> Any:
    """gofeed leaves addresses as written; a browser's have a path."""
    if isinstance(expected, str):
        bare = expected.startswith("http") and " " not in expected and urlsplit(expected).path == ""
        return f"{expected}/" if bare else expected
    if isinstance(expected, dict):
        return {key: _with_paths(value) for key, value in expected.items()}
    if isinstance(expected, list | tuple):
        return type(expected)(map(_with_paths, expected))
    return expected


def _people(people: list[Person]) -> list[dict[str, str]]:
    named = ({"name": each.name, "email": each.email, "uri": each.url} for each in people)
    return [{key: value for key, value in each.items() if value} for each in named if any(each.values())]


def _links(item: FeedItem) -> list[dict[str, str]]:
    return [{k: v for k, v in link._asdict().items() if v} for link in item.links if link.rel != "content"]


def _value(text: Content | None) -> str | None:
    return text and text.value


def _body(item: FeedItem) -> str | None:
    return item.contents[0].value if item.contents else None


def _enclosures(item: FeedItem, expected: dict[str, Any]) -> Pair:
    theirs = [(each.get("url"), each.get("type")) for each in expected.get("enclosures", [])]
    return "enclosures", [(link.href, link.type) for link in item.links if link.rel == "enclosure"], theirs


def _atom(item: FeedItem, expected: dict[str, Any]) -> Iterator[Pair]:
    categories = [each.get("label") or each.get("term") for each in expected.get("categories", [])]
    links = [
        {key: link[key] for key in ("href", "rel", "type", "title") if key in link}
        for link in expected.get("links", [])
        if "href" in link
    ]
    yield "title", _value(item.title), expected.get("title")
    yield "summary", _value(item.description), expected.get("summary")
    yield "id", item.guid, expected.get("id")
    yield "authors", _people(item.authors), expected.get("authors")
    yield "links", _links(item), links
    yield "categories", item.categories, [each for each in categories if each]
    yield "content", _body(item), (expected.get("content") or {}).get("value")


def _rss(item: FeedItem, expected: dict[str, Any]) -> Iterator[Pair]:
    subjects = (expected.get("dcExt") or {}).get("subject", [])
    yield "title", _value(item.title), expected.get("title")
    yield "description", _value(item.description), expected.get("description")
    if "link" in expected:
        yield "link", item.link, expected["link"]
    if "guid" in expected:
        yield "guid", item.guid, expected["guid"].get("value")
    yield "published", item.published, expected.get("pubDateParsed")
    yield "categories", item.categories, [each["value"] for each in expected.get("categories", [])] + subjects
    yield "comments", item.comments, expected.get("comments")
    yield "content", _body(item), expected.get("content") or (expected.get("custom") or {}).get("encoded")
    yield _enclosures(item, expected)


def _universal(item: FeedItem, expected: dict[str, Any]) -> Iterator[Pair]:
    yield "title", _value(item.title), expected.get("title")
    yield "description", _value(item.description), expected.get("description")
    yield "link", item.link, expected.get("link")
    yield "guid", item.guid, expected.get("guid")
    yield "published", item.published, expected.get("publishedParsed")
    yield "authors", _people(item.authors), expected.get("authors")
    yield "categories", item.categories, expected.get("categories")
    yield _enclosures(item, expected)
