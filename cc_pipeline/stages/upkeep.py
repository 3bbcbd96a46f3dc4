"""Upkeep: merges small files, and deletes superseded files when no reader can need them any more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from cc_pipeline.home import locked
from cc_pipeline.lake.keeping import compact, vacuum
from cc_pipeline.lake.lease import leased
from cc_pipeline.lake.pins import pinned_versions
from cc_pipeline.lake.streaming import crawls_of
from cc_pipeline.records.sweep import crawls_with_files, sweep
from cc_pipeline.stages.debris import clear_debris
from cc_pipeline.stages.publish import publish_warehouse
from cc_pipeline.stages.stored_files import named_files
from cc_pipeline.stages.tables import RETIRED, TABLES
from cc_pipeline.stages.workspace import Workspace

#: A superseded file is kept this long, for readers that opened ``cc.duckdb`` before it was superseded.
RETENTION_HOURS = 168
#: Files of a table above which they are merged.
MAX_FILES = 2_000


@dataclass(frozen=True, slots=True)
class UpkeepReport:
    """Files merged away and deleted by table, and what processes that are gone had left in the home."""

    merged: dict[str, int]
    deleted: dict[str, int]
    debris: int


def keep_up(workspace: Workspace, max_files: int = MAX_FILES, retention_hours: int = RETENTION_HOURS) -> UpkeepReport:
    """Merges the files of tables that have more than ``max_files``, publishes, and deletes superseded files.

    A file is deleted when it was superseded more than ``retention_hours`` ago, however old it is, and no running fetch
    holds it. Publishing comes before deleting, so that ``cc.duckdb`` never names a deleted file; nor does that of
    another home on the same lake (``lake/pins.py``). Tables keep their files for a week at least
    (``keeping.RETENTION_FLOOR_HOURS``).
    """
    debris = clear_debris(workspace.settings)
    lake = workspace.lake
    with _merging_alone(workspace) as alone:
        merged = {spec.name: compact(lake, spec.name, max_files) if alone else 0 for spec in TABLES}
    publish_warehouse(workspace)
    names = [*(spec.name for spec in TABLES), *RETIRED]
    pinned = pinned_versions(workspace.place) if workspace.settings.lake_is_apart else {}
    deleted = {name: vacuum(lake, name, retention_hours, pinned.get(name, ())) for name in names}
    deleted["stored records"] = _sweep_records(workspace, retention_hours)
    return UpkeepReport(merged, deleted, debris)


@contextmanager
def _merging_alone(workspace: Workspace) -> Iterator[bool]:
    """Waits for another upkeep of this home; ``False`` while one of another home on the same lake merges."""
    with locked(workspace.settings.home / "upkeep.lock"):
        if not workspace.settings.lake_is_apart:
            yield True
            return
        with leased(workspace.place, "merging") as alone:
            yield alone


def _sweep_records(workspace: Workspace, retention_hours: float) -> int:
    """Deletes stored files that nothing needs; gives how many."""
    lake, storage = workspace.lake, workspace.storage
    crawls = {*crawls_of(lake.pin("records")), *crawls_with_files(storage)}
    swept = [
        sweep(storage, crawl, partial(named_files, lake, crawl), retention_hours * 3_600) for crawl in sorted(crawls)
    ]
    return sum(one.files for one in swept)
