"""Evaluates the ``Expect:`` lines of feedparser's test corpus against our reading of the feed, without eval.

Only what our schema has is looked at: an expression that names anything else is ``OutOfSchema``.
"""

from __future__ import annotations

import ast
import re
from datetime import datetime
from typing import Any

from selectolax.lexbor import LexborHTMLParser

from cc_pipeline.documents.dates import parse_date
from cc_pipeline.documents.feeds.model import Feed, FeedItem, FeedLink, Person

_EXPECT = re.compile(r"Expect:\s*(.*?)\s*(?:-->|\n)", re.DOTALL)


class OutOfSchema(Exception):
    """The expression asks for something the 2012 schema does not have."""


def expectation(data: bytes) -> str | None:
    """The expression in the first comment of a test file."""
    for charset in ("utf-8", "utf-16", "utf-32"):
        try:
            text = data[:6000].decode(charset, "ignore")
        except UnicodeError:
            continue
        if found := _EXPECT.search(text):
            return found.group(1)
    return None


def holds(expression: str, feed: Feed | None) -> bool:
    """Whether the expression is true of what we read. ``bozo`` is not ours: either answer is taken."""
    tree = ast.parse(expression.strip(), mode="eval").body
    return bool(_value(tree, feed))


def _value(node: ast.expr, feed: Feed | None) -> Any:
    if isinstance(node, ast.BoolOp):
        parts = [part for part in node.values if not _about_bozo(part)]
        values = [_value(part, feed) for part in parts]
        return all(values) if isinstance(node.op, ast.And) else any(values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        if _about_bozo(node):
            raise OutOfSchema("bozo")
        return not _value(node.operand, feed)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        if not isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In):
            raise OutOfSchema(ast.dump(node))
        left, right = _value(node.left, feed), _value(node.comparators[0], feed)
        if type(node.ops[0]) is ast.In:
            return left in right
        same = alike(left, right)
        return same if isinstance(node.ops[0], ast.Eq) else not same
    if isinstance(node, ast.Subscript | ast.Attribute):
        key = node.attr if isinstance(node, ast.Attribute) else _value(node.slice, feed)
        return _member(_value(node.value, feed), key)
    if isinstance(node, ast.Name):
        return _root(node.id, feed)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
        return len(_value(node.args[0], feed))
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise OutOfSchema(str(error)) from error


def _about_bozo(node: ast.expr) -> bool:
    return any(isinstance(each, ast.Name) and each.id in ("bozo", "bozo_exception") for each in ast.walk(node))


def alike(ours: Any, theirs: Any) -> bool:
    """Equal, where dates are compared as moments and markup as the tree it means (feedparser rewrites it)."""
    if isinstance(ours, datetime):
        moment = parse_date(theirs) if isinstance(theirs, str) else None
        return ours == moment if moment else ours.timetuple()[:6] == tuple(theirs)[:6]
    if isinstance(ours, FeedLink):
        return all(ours._asdict().get(key, theirs[key]) == theirs[key] for key in theirs)
    if isinstance(ours, str) and isinstance(theirs, str):
        return ours.strip() == theirs.strip() or _tree(ours) == _tree(theirs)
    return bool(ours == theirs)


def _tree(markup: str) -> str:
    root = LexborHTMLParser(" ".join(markup.split())).body
    inner = root.inner_html if root is not None else ""
    # feedparser drops the div that XHTML content must have
    return (inner or "").removeprefix("<div>").removesuffix("</div>").strip()


def _root(name: str, feed: Feed | None) -> Any:
    if feed is None:
        raise AssertionError("no feed read")
    if name == "feed":
        return feed
    if name == "entries":
        return feed.items
    raise OutOfSchema(name)


def _member(value: Any, key: Any) -> Any:
    if isinstance(value, list):
        return value[key]
    if isinstance(value, Feed):
        return _feed_member(value, key)
    if isinstance(value, FeedItem):
        return _item_member(value, key)
    if isinstance(value, Person | FeedLink | dict):
        fields = value if isinstance(value, dict) else value._asdict()
        key = {"href": "url"}.get(key, key) if isinstance(value, Person) else key
        if key not in fields:
            raise OutOfSchema(str(key))
        return fields[key]
    raise OutOfSchema(str(key))


def _shared(value: Feed | FeedItem, key: Any) -> Any:
    if key in ("title_detail", "tagline_detail", "subtitle_detail", "summary_detail"):
        text = value.title if key == "title_detail" else value.description
        return {"value": text and text.value}
    if key == "author_detail":
        return value.authors[0]
    if key == "author":
        first = value.authors[0]
        return f"{first.name} ({first.email})" if first.name and first.email else first.name or first.email
    if key == "authors":
        return value.authors
    if key in ("tags", "categories"):
        return [{"term": each} for each in value.categories]
    if key == "category":
        return value.categories[0]
    if key == "links":
        return value.links
    if key == "title":
        return value.title and value.title.value
    if key in ("published", "updated"):
        return getattr(value, key)
    if key in ("published_parsed", "issued_parsed", "created_parsed"):
        return value.published
    if key in ("updated_parsed", "modified_parsed"):
        return value.updated
    raise OutOfSchema(str(key))


def _feed_member(feed: Feed, key: Any) -> Any:
    if key in ("description", "subtitle", "tagline"):
        return feed.description and feed.description.value
    if key == "link":
        return next(link.href for link in feed.links if link.rel == "alternate")
    if key in ("generator", "language"):
        return getattr(feed, key)
    if key == "ttl":
        return None if feed.ttl is None else str(feed.ttl)
    return _shared(feed, key)


def _item_member(item: FeedItem, key: Any) -> Any:
    if key in ("description", "summary"):
        text = item.description or next(iter(item.contents), None)
        return text and text.value
    if key in ("id", "guid"):
        return item.guid
    if key in ("link", "comments"):
        return getattr(item, key)
    if key == "content":
        return [{"value": body.value} for body in item.contents]
    if key == "enclosures":
        return [link for link in item.links if link.rel == "enclosure"]
    return _shared(item, key)
