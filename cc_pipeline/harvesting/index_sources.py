"""Where the indexes of a crawl are found: at the source, and in the home."""

from __future__ import annotations

from functools import partial

from cc_pipeline.harvesting.catalog import open_catalog
from cc_pipeline.index.lookup import IndexSources
from cc_pipeline.workspace.workspace import Workspace


def index_sources(workspace: Workspace, crawl: str) -> IndexSources:
    """The indexes of ``crawl`` in a workspace."""
    settings = workspace.settings
    return IndexSources(
        workspace.index_place(crawl),
        catalog=partial(open_catalog, workspace.lake),
        footers=settings.footers_path,
        cache=settings.cache_path / "page-indexes",
        max_gaps=settings.max_index_gaps,
        clusters=workspace.clusters,
    )
