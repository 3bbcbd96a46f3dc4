"""Upkeep: merges small files, folds digests, and deletes superseded files when no reader can need them any more.

One process merges at a time: a lock among those of a home, a lease among homes on one lake.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final
from uuid import uuid4

import pyarrow as pa

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extension import extensions
from cc_pipeline.lake.digests.folding import fold, sweep_folded
from cc_pipeline.lake.merging import Bounds, even_out, is_due, merge_due
from cc_pipeline.lake.snapshot import Publication, pinned_versions, pins_another_log
from cc_pipeline.lake.streaming import crawls_of
from cc_pipeline.lake.vacuum import RETENTION_FLOOR_HOURS, clean_log, vacuum
from cc_pipeline.locks import LockHeld, has_come, locked
from cc_pipeline.publish.publish import clear_debris, publish_warehouse
from cc_pipeline.records.leases import forget_ended
from cc_pipeline.records.sweep import crawls_with_files, sweep
from cc_pipeline.stores.answer import Listed
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.upkeep.purge import end_what_is_done, go_on
from cc_pipeline.upkeep.stored_files import named_files
from cc_pipeline.workspace.workspace import Workspace

#: Longer than any merging takes; after a kill, nobody merges for as long.
LASTS: Final = timedelta(hours=24)
_LONGEST: Final = 4_096

#: A superseded file is kept this long, for readers that opened ``cc.duckdb`` before it was superseded.
RETENTION_HOURS = 168
#: Bytes that a publication merges in one go at most, and seconds after which it begins no more: someone waits for it.
#: What is left is done by the next ones, and by upkeep.
_MOST_BYTES = 512 << 20
_SECONDS = 30
#: Digests of a table's log that a publication folds at most.
_MOST_FOLDED = 100_000
#: What a publication does of files that lack added columns: readers open all files' footers while there are any.
_MOST_BYTES_EVENED = 64 << 20
_MOST_FOOTERS = 500


@dataclass(frozen=True, slots=True)
class UpkeepReport:
    """Files merged away and deleted by table, and what processes that are gone had left in the home. ``failed`` are
    extensions whose maintenance raised, with what it said."""

    merged: dict[str, int]
    deleted: dict[str, int]
    debris: int
    failed: dict[str, str]


def keep_up(workspace: Workspace, max_files: int | None = None, retention_hours: int = RETENTION_HOURS) -> UpkeepReport:
    """Merges the files of tables whose crawls have more than ``max_files`` small ones, or too many that overlap;
    publishes, and deletes superseded files.

    A file is deleted when it was superseded more than ``retention_hours`` ago, however old it is, and no running fetch
    holds it. Publishing comes before deleting, so that ``cc.duckdb`` never names a deleted file; nor does that of
    another home on the same lake (``lake/snapshot.py``). Tables keep their files for a week at least
    (``vacuum.RETENTION_FLOOR_HOURS``).
    """
    debris = clear_debris(workspace.settings) + forget_ended(workspace.storage)
    of_extensions, failed = _maintain_extensions(workspace)
    lake = workspace.lake
    go_on(workspace)
    merged = _merge(workspace, Bounds() if max_files is None else Bounds(max_files), wait=True)
    for name in merged:
        fold(lake, name)
    if workspace.settings.publish != "none":
        publish_warehouse(workspace)
    names = [*lake.specs]
    pinned = pinned_versions(workspace.place) if workspace.settings.lake_is_apart else {}
    deleted = {}
    if pinned is not None:
        # a file that another home shows may be none that the log names: none goes then until that home publishes again
        unsure = {name for name, own in pinned.items() if name in lake.specs and pins_another_log(lake, name, own)}
        names = [name for name in names if name not in unsure]
        deleted = {name: vacuum(lake, name, retention_hours, pinned.get(name, ())) for name in names}
        deleted["entries of logs"] = sum(clean_log(lake, name, pinned.get(name, ())) for name in names)
    deleted["folded digests"] = sum(
        sweep_folded(lake, name, max(retention_hours, RETENTION_FLOOR_HOURS)) for name in lake.specs
    )
    deleted["stored records"] = _sweep_records(workspace, retention_hours)
    end_what_is_done(workspace, max(retention_hours, RETENTION_FLOOR_HOURS) * 3_600)
    return UpkeepReport(merged, deleted | of_extensions, debris, failed)


def _maintain_extensions(workspace: Workspace) -> tuple[dict[str, int], dict[str, str]]:
    """Calls the maintenance of each extension in use; gives the files deleted by extension, and what failed."""
    deleted: dict[str, int] = {}
    failed: dict[str, str] = {}
    for extension in extensions():
        if extension.maintenance is None:
            continue
        try:
            deleted[f"files of {extension.name}"] = int(extension.maintenance(workspace))
        except Exception as error:  # whatever it is: it costs only this extension
            failed[extension.name] = f"{type(error).__name__}: {error}"
    return deleted, failed


def merge_and_publish(workspace: Workspace) -> Publication:
    """Merges what is due, if that is soon done and nobody else merges, and publishes as ``publish_warehouse`` does.

    So a home that is never kept up stays quick all the same. Raises ``EnvironmentFault``, also where files could not be
    merged: what there is was published then.
    """
    try:
        merged = _merge(workspace, Bounds(most_bytes=_MOST_BYTES, until=time.monotonic() + _SECONDS), wait=False)
        for name in merged:
            fold(workspace.lake, name, most=_MOST_FOLDED)
    except EnvironmentFault:
        publish_warehouse(workspace)
        raise
    return publish_warehouse(workspace)


def _merge(workspace: Workspace, bounds: Bounds, *, wait: bool) -> dict[str, int]:
    """Files merged away by table; nothing where another process merges and this one does not ``wait`` for it."""
    lake = workspace.lake
    evenly = bounds if wait else replace(bounds, most_bytes=_MOST_BYTES_EVENED)
    merged = {spec.name: 0 for spec in lake.specs.values() if not spec.left_by}
    # a lock, and a lease on a lake elsewhere, only when there is anything to do
    with lake.still():
        crowded = [name for name in merged if is_due(lake, name, bounds)]
        uneven = [name for name in merged if lake.pin(name).uneven]
    if crowded or uneven:
        scratch = workspace.scratch / "merging"
        with _merging_alone(workspace, wait=wait) as alone:
            for name in crowded if alone else ():
                merged[name] = merge_due(lake, name, scratch, bounds)
            for name in uneven if alone else ():
                merged[name] += even_out(lake, name, scratch, evenly, None if wait else _MOST_FOOTERS)
            if alone:  # else another thread of this process may be merging there
                shutil.rmtree(scratch, ignore_errors=True)
        # Arrow keeps what it freed for rows to come, and what follows needs memory of other kinds
        pa.default_memory_pool().release_unused()
    return merged


@contextmanager
def _merging_alone(workspace: Workspace, *, wait: bool) -> Iterator[bool]:
    """Whether no other process merges. Waits for another one of this home, or not; never for another home's."""
    with ExitStack() as held:
        try:
            held.enter_context(locked(workspace.settings.home / "upkeep.lock", None if wait else 0))
            alone = not workspace.settings.lake_is_apart or held.enter_context(leased(workspace.place, "merging"))
        except LockHeld:
            alone = False
        yield alone


