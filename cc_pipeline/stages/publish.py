"""Publishing: the lake as it stands now, as one DuckDB snapshot."""

from __future__ import annotations

from collections.abc import Mapping

from cc_pipeline.addresses import scheme_of, shown
from cc_pipeline.home import locked
from cc_pipeline.keys import SLICE
from cc_pipeline.lake.lake import PinnedTable
from cc_pipeline.lake.snapshot import Publication, publish
from cc_pipeline.stages.slice import PARSE, READ_FILES, Slice
from cc_pipeline.stages.tables import TABLES
from cc_pipeline.stages.views import publication_views
from cc_pipeline.stages.whole_files import registered
from cc_pipeline.stages.workspace import Workspace


def publish_warehouse(workspace: Workspace) -> Publication:
    """Builds ``cc.duckdb`` from pinned versions of all tables and swaps it in; one publisher at a time on a host."""
    with locked(workspace.settings.home / "publish.lock"):
        pinned = [workspace.lake.pin(spec.name) for spec in TABLES]
        # a stage may commit while this pins one table after the other, so judge by the pinned versions
        held_back = interrupted_slices(workspace, {table.spec.name: table.version for table in pinned})
        return publish(
            workspace.settings.published_path,
            pinned,
            publication_views([(slice_.crawl, slice_.target) for slice_ in held_back]),
            _s3_setup(workspace) if _remote(pinned) else (),
        )


def interrupted_slices(workspace: Workspace, versions: Mapping[str, int] | None = None) -> list[Slice]:
    """Slices whose page tables are not from one run, as of ``versions`` by table (default: now).

    A run that is killed between two commits leaves such slices. Their rows are not published until it has run again.
    """
    at = versions or {}
    # a target that has no captures any more may still have pages of an earlier run
    located = sorted({slice_ for table in ("captures", "page_metadata") for slice_ in _slices(workspace, table)})
    files = [Slice(file.crawl, slug) for slug, file in registered(workspace).items()]
    return PARSE.interrupted(workspace.lake, located, at) + READ_FILES.interrupted(workspace.lake, files, at)


def _slices(workspace: Workspace, table: str) -> list[Slice]:
    named = workspace.lake.read(table, columns=SLICE).group_by(SLICE).aggregate([])
    return [Slice(row["crawl"], row["target"]) for row in named.to_pylist()]


def _remote(pinned: list[PinnedTable]) -> bool:
    return any(scheme_of(address) == "s3" for table in pinned for address in table.files)


def _s3_setup(workspace: Workspace) -> tuple[str, ...]:
    # httpfs is not part of DuckDB's wheel: readers of a lake on S3 need it and a secret of their own
    settings = workspace.settings
    place = ""
    if settings.lake_endpoint:
        host = shown(settings.lake_endpoint).partition("://")[2]
        secure = str(scheme_of(settings.lake_endpoint) == "https").lower()
        place = f", ENDPOINT '{host}', URL_STYLE 'path', USE_SSL {secure}"
    secret = f"CREATE SECRET lake (TYPE s3, PROVIDER credential_chain, REGION '{settings.s3_region}'{place})"
    return ("INSTALL httpfs", "LOAD httpfs", secret)
