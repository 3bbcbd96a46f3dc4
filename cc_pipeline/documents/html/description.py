"""Title, description and site of a page: from OpenGraph, JSON-LD and plain tags, the best source first."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

from cc_pipeline.documents.about.nodes import Nodes, plain_text, text_of
from cc_pipeline.documents.about.statements import Metas
from cc_pipeline.documents.page import Limits

#: Characters that may begin something that is no JSON, or that decide whether a comma stays.
_NEXT = re.compile(r'["/<,;\-\]}]')
#: A string; an unfinished one extends to the end. No start is read twice, so time grows only with the length.
_JSON_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_CDATA = re.compile(r"(?://\s*|/\*\s*)?(?:<!\[CDATA\[|\]\]>)(?:\s*\*/)?")
#: A semicolon that only the end of a wrapping follows.
_TO_THE_END = re.compile(r";(?=\s*(?:(?://\s*|/\*\s*)?(?:\]\]>|-->)[\s*/]*)?\Z)")
_LINE = re.compile(r"[^\n]*")
#: Characters of an HTML comment before JSON.
_COMMENT_CHARS = 500

_OPEN_GRAPH = ("og:", "article:", "book:", "profile:", "video:", "music:", "fb:", "product:")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_DECODER = json.JSONDecoder(strict=False)
_MAX_TYPES = 64
#: Objects and lists in a page's scripts: in memory, empty ones take fifty times their text.
_MAX_VALUES = 200_000

#: Plain keys of ``meta`` tags (``Metas``), the most certain first.
_TITLE = "dctitle dctermtitle dctermstitle ogtitle weiboarticletitle parselytitle twittertitle".split()
_DESCRIPTION = """
dcdescription dctermdescription dctermsdescription ogdescription description weiboarticledescription twitterdescription
""".split()
_SITE = ("ogsitename",)
_TITLE_CHARS = 1_000
_SEPARATED = re.compile(r"(.+?)\s+[|\-\u2013\u2014\\/>\u00bb]\s+([^|]*)\Z", re.DOTALL)


def repaired(text: str) -> str:
    """Returns ``text`` without the wrappings of scripts, comments of HTML and JavaScript, a semicolon or comma at the
    end, and commas before a closing bracket. Strings stay unchanged. Takes time in proportion to the text."""
    parts: list[str] = []
    comma = False  # a comma was read; the next sign decides whether it stays
    has_open_comment = False  # a comment began that has no end
    position = copied = 0
    while sign_match := _NEXT.search(text, position):
        start = sign_match.start()
        sign = text[start]
        stop = start
        if sign == '"':
            literal = _JSON_STRING.match(text, start)
            position = literal.end() if literal else len(text)
        elif sign == ",":
            stop = start + 1
        elif sign in "/<]" and (cdata := _CDATA.match(text, start)):
            stop = cdata.end()
        elif sign == "/" and text.startswith("//", start):
            line = _LINE.match(text, start)
            stop = line.end() if line else len(text)
        elif sign == "/" and text.startswith("/*", start) and not has_open_comment:
            end = text.find("*/", start + 2)
            has_open_comment = end < 0
            stop = start if has_open_comment else end + 2
        elif sign == "<" and text.startswith("<!--", start):
            end = text.find("-->", start + 4, start + 4 + _COMMENT_CHARS + 3)
            inside = text[start + 4 : end] if end >= 0 else "{"
            stop = start + 4 if "{" in inside or "[" in inside else end + 3
        elif sign == "-" and text.startswith("-->", start):
            stop = start + 3
        elif sign == ";" and (tail := _TO_THE_END.match(text, start)):
            stop = tail.end()
        passage = text[copied:start]
        if comma and passage and not passage.isspace():
            parts.append(",")
            comma = False
        parts.append(passage)
        if stop > start:
            if sign == ",":
                if comma:
                    parts.append(",")
                comma = True
            position = copied = stop
            continue
        if comma and sign not in "]}":
            parts.append(",")
        comma = False
        copied = start
        if sign != '"':
            position = start + 1
    if comma and not (copied >= len(text) or text[copied:].isspace()):
        parts.append(",")
    parts.append(text[copied:])
    return "".join(parts)


def meta_description(meta_tags: Iterable[Mapping[str, Any]]) -> str | None:
    """Returns the content of the page's ``meta name=description``."""
    for tag in meta_tags:
        if (tag["attributes"].get("name") or "").strip().lower() == "description" and tag["content"]:
            return str(tag["content"])
    return None


