"""Maintenance of a lake: joins small files, drops rows that count no more, and deletes superseded files that no reader
can need.

One process joins files at a time: a lock excludes those of a home, a lease the other homes on the lake.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final
from uuid import uuid4

import pyarrow as pa

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.compaction import Bounds, compact, is_due
from cc_pipeline.lake.snapshot import Publication, pins_another_log, read_pinned_versions
from cc_pipeline.lake.streaming import list_crawls
from cc_pipeline.lake.vacuum import clean_log, vacuum
from cc_pipeline.locks import LockTimeout, is_plausible, locked
from cc_pipeline.maintenance.purge import finish_purges, publish_if_asked
from cc_pipeline.maintenance.stored_files import list_named_files
from cc_pipeline.publish.publish import delete_leftovers, publish_warehouse
from cc_pipeline.records.sweep import crawls_with_files, sweep
from cc_pipeline.stores.answer import ListedObject
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.workspace.workspace import Workspace

#: Duration of a lease: longer than any merge. After a kill, no process merges until it has expired.
LEASE_DURATION: Final = timedelta(hours=24)
_MAX_LEASE_BYTES: Final = 4_096

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
    names = [*lake.specs]
    # of all homes: another one may read a lake that belongs to this one
    pinned = read_pinned_versions(workspace.place)
    deleted = {}
    if pinned is not None:
        # another home may show files that the log does not name: nothing is deleted until that home publishes again
        unsafe_tables = {
            name for name, versions in pinned.items() if name in lake.specs and pins_another_log(lake, name, versions)
        }
        names = [name for name in names if name not in unsafe_tables]
        deleted = {name: vacuum(lake, name, retention_hours, pinned.get(name, ())) for name in names}
        deleted["entries of logs"] = sum(clean_log(lake, name, pinned.get(name, ())) for name in names)
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
    """Merges due files and returns their numbers by table; none if another process merges, unless ``wait``."""
    lake = workspace.lake
    merged = dict.fromkeys(lake.specs, 0)
    # a publication takes the lock and the lease only if there is work
    due_tables = [name for name in merged if bounds.drops_dead or is_due(lake, name, bounds)]
    if due_tables:
        with _hold_merge_lock(workspace, wait=wait) as has_lock:
            for name in due_tables if has_lock else ():
                merged[name] = compact(lake, name, bounds)
        # Arrow keeps freed memory for itself; the next steps need it elsewhere
        pa.default_memory_pool().release_unused()
    return merged


@contextmanager
def _hold_merge_lock(workspace: Workspace, *, wait: bool) -> Iterator[bool]:
    """Yields whether this process may merge. ``wait``: waits for processes of this home, never for other homes."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(workspace.settings.home / "maintenance.lock", None if wait else 0))
            has_lock = not workspace.settings.has_separate_lake or stack.enter_context(
                hold_lease(workspace.place, "merging")
            )
        except LockTimeout:
            has_lock = False
        yield has_lock


@contextmanager
def hold_lease(lake: Transport, name: str) -> Iterator[bool]:
    """Yields whether this block has the lease ``name``; ``False`` if another process has it. It ends with the block.

    Raises ``RangeFault`` or ``EnvironmentFault`` if the store cannot be read or written.
    """
    folder = f"leases/{name}/"
    # unfinished files have other names
    leases = [lease_file for lease_file in lake.listing(folder) if lease_file.key.removeprefix(folder).isdecimal()]
    sorted_leases = sorted(leases, key=lambda lease_file: lease_file.key)
    if sorted_leases and not _has_ended(lake, sorted_leases[-1]):
        yield False
        return
    number = int(sorted_leases[-1].key.removeprefix(folder)) + 1 if sorted_leases else 1
    key = f"{folder}{number:012}"
    until = (datetime.now(UTC) + LEASE_DURATION).isoformat(timespec="seconds")
    # the content is unique, so that a process whose answer was lost recognizes its own lease
    if not lake.put(key, json.dumps({"until": until, "by": uuid4().hex}).encode(), only_if_absent=True):
        yield False
        return
    try:
        for ended in sorted_leases:
            lake.delete(ended.key)
        yield True
    finally:
        # not deleted: the next lease takes the following number
        lake.put(key, json.dumps({"until": datetime.now(UTC).isoformat()}).encode())


def _has_ended(lake: Transport, lease_file: ListedObject) -> bool:
    """Whether a lease has expired. Without a plausible time, it lasts from its upload on."""
    now = time.time()
    try:
        data = lake.read_all(lease_file.key, _MAX_LEASE_BYTES).data
    except RangeFault as fault:
        if fault.kind is FaultKind.NOT_FOUND:
            return False  # another process has just taken the following number
        raise
    with suppress(ValueError, KeyError, TypeError, OverflowError):
        until = datetime.fromisoformat(json.loads(data)["until"]).timestamp()
        if is_plausible(until, now + LEASE_DURATION.total_seconds()):
            return until <= now
    return not is_plausible(lease_file.modified, now) or lease_file.modified + LEASE_DURATION.total_seconds() <= now


def _sweep_records(workspace: Workspace, retention_hours: float) -> int:
    """Deletes stored files that nothing needs; returns their number."""
    lake, storage = workspace.lake, workspace.storage
    crawls = {*list_crawls(lake.pin("records")), *crawls_with_files(storage)}
    return sum(
        sweep(storage, crawl, partial(list_named_files, lake, crawl), retention_hours * 3_600)
        for crawl in sorted(crawls)
    )
