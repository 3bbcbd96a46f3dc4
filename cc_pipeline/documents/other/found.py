"""What is found in a document that is neither a page nor a feed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cc_pipeline.documents.page import Link

TextType = Literal["html", "feed", "text", "json", "xml", "sitemap", "pdf"]


@dataclass(frozen=True, slots=True)
class Found:
    """``text`` has its white space collapsed; ``main_content`` keeps lines, and is ``None`` for what is no
    prose."""

    kind: TextType
    text: str
    main_content: str | None = None
    extractor: str | None = None
    title: str | None = None
    author: str | None = None
    links: tuple[Link, ...] = ()
    flags: set[str] = field(default_factory=set)
