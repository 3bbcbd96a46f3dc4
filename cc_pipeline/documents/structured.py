"""OpenGraph, JSON-LD, the canonical URL and the other things a page says about itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cc_pipeline.documents.html import HtmlDocument
from cc_pipeline.documents.options import Limits

_OPEN_GRAPH = ("og:", "article:", "book:", "profile:", "video:", "music:", "fb:", "product:")
#: A string; or what pages put around and between JSON that is none: the wrappings of scripts, comments of HTML and
#: JavaScript, and commas before a closing bracket.
_NOT_JSON = re.compile(
    r'("(?:\\.|[^"\\])*+")'
    r"|(?://\s*|/\*\s*)?(?:<!\[CDATA\[|\]\]>)(?:\s*\*/)?"
    r"|<!--[^{[]{0,500}?-->|<!--|-->|//[^\n]*|/\*.{0,500}?\*/"
    r"|,(?=(?:\s|//[^\n]*|/\*.{0,500}?\*/)*[}\]])|;\s*\Z",
    re.DOTALL,
)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_TYPES = 64


def meta_description(meta_tags: Iterable[Mapping[str, Any]]) -> str | None:
    """The content of the page's ``meta name=description``."""
    for tag in meta_tags:
        if (tag["attributes"].get("name") or "").strip().lower() == "description" and tag["content"]:
            return str(tag["content"])
    return None


def open_graph(meta_tags: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The OpenGraph properties of a page in order, repetitions kept."""
    found = []
    for tag in meta_tags:
        attributes = tag["attributes"]
        key = (attributes.get("property") or attributes.get("name") or "").strip()
        if key.lower().startswith(_OPEN_GRAPH) and tag["content"] is not None:
            found.append({"name": key, "value": tag["content"]})
    return found


class JsonLd(NamedTuple):
    """A page's JSON-LD: each script as compact JSON, every ``@type`` in them once, in order, and the values."""

    documents: list[str]
    types: list[str]
    values: list[Any]


def json_ld(scripts: Iterable[str], limits: Limits, flags: set[str]) -> JsonLd:
    """Reads the page's JSON-LD scripts; those that are no JSON are left out and flagged."""
    documents: list[str] = []
    values: list[Any] = []
    types: dict[str, None] = {}
    for script in scripts:
        text = script.strip()
        if not text:
            continue
        if len(text) > limits.text_chars:
            flags.add("text_cut")
            continue
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
        _collect_types(value, types)
    return JsonLd(documents, list(types), values)


def _loads(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except ValueError:
        return json.loads(_NOT_JSON.sub(lambda found: found.group(1) or "", text), strict=False)


def _storable(text: str) -> str:
    """JSON's escapes can name half a surrogate pair, which no UTF-8 has."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


def _collect_types(value: Any, types: dict[str, None]) -> None:
    waiting = [value]
    while waiting and len(types) < _MAX_TYPES:
        current = waiting.pop()
        if isinstance(current, dict):
            named = current.get("@type")
            for name in named if isinstance(named, list) else [named]:
                if isinstance(name, str):
                    types[_storable(name)] = None
            waiting.extend(reversed(list(current.values())))
        elif isinstance(current, list):
            waiting.extend(reversed(current))


def canonical_url(document: HtmlDocument) -> str | None:
    """The absolute URL of the page's ``link rel=canonical``."""
    for link in document.links:
        if link.type == "link" and link.rel and "canonical" in link.rel.lower().split():
            return link.url
    return None