def open_graph(meta_tags: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Returns the OpenGraph properties of a page in order, with repetitions."""
    properties = []
    for tag in meta_tags:
        attributes = tag["attributes"]
        key = (attributes.get("property") or attributes.get("name") or "").strip()
        if key.lower().startswith(_OPEN_GRAPH) and tag["content"] is not None:
            properties.append({"name": key, "value": tag["content"]})
    return properties


class JsonLd(NamedTuple):
    """A page's JSON-LD: each script as compact JSON, its distinct ``@type`` names in order, and its value."""

    documents: list[str]
    types: list[list[str]]
    values: list[Any]

    def all_types(self) -> list[str]:
        """Returns the distinct names of all scripts."""
        return list(dict.fromkeys(chain.from_iterable(self.types)))[:_MAX_TYPES]


def json_ld(scripts: Iterable[str], limits: Limits, flags: set[str]) -> JsonLd:
    """Reads the page's JSON-LD scripts; invalid scripts are left out and flagged."""
    documents: list[str] = []
    values: list[Any] = []
    room = _MAX_VALUES
    for script in scripts:
        text = script.strip()
        if not text:
            continue
        if len(text) > limits.text_chars:
            flags.add("text_cut")
            continue
        value_count = text.count("{") + text.count("[")
        if value_count > room:
            flags.add("facts_cut")
            continue
        room -= value_count
        try:
            value = _loads(text)
            if not isinstance(value, (dict, list)):
                continue
            compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        except (ValueError, RecursionError):
            flags.add("json_ld_invalid")
            continue
        documents.append(_storable(compact))
        values.append(value)
    return JsonLd(documents, [_types_of(value) for value in values], values)


def _loads(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except ValueError:
        return _DECODER.decode(repaired(text))


def _storable(text: str) -> str:
    """Replaces half surrogate pairs, which JSON's escapes can name and UTF-8 cannot encode."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


def _types_of(value: Any) -> list[str]:
    """Returns the distinct ``@type`` names in a JSON-LD value, in order, at most ``_MAX_TYPES``."""
    types: dict[str, None] = {}
    waiting = [value]
    while waiting and len(types) < _MAX_TYPES:
        current = waiting.pop()
        if isinstance(current, dict):
            type_names = current.get("@type")
            for name in type_names if isinstance(type_names, list) else [type_names]:
                if isinstance(name, str):
                    types[_storable(name)] = None
            waiting += [value for value in reversed(current.values()) if isinstance(value, (dict, list))]
        elif isinstance(current, list):
            waiting += [value for value in reversed(current) if isinstance(value, (dict, list))]
    return list(types)


class PageFacts(NamedTuple):
    """A page's description of itself; ``None`` for a missing fact."""

    title: str | None
    description: str | None
    site_name: str | None


def page_facts(title: str | None, metas: Metas, nodes: Nodes) -> PageFacts:
    """Chooses the facts. ``title`` is the title element's text."""
    article = nodes.article
    site = metas.first_text(_SITE) or ", ".join(nodes.names(article.get("publisher"))) or None
    return PageFacts(
        text_of(article.get("headline"))
        or text_of(article.get("name"))
        or metas.first_text(_TITLE)
        or _own_title(plain_text(title), site),
        text_of(article.get("description")) or metas.first_text(_DESCRIPTION),
        site,
    )


def _own_title(title: str | None, site: str | None) -> str | None:
    """Returns the title element without the site's name after a separator."""
    # an unclosed title is the rest of the page, and each of its separators is tried with all text after it
    match = _SEPARATED.match(title) if title and len(title) <= _TITLE_CHARS else None
    if title is None or match is None:
        return title
    head, tail = match.group(1), match.group(2)
    if site and tail.lower() == site.lower():
        return head
    few_words = 3
    return head if len(head.split()) > few_words and len(tail.split()) <= few_words else title
