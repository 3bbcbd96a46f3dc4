"""Upkeep: merges small files, and deletes superseded files when no reader can need them any more."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cc_pipeline.home import locked
from cc_pipeline.lake.lease import leased
from cc_pipeline.lake.pins import pinned_versions
from cc_pipeline.records.segments import sweep
from cc_pipeline.stages.publish import publish_warehouse
from cc_pipeline.stages.tables import RETIRED, TABLES
from cc_pipeline.stages.workspace import Workspace

#: A superseded file is kept this long, for readers that opened ``cc.duckdb`` before it was superseded.
RETENTION_HOURS = 168
#: Files of a table above which they are merged.
MAX_FILES = 2_000
_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class UpkeepReport:
    """Files merged away and deleted by table, and scratch folders of processes that are gone."""

    merged: dict[str, int]
    deleted: dict[str, int]
    scratch_folders: int


def keep_up(workspace: Workspace, max_files: int = MAX_FILES, retention_hours: int = RETENTION_HOURS) -> UpkeepReport:
    """Merges the files of tables that have more than ``max_files``, publishes, and deletes superseded files.

    A file is deleted when no table version of the last ``retention_hours`` names it. Publishing comes before deleting,
    so that ``cc.duckdb`` never names a deleted file; nor does that of another home on the same lake (``lake/pins.py``).
    """
    lake = workspace.lake
    with _merging_alone(workspace) as alone:
        merged = {spec.name: lake.compact(spec.name, max_files) if alone else 0 for spec in TABLES}
    publish_warehouse(workspace)
    names = [*(spec.name for spec in TABLES), *RETIRED]
    pinned = pinned_versions(workspace.place) if workspace.settings.lake_is_apart else {}
    deleted = {name: lake.vacuum(name, retention_hours, pinned.get(name, ())) for name in names}
    deleted["stored records"] = _sweep_records(workspace)
    return UpkeepReport(merged, deleted, _sweep_scratch(workspace.settings.home / "scratch"))


@contextmanager
def _merging_alone(workspace: Workspace) -> Iterator[bool]:
    """Waits for another upkeep of this home; ``False`` while one of another home on the same lake merges."""
    with locked(workspace.settings.home / "upkeep.lock"):
        if not workspace.settings.lake_is_apart:
            yield True
            return
        with leased(workspace.place, "merging") as alone:
            yield alone


def _sweep_records(workspace: Workspace) -> int:
    """Deletes stored files that no row of ``records`` names; gives how many."""
    swept = 0
    crawls = workspace.lake.read("records", columns=["crawl"]).column("crawl").unique().to_pylist()
    for crawl in crawls:
        named = workspace.lake.read("records", {"crawl": crawl}, ["stored_file"]).column("stored_file").unique()
        swept += sweep(workspace.storage, crawl, {file for file in named.to_pylist() if file is not None})[0]
    return swept


def _sweep_scratch(folder: Path) -> int:
    """Deletes scratch folders of processes that were killed: not alive, and untouched for a day. Gives how many."""
    swept = 0
    for path in folder.iterdir() if folder.is_dir() else ():
        old = time.time() - path.stat().st_mtime > _DAY_SECONDS
        if old and path.name.isdigit() and not Path(f"/proc/{path.name}").exists():
            shutil.rmtree(path, ignore_errors=True)
            swept += 1
    return swept
