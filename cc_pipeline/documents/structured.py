"""OpenGraph, JSON-LD, the canonical URL and the other things a page says about itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from cc_pipeline.documents.html import HtmlDocument
from cc_pipeline.documents.options import Limits

_OPEN_GRAPH = ("og:", "article:", "book:", "profile:", "video:", "music:", "fb:", "product:")
_WRAPPING = re.compile(r"\A\s*(?:<!--|//\s*<!\[CDATA\[|<!\[CDATA\[)|(?:-->|//\s*\]\]>|\]\]>)\s*;?\s*\Z")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_TYPES = 64


def open_graph(meta_tags: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The OpenGraph properties of a page in order, repetitions kept."""
    found = []
    for tag in meta_tags:
        attributes = tag["attributes"]
        key = (attributes.get("property") or attributes.get("name") or "").strip()
        if key.lower().startswith(_OPEN_GRAPH) and tag["content"] is not None:
            found.append({"name": key, "value": tag["content"]})
    return found


def json_ld(scripts: Iterable[str], limits: Limits, flags: set[str]) -> tuple[list[str], list[str]]:
    """The page's JSON-LD documents as compact JSON, and every ``@type`` in them once, in order."""
    documents: list[str] = []
    types: dict[str, None] = {}
    for script in scripts:
        text = _WRAPPING.sub("", script).strip()
        if not text:
            continue
        if len(text) > limits.text_chars:
            flags.add("text_cut")
            continue
        try:
            value = json.loads(text, strict=False)
            compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        except (ValueError, RecursionError):
            flags.add("json_ld_invalid")
            continue
        documents.append(_LONE_SURROGATE.sub("\ufffd", compact))
        _collect_types(value, types)
    return documents, list(types)


def _collect_types(value: Any, types: dict[str, None]) -> None:
    waiting = [value]
    while waiting and len(types) < _MAX_TYPES:
        current = waiting.pop()
        if isinstance(current, dict):
            named = current.get("@type")
            for name in named if isinstance(named, list) else [named]:
                if isinstance(name, str):
                    types[_LONE_SURROGATE.sub("\ufffd", name)] = None
            waiting.extend(reversed(list(current.values())))
        elif isinstance(current, list):
            waiting.extend(reversed(current))


def canonical_url(document: HtmlDocument) -> str | None:
    """The absolute URL of the page's ``link rel=canonical``."""
    for link in document.links:
        if link.type == "link" and link.rel and "canonical" in link.rel.lower().split():
            return link.url
    return None
