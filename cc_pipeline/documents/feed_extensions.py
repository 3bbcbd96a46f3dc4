"""What RSS feeds say through others' namespaces (podcasts, media), and people as RSS writes them."""

from __future__ import annotations

import re

from cc_pipeline.documents.feed_model import Feed, FeedItem, Person
from cc_pipeline.documents.feed_xml import Element, local_name

_ITUNES_END = "podcast-1.0.dtd"
_MEDIA = "http://search.yahoo.com/mrss"

_EMAIL_NAME = re.compile(r"\s*([^\s()<>@]+@[^\s()<>]+)\s*\(([^()]*)\)\s*\Z")
_NAME_EMAIL = re.compile(r"\s*(.*?)\s*[<(]([^\s()<>@]+@[^\s()<>]+)[>)]\s*\Z")


def read_extension(into: Feed | FeedItem, element: Element, text: str | None) -> None:
    """Takes over what an extension element says where the format's own elements said nothing; categories add up."""
    namespace, name = local_name(element)
    if namespace.lower().endswith(_ITUNES_END):
        if name == "author" and text and not into.authors:
            into.authors.append(person(text))
        elif name in ("subtitle", "summary") and text:
            into.description = into.description or text
        elif name == "keywords" and text:
            _add(into, *(word.strip() for word in text.split(",")))
        elif name == "category":
            _add(into, *(each.get("text") for each in element.iter() if local_name(each)[1] == "category"))
    elif namespace.rstrip("/") == _MEDIA and name == "category":
        _add(into, text)


def _add(into: Feed | FeedItem, *categories: str | None) -> None:
    into.categories += [word for word in dict.fromkeys(categories) if word and word not in into.categories]


def person(text: str) -> Person:
    """``mail (name)``, ``name <mail>``, ``name (mail)``, a mail address or a name."""
    if found := _EMAIL_NAME.match(text):
        return Person(found.group(2).strip() or None, None, found.group(1))
    if found := _NAME_EMAIL.match(text):
        return Person(found.group(1) or None, None, found.group(2))
    if "@" in text and " " not in text:
        return Person(None, None, text)
    return Person(text)
