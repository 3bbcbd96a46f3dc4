"""Purging: the rows of a target are hidden at once; its rows and the bytes that no other target has are deleted later.

A purge takes the definition away, and its epoch with it: from then on no row of the target counts, in any home,
whatever a run still commits. The rows themselves, which ``slices`` knows as purged, say what else there is to do:
records are erased in the stored files that purged rows name, then the rows go from the tables, then those of
``slices``. Each step finds what a killed purge left, in this command or in maintenance. Superseded files are deleted a
week later, as all are."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import pyarrow.compute as pc

from cc_pipeline import progress
from cc_pipeline.commoncrawl.slice_slugs import whole_slug
from cc_pipeline.extraction.reusable_records import note_superseded as note_files_superseded
from cc_pipeline.grouping import group_within
from cc_pipeline.lake import target_definitions as targets
from cc_pipeline.lake.compaction import Bounds, compact
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.predicates import Prefix
from cc_pipeline.lake.slice import Slice
from cc_pipeline.lake.slices import read_liveness, read_purged, remove_purged
from cc_pipeline.lake.snapshot import read_pinned_versions
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.lake.vacuum import vacuum
from cc_pipeline.maintenance.leftovers import (
    Leftovers,
    condemn_lost,
    count_generation_rows,
    find_leftovers,
    list_generations,
)
from cc_pipeline.maintenance.purge_plan import PurgePlan, refuse_unknown_tables
from cc_pipeline.maintenance.record_erasure import erase_journal_rows, erase_records, unmark
from cc_pipeline.maintenance.stored_files import list_named_files
from cc_pipeline.publish.publish import publish_warehouse
from cc_pipeline.records.file_leases import Holding, lease, list_active_leases
from cc_pipeline.records.segments import delete_committed
from cc_pipeline.records.sweep import RETENTION_SECONDS, crawls_with_files, note, sweep
from cc_pipeline.workspace.workspace import Workspace

#: Stored files, and their bytes, whose records are in memory together.
_FILES_AT_ONCE: Final = 16
_BYTES_AT_ONCE: Final = 4 << 30


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """The outcome of a purge. ``fetches`` of the target were under way: maintenance deletes what they store.
    ``deleted_after`` is when superseded files may be deleted (``None``: they were, and ``leftovers`` are what a search
    found)."""

    fetches: int
    deleted_after: datetime | None = None
    leftovers: Leftovers | None = None


def purge(workspace: Workspace, plan: PurgePlan, *, now: bool = False) -> PurgeReport:
    """Purges the target of ``plan``: hidden at once in the lake, and here with the first publication; its files are
    deleted a week later, or ``now``.

    ``now`` deletes superseded files of all tables at once, which breaks readers that opened ``cc.duckdb`` before. A
    killed purge is continued by the next call, and by maintenance. Raises ``EnvironmentFault`` if the lake cannot be
    read or written, or has unknown tables (nothing was deleted then).
    """
    lake, slug = workspace.lake, plan.slug
    refuse_unknown_tables(lake)
    _note_stored_files(workspace, plan.slices)
    targets.delete_definitions(lake, {slug})
    # the leases after the epoch: each fetch sees that it is gone, or is seen here
    crawls = {*read_purged(lake, {"target": Prefix(slug)})["crawl"].to_pylist(), *(part.crawl for part in plan.slices)}
    fetches = sum(
        holding.concerns({slug}) for crawl in crawls for holding in list_active_leases(workspace.storage, crawl)
    )
    publish_if_asked(workspace)
    finish_purges(workspace, condemn_lost(lake, {slug}, {"target": Prefix(slug)}))
    storage, swept = workspace.storage, crawls
    if now:
        publish_if_asked(workspace)
        swept |= {*crawls_with_files(storage)}
    for crawl in swept:
        sweep(storage, crawl, partial(list_named_files, lake, crawl), 0.0 if now else RETENTION_SECONDS)
    if not now:
        return PurgeReport(fetches, datetime.now(UTC) + timedelta(seconds=RETENTION_SECONDS))
    pinned = read_pinned_versions(workspace.place)
    if pinned is not None:
        for table in lake.specs:
            vacuum(lake, table, None, pinned.get(table, ()))
    return PurgeReport(fetches, leftovers=find_leftovers(lake, slug))


def remove_empty_targets(workspace: Workspace, slugs: Collection[str]) -> None:
    """Removes the definitions of targets without captures; maintenance removes the rest. Raises ``EnvironmentFault``,
    also if the lake has unknown tables."""
    refuse_unknown_tables(workspace.lake)
    targets.delete_definitions(workspace.lake, slugs)


def publish_if_asked(workspace: Workspace) -> None:
    """Publishes, unless this home publishes nothing."""
    if workspace.settings.publish != "none":
        publish_warehouse(workspace)


def finish_purges(workspace: Workspace, lost: Mapping[str, Collection[int]] | None = None) -> None:
    """Deletes the rows of all purged targets, with those of the generations ``lost`` by crawl, and their records in
    stored files, where a killed purge stopped. Crawls in which a fetch of such a target runs are left to the next time.
    Raises ``EnvironmentFault``."""
    lake, lost = workspace.lake, lost or {}
    rows, generations = read_purged(lake), dict[str, set[int]]()
    # what another process purges from now on is left to it
    by_crawl = {crawl: rows.filter(pc.equal(rows["crawl"], crawl)) for crawl in rows["crawl"].unique().to_pylist()}
    for crawl in sorted(by_crawl.keys() | lost):
        purged = by_crawl.setdefault(crawl, rows[:0])
        slices = sorted({*purged["target"].to_pylist()})
        slugs = {*map(whole_slug, slices)}
        condemned = condemn_lost(lake, slugs, {"crawl": crawl, "target": slices}) if slices else {}
        numbers = {n for source in (lost, condemned, list_generations(purged)) for n in source.get(crawl, ())}
        if _erase_stored_records(workspace, crawl, slugs, numbers):
            generations[crawl] = numbers
    for spec in lake.specs.values() if generations else ():
        if spec.has_slices:
            compact(lake, spec.name, Bounds(purged=generations))
    unfinished_crawls = {crawl for crawl, _ in count_generation_rows(lake, generations)}
    for crawl in generations.keys() - unfinished_crawls:
        if by_crawl[crawl].num_rows:
            remove_purged(lake, crawl, by_crawl[crawl])


def _note_stored_files(workspace: Workspace, slices: Sequence[Slice]) -> None:
    """Notes that stored files of slices are superseded, before they are: an earlier note must not count."""
    note_files_superseded(workspace, slices, (), time.time())


def _erase_stored_records(
    workspace: Workspace, crawl: str, slugs: Collection[str], generations: Collection[int]
) -> bool:
    """Erases the records of purged targets (``slugs``, ``generations``) in stored files of ``crawl``. Returns whether
    that was all: no running fetch needs one of the files, or may store more such records."""
    lake, storage = workspace.lake, workspace.storage
    commit = uuid.uuid4().hex

    def list_other_holdings() -> list[Holding]:
        return [holding for holding in list_active_leases(storage, crawl) if holding.commit != commit]

    # the lease keeps files that are read or written here from being swept
    with lease(storage, crawl, commit) as file_lease, workspace.scratch_folder("purge") as scratch:
        # journals name the records, whether their rows were committed or not
        delete_committed(storage, crawl)
        marked_files = erase_journal_rows(lake, storage, crawl, list_other_holdings())
        # whoever read the journals before has a lease, or has committed what it adopted
        other_holdings = list_other_holdings()
        listing = storage.transport.listing(f"{storage.folder(crawl)}/")
        files = _list_purged_files(lake, crawl, generations) | marked_files
        sizes = {file.key: file.size for file in listing if file.key in files}
        free = [file for file in sorted(sizes) if not any(holding.holds(file) for holding in other_holdings)]
        note(storage, crawl, sizes, time.time())
        liveness = read_liveness(lake, "records", crawl)
        erased = liveness.dead | ({*generations} - liveness.alive)
        for number, batch in enumerate(_batch_files(free, sizes)):
            progress.report("stored files", number * _FILES_AT_ONCE, len(free), crawl)
            erase_records(lake, storage, crawl, {file: sizes[file] for file in batch}, erased, scratch, file_lease)
            for file in marked_files.intersection(batch):
                unmark(storage, file)
        for file in marked_files - sizes.keys():
            unmark(storage, file)
    return len(free) == len(sizes) and not any(holding.concerns(slugs) for holding in other_holdings)


def _list_purged_files(lake: Lake, crawl: str, generations: Collection[int]) -> set[str]:
    """The stored files that rows of purged targets name."""
    files: set[str] = set()
    for batch in stream_rows(lake, "records", {"crawl": crawl}, ["stored_file"], generations):
        files.update(batch.column(0).unique().drop_null().to_pylist())
    return files


def _batch_files(files: Sequence[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    return group_within(files, (_FILES_AT_ONCE, _BYTES_AT_ONCE), lambda file: (1, sizes.get(file, 0)))
