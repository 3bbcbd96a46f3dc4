"""The nodes of a page's JSON-LD that describe the page itself, the one about its article first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from cc_pipeline.documents.html.whitespace import collapsed

Node = dict[str, Any]

ARTICLE = re.compile(
    r"(?:Advertiser|News|AnalysisNews|AskPublicNews|BackgroundNews|OpinionNews|ReportageNews|ReviewNews|Satirical|"
    r"Scholarly|MedicalScholarly|SocialMedia|Tech)?(?:Article|BlogPosting|Posting|Report|LiveBlogPosting|APIReference)\Z"
)
#: Kinds whose dates and authors are not the page's.
_FOREIGN_KINDS = re.compile(
    r"(?:.*(?:Comment|Review|Rating|Organization|Person|Offer|Product|Image|ImageObject|List|ListItem|Breadcrumb|Action)"
    r"|WebSite|Answer|Blog|WPHeader|WPFooter|WPSideBar|SiteNavigationElement)\Z",
    re.DOTALL,
)
_NESTING_KEYS = ("@graph", "mainEntity", "mainEntityOfPage", "hasPart")
_MAX_NODES = 2_000


def kinds_of(node: Node, key: str = "@type") -> list[str]:
    """Returns the types of a node, without their vocabulary."""
    types = node.get(key)
    if types is None:
        return []
    return [
        kind.replace("#", "/").replace(":", "/").rpartition("/")[2]
        for kind in (types if isinstance(types, list) else [types])[:16]
        if isinstance(kind, str)
    ]


def is_article(kinds: Iterable[str]) -> bool:
    return any(ARTICLE.match(kind) for kind in kinds)


def is_foreign(kinds: Iterable[str]) -> bool:
    """Whether these types describe something other than the page: comments, products, navigation."""
    return any(_is_foreign_kind(kind[:100]) for kind in kinds)


@lru_cache(maxsize=1024)
def _is_foreign_kind(kind: str) -> bool:
    return _FOREIGN_KINDS.match(kind) is not None


class Nodes:
    """``about_page``: nodes with types that can be the page's, articles first; ``nodes_by_id``: nodes by their
    ``@id``."""

    def __init__(self, values: Iterable[Any]) -> None:
        articles: list[Node] = []
        other_nodes: list[Node] = []
        self.nodes_by_id: dict[str, Node] = {}
        for node in _walk(values):
            kinds = kinds_of(node)
            if isinstance(name := node.get("@id"), str) and len(node) > 1:
                self.nodes_by_id.setdefault(name, node)
            if is_article(kinds):
                articles.append(node)
            elif kinds and not is_foreign(kinds):
                other_nodes.append(node)
        self.article: Node = articles[0] if articles else {}
        self.about_page = articles[:1] + keep_unique_kinds(other_nodes, "@type")

    def dereference(self, value: Any) -> Any:
        """Returns the node that a reference names; any other value unchanged."""
        if isinstance(value, dict) and "name" not in value and isinstance(name := value.get("@id"), str):
            return self.nodes_by_id.get(name, value)
        return value


def keep_unique_kinds(nodes: list[Node], key: str) -> list[Node]:
    """Returns the nodes that are the only one of their kind: several of a kind are a list of other pages."""
    kinds = [tuple(kinds_of(node, key)[:1]) for node in nodes]
    counts: dict[tuple[str, ...], int] = {}
    for kind in kinds:
        counts[kind] = counts.get(kind, 0) + 1
    return [node for node, kind in zip(nodes, kinds, strict=True) if not kind or counts[kind] == 1]


def _walk(values: Iterable[Any]) -> Iterator[Node]:
    waiting = list(values)[:_MAX_NODES][::-1]
    for _ in range(_MAX_NODES):
        if not waiting:
            return
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(reversed(node[:_MAX_NODES]))
        elif isinstance(node, dict):
            yield node
            nested_nodes = [node[key] for key in _NESTING_KEYS if isinstance(node.get(key), (dict, list))]
            waiting.extend(reversed(nested_nodes))


def word(value: Any) -> str | None:
    """Returns a text with its white space collapsed; ``None`` for any other value."""
    return collapsed(value) or None if isinstance(value, str) else None