@contextmanager
def leased(lake: Transport, name: str) -> Iterator[bool]:
    """Whether this block has the lease ``name``; ``False`` while another one has it. It ends with the block.

    Raises ``RangeFault`` or ``EnvironmentFault`` when the place cannot be read or written.
    """
    folder = f"leases/{name}/"
    # in a folder, files that are being written have other names
    leases = [listed for listed in lake.listing(folder) if listed.key.removeprefix(folder).isdecimal()]
    held = sorted(leases, key=lambda one: one.key)
    if held and not _has_ended(lake, held[-1]):
        yield False
        return
    number = int(held[-1].key.removeprefix(folder)) + 1 if held else 1
    key = f"{folder}{number:012}"
    until = (datetime.now(UTC) + LASTS).isoformat(timespec="seconds")
    # no two say the same, so that who reads its own after a lost answer knows it
    if not lake.put(key, json.dumps({"until": until, "by": uuid4().hex}).encode(), only_if_absent=True):
        yield False
        return
    try:
        for ended in held:
            lake.delete(ended.key)
        yield True
    finally:
        # not deleted: the next one takes the number after it
        lake.put(key, json.dumps({"until": datetime.now(UTC).isoformat()}).encode())


def _has_ended(lake: Transport, held: Listed) -> bool:
    """Whether a lease is over. One that says no time, or a time that nobody could have written yet, lasts from when the
    place got it."""
    now = time.time()
    try:
        data = lake.read_all(held.key, _LONGEST).data
    except RangeFault as fault:
        if fault.kind is FaultKind.NOT_FOUND:
            return False  # another one has just taken the number after it
        raise
    with suppress(ValueError, KeyError, TypeError, OverflowError):
        until = datetime.fromisoformat(json.loads(data)["until"]).timestamp()
        if has_come(until, now + LASTS.total_seconds()):
            return until <= now
    return not has_come(held.modified, now) or held.modified + LASTS.total_seconds() <= now


def _sweep_records(workspace: Workspace, retention_hours: float) -> int:
    """Deletes stored files that nothing needs; gives how many."""
    lake, storage = workspace.lake, workspace.storage
    crawls = {*crawls_of(lake.pin("records")), *crawls_with_files(storage)}
    swept = [
        sweep(storage, crawl, partial(named_files, lake, crawl), retention_hours * 3_600) for crawl in sorted(crawls)
    ]
    return sum(one.files for one in swept)
