"""Looking targets up with what a workspace has: its catalog, its source, indexes built in its home."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
from cc_pipeline.commoncrawl.filters import Filters
from cc_pipeline.commoncrawl.targets import Target
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.locate import IndexSources, locate, price
from cc_pipeline.extraction.url_index_files import ABOUT, index_folder
from cc_pipeline.extraction.workspace import Workspace
from cc_pipeline.index.locator import LookupPrice, LookupResult
from cc_pipeline.lake.digests import input_digest


@contextmanager
def index_sources(workspace: Workspace) -> Iterator[IndexSources]:
    """The indexes of a workspace, while the block runs."""
    settings = workspace.settings
    with workspace.transport() as transport:
        yield IndexSources(
            transport,
            catalog=settings.catalog_path,
            url_indexes=settings.home / "url-index",
            footers=settings.footers_path,
            cache=settings.cache_path / "page-indexes",
        )


def look_up(
    workspace: Workspace,
    crawl: str,
    targets: Sequence[Target],
    *,
    via: str | None = None,
    filters: Filters | None = None,
) -> LookupResult:
    """The captures of ``targets`` in ``crawl`` and the settings' subsets, complete or an error."""
    settings = workspace.settings
    with index_sources(workspace) as sources:
        return locate(crawl, settings.subsets, targets, sources, via=via or settings.via, filters=filters)


def price_up(workspace: Workspace, crawl: str, targets: Sequence[Target], *, via: str | None = None) -> LookupPrice:
    """What :func:`look_up` would read."""
    settings = workspace.settings
    with index_sources(workspace) as sources:
        return price(crawl, settings.subsets, targets, sources, via=via or settings.via)


def index_version(workspace: Workspace, crawl: str) -> str:
    """A digest of the indexes that would answer for ``crawl``; the same digest means the same answers.

    Raises ``EnvironmentFault`` for a crawl with a columnar index that has not been harvested.
    """
    built = index_folder(workspace.settings.home / "url-index", crawl) / ABOUT
    parts: dict[str, object] = {"built": built.read_text("utf-8") if built.exists() else None}
    parts["row_groups"] = workspace.lake.digest("row_groups", row_groups_digest_name(crawl))
    if crawl not in ARC_CRAWLS and parts["row_groups"] is None:
        raise EnvironmentFault(
            f"the index of {crawl} has not been harvested",
            "Materialize row_groups for it (the harvest_crawl job) first.",
        )
    return input_digest(parts)


def row_groups_digest_name(crawl: str) -> str:
    """The name under which the digest of a crawl's row groups is committed."""
    return f"row_groups:{crawl}"
