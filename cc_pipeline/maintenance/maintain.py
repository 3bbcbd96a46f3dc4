"""Maintenance of a lake: joins small files, drops rows that count no more, and deletes superseded files that no reader
can need.

One process of a home joins files at a time.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.compaction import Bounds, compact, is_due
from cc_pipeline.lake.snapshot import Publication, read_pinned_versions
from cc_pipeline.lake.vacuum import clean_log, vacuum
from cc_pipeline.locks import LockTimeout, locked
from cc_pipeline.maintenance.purge import finish_purges, publish_if_asked
from cc_pipeline.maintenance.stored_files import list_named_files
from cc_pipeline.publish.publish import delete_leftovers, publish_warehouse
from cc_pipeline.records.sweep import crawls_with_files, sweep
from cc_pipeline.workspace.workspace import Workspace

#: Hours that a superseded file is kept, for readers that opened ``cc.duckdb`` before.
RETENTION_HOURS = 168
#: Maximum bytes that a publication merges, and seconds after which it starts no further merge: a person waits for it.
#: Later publications and maintenance do the rest.
_MAX_MERGED_BYTES = 512 << 20
_MAX_SECONDS = 30


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """Numbers of files ``merged`` and ``deleted``, by table, and of leftovers of dead processes (``leftovers``)."""

    merged: dict[str, int]
    deleted: dict[str, int]
    leftovers: int


def run_maintenance(
    workspace: Workspace, max_files: int | None = None, retention_hours: int = RETENTION_HOURS
) -> MaintenanceReport:
    """Merges the files of tables whose crawls have more than ``max_files`` small ones, or too many that overlap;
    publishes, and deletes superseded files.

    A file is deleted if it was superseded more than ``retention_hours`` ago and no running fetch holds it. Publishing
    comes before deleting, so that ``cc.duckdb`` never names a deleted file; nor does that of another home on the same
    lake (``lake/snapshot.py``). Tables keep their files for at least a week
    (``vacuum.RETENTION_FLOOR_HOURS``).
    """
    leftovers = delete_leftovers(workspace.settings)
    lake = workspace.lake
    merged = _merge(workspace, Bounds() if max_files is None else Bounds(max_files), wait=True)
    finish_purges(workspace)
    publish_if_asked(workspace)
    # of all homes: another one may read a lake that belongs to this one
    pinned = read_pinned_versions(workspace.place)
    deleted = {}
    if pinned is not None:
        deleted = {name: vacuum(lake, name, retention_hours, pinned.get(name, ())) for name in lake.specs}
        deleted["entries of logs"] = sum(clean_log(lake, name, pinned.get(name, ())) for name in lake.specs)
    deleted["stored records"] = _sweep_records(workspace, retention_hours)
    return MaintenanceReport(merged, deleted, leftovers)


def merge_and_publish(workspace: Workspace) -> Publication:
    """Merges due files if that is quick and no other process merges, and publishes as ``publish_warehouse`` does.

    So a home without maintenance stays fast. Raises ``EnvironmentFault``, also if files could not be merged: the tables
    were published then."""
    bounds = Bounds(max_bytes=_MAX_MERGED_BYTES, until=time.monotonic() + _MAX_SECONDS, drops_dead=False)
    try:
        _merge(workspace, bounds, wait=False)
    except EnvironmentFault:
        publish_warehouse(workspace)
        raise
    return publish_warehouse(workspace)


def _merge(workspace: Workspace, bounds: Bounds, *, wait: bool) -> dict[str, int]:
    """Merges due files and returns their numbers by table; none if another process of this home merges, unless
    ``wait``. Homes that merge the same files at once do the work twice, and one of them commits it."""
    lake = workspace.lake
    merged = dict.fromkeys(lake.specs, 0)
    # a publication takes the lock only if there is work
    due_tables = [name for name in merged if bounds.drops_dead or is_due(lake, name, bounds)]
    if due_tables:
        with suppress(LockTimeout), locked(workspace.settings.home / "maintenance.lock", None if wait else 0):
            for name in due_tables:
                merged[name] = compact(lake, name, bounds)
        # Arrow keeps freed memory for itself; the next steps need it elsewhere
        pa.default_memory_pool().release_unused()
    return merged


def _sweep_records(workspace: Workspace, retention_hours: float) -> int:
    """Deletes stored files that nothing needs; returns their number."""
    lake, storage = workspace.lake, workspace.storage
    crawls = {*lake.pin("records").crawls, *crawls_with_files(storage)}
    return sum(
        sweep(storage, crawl, partial(list_named_files, lake, crawl), retention_hours * 3_600)
        for crawl in sorted(crawls)
    )
