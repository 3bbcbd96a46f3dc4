"""The HTML part of a WAT record, and the leniency with which WAT's JSON must be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cc_pipeline.archive.record import Headers

Json = Mapping[str, "Json"] | list["Json"] | str | int | float | bool | None

_NOTHING: Final[Mapping[str, Json]] = {}


@dataclass(frozen=True, slots=True)
class WatLink:
    """A link as found: ``path`` is the element and attribute (``A@/href``), ``url`` as it stood in the page, not
    resolved; ``attributes`` are all members, those two included, in order."""

    path: str
    url: str
    attributes: Headers


@dataclass(frozen=True, slots=True)
class WatHtml:
    """Title, base, ``meta`` elements (their attributes in order), links of the head, scripts, links of the body."""

    title: str | None
    base: str | None
    metas: tuple[Headers, ...]
    head_links: tuple[WatLink, ...]
    scripts: tuple[WatLink, ...]
    links: tuple[WatLink, ...]


NO_HTML: Final = WatHtml(None, None, (), (), (), ())


def wat_html(html: Mapping[str, Json]) -> WatHtml:
    """Read an ``HTML-Metadata`` object; members of another shape than usual are passed over."""
    head = member(html, "Head")
    return WatHtml(
        title=text(head, "Title"),
        base=text(head, "Base"),
        metas=tuple(headers(meta) for meta in _objects(head, "Metas")),
        head_links=_links(head, "Link"),
        scripts=_links(head, "Scripts"),
        links=_links(html, "Links"),
    )


def _links(parent: Mapping[str, Json], name: str) -> tuple[WatLink, ...]:
    found = _objects(parent, name)
    return tuple(
        WatLink(text(one, "path") or "", text(one, "url") or text(one, "href") or "", headers(one)) for one in found
    )


def member(parent: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    """The object called ``name``, empty where there is none."""
    value = parent.get(name)
    return value if isinstance(value, dict) else _NOTHING


def text(parent: Mapping[str, Json], name: str) -> str | None:
    """The text called ``name``; numbers as their text, ``None`` for anything else."""
    value = parent.get(name)
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) else None


def number(parent: Mapping[str, Json], name: str) -> int | None:
    """The whole number called ``name``, written as a number or as a string of at most 18 digits."""
    value = parent.get(name)
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit() and len(value) < 19:
        return int(value)
    return None


def headers(fields: Mapping[str, Json]) -> Headers:
    """Name and value of each member in order; a list stands for a repeated header."""
    pairs: list[tuple[str, str]] = []
    for name, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str):
                pairs.append((name, one))
            elif isinstance(one, int | float):
                pairs.append((name, str(one)))
    return tuple(pairs)


def _objects(parent: Mapping[str, Json], name: str) -> list[Mapping[str, Json]]:
    value = parent.get(name)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
