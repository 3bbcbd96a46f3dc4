"""A page's ``meta`` tags by key, however the key is spelt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

_MAX_SAME = 50


@lru_cache(maxsize=4096)
def plain(name: str) -> str:
    """``DC.date-issued`` and ``dc:date_issued`` as ``dcdateissued``."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


class Metas:
    """Contents by plain key, in the order of the page; ``graph`` of tags with ``property``, ``names`` of those with
    ``name`` or ``http-equiv``. Those with ``itemprop`` are microdata, which may speak of something else on the page."""

    def __init__(self, tags: Iterable[Mapping[str, Any]]) -> None:
        self.graph: dict[str, list[str]] = {}
        self.names: dict[str, list[str]] = {}
        for tag in tags:
            content = tag["content"]
            if not content or content.isspace():
                continue
            attributes = tag["attributes"]
            if several := attributes.get("property"):
                for key in several.split()[:4]:
                    _put(self.graph, key, content)
            for attribute in ("name", "http-equiv"):
                if key := attributes.get(attribute):
                    _put(self.names, key, content)


def _put(found: dict[str, list[str]], key: str, content: str) -> None:
    contents = found.setdefault(plain(key[:100]), [])
    if len(contents) < _MAX_SAME:
        contents.append(content)
