"""How to parse: which extractors, which extras, and the bounds nothing may pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds per page. What is over a bound is cut and flagged, except ``depth``, which is a fault.

    ``payload_bytes`` parsed at most, ``depth`` of nested elements, ``links`` a page, ``attributes`` a tag,
    ``attribute_chars`` a value, ``text_chars`` of full text, ``feed_items`` a feed, ``seconds`` a page may
    take before its worker process is ended, ``memory_bytes`` the data a worker process may hold.
    """

    payload_bytes: int = 16 * 1024 * 1024
    depth: int = 10_000
    links: int = 20_000
    attributes: int = 256
    attribute_chars: int = 16 * 1024
    text_chars: int = 4 * 1024 * 1024
    feed_items: int = 10_000
    seconds: float = 60.0
    memory_bytes: int = 3 * 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ParseOptions:
    """``main_content`` chooses the extractor (``quality`` is slower and better), ``none`` switches it off.

    ``metadata_json`` fills the column of that name; ``compat="2012"`` writes it with the 2012 writer's bugs.
    """

    main_content: Literal["fast", "quality", "none"] = "fast"
    language: bool = True
    text_simhash: bool = True
    links: bool = True
    metadata_json: bool = False
    compat: Literal["2012"] | None = None
    limits: Limits = field(default_factory=Limits)
