"""Purging: the rows of a target are hidden at once; its rows and the bytes that no other target has are deleted later.

The order of the steps makes a purge safe to be killed: first a note (``purge_plan.py``), then the rows, in one commit
per table, then the stored files. A file that no row names is noted as superseded. A file that rows of other targets
name is rewritten without the other records: first the new file, then a commit that updates the rows, then the note of
the old file. Noted files are swept a week later, as all superseded files. The definition is deleted last, the note when
nothing is left.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final
from urllib.parse import quote

from cc_pipeline import progress
from cc_pipeline.capture_columns import SLICE
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.reusable_records import note_superseded as note_files_superseded
from cc_pipeline.grouping import group_within
from cc_pipeline.lake import target_definitions as targets
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import (
    EMPTIED_DIGEST,
    FETCH,
    LOCATE,
    PAGE_TABLES,
    PARSE,
    Slice,
    Stage,
    empty_notes,
    group_targets_by_crawl,
    slices_of,
)
from cc_pipeline.lake.snapshot import read_pinned_versions
from cc_pipeline.lake.streaming import count_rows, list_crawl_files
from cc_pipeline.lake.vacuum import find_uncommitted_files, vacuum
from cc_pipeline.locks import is_plausible
from cc_pipeline.maintenance.leftovers import Leftovers, find_leftovers
from cc_pipeline.maintenance.purge_plan import (
    PurgeNote,
    PurgePlan,
    end_note,
    find_fetching_crawls,
    list_unfinished_purges,
    plan_purge,
    purged_tables,
    read_note,
    refuse_unknown_tables,
    slices_of_stopped_runs,
    slices_of_target,
    write_note,
)
from cc_pipeline.maintenance.record_moves import find_killed_run_files, move_records
from cc_pipeline.maintenance.stored_files import list_named_files
from cc_pipeline.publish.publish import publish_warehouse
from cc_pipeline.records.file_leases import PURGES, RUNS, lease, lease_of, leases_of, list_active_leases
from cc_pipeline.records.segments import delete_committed
from cc_pipeline.records.storage import PLANS
from cc_pipeline.records.sweep import RETENTION_SECONDS, find_orphan_files, sweep
from cc_pipeline.records.sweep import note as note_superseded
from cc_pipeline.workspace.workspace import Workspace

#: The id of a job's commit in the names of files that its tasks write.
_COMMIT: Final = re.compile(r"-([0-9a-f]{32})-")
_TABLES: Final = ("records", *PAGE_TABLES)

#: Maximum number of slices that one commit empties.
_SLICES_AT_ONCE: Final = 2_000
#: Maximum number of stored files, and of their bytes, that are processed between two commits.
_FILES_AT_ONCE: Final = 256
_BYTES_AT_ONCE: Final = 4 << 30
#: The stages of a run, the last one first.
_RUN_STAGES: Final = (PARSE, FETCH, LOCATE)


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """The outcome of a purge. ``waiting`` stored files, with the records, are deleted after ``deleted_after``
    (``None``: everything is deleted, and ``leftovers`` are what a search found). ``fetching_crawls`` crawls have a
    running fetch that still uses some of them."""

    plan: PurgePlan
    moved: int
    waiting: int
    fetching_crawls: tuple[str, ...]
    deleted_after: datetime | None
    leftovers: Leftovers | None


def purge(workspace: Workspace, plan: PurgePlan, *, now: bool = False) -> PurgeReport:
    """Purges the target of ``plan``: hidden after the first publication, deleted a week later, or ``now``.

    ``now`` deletes superseded files of all tables at once, which breaks readers that opened ``cc.duckdb`` before. A
    killed purge is continued; one that was suspended for too long commits nothing more. No run of the target starts
    before it ends. Raises ``EnvironmentFault`` if a run has the target (no captures were deleted then), and if the lake
    cannot be read or written.
    """
    with _hold_purge_lease(workspace, [plan.slug]) as stopped_slices:
        refuse_if_fetching(workspace, plan.slug, plan.slices)
        # runs may have changed the target since the person saw the plan
        plan = plan_purge(workspace, plan.slug, plan.definition)
        return _purge(workspace, replace(plan, slices=tuple(sorted({*plan.slices, *stopped_slices}))), now=now)


def _purge(workspace: Workspace, plan: PurgePlan, *, now: bool) -> PurgeReport:
    note = _begin_note(workspace, plan)
    for crawl, files in note.files.items():
        # before any row is deleted: the time of an earlier note must not count for files that are superseded now
        note_superseded(workspace.storage, crawl, files, time.time())
    _remove_rows(workspace, plan.slices)
    targets.delete_definitions(workspace.lake, {plan.slug})
    note = replace(note, removed_at=note.removed_at or datetime.now(UTC))
    write_note(workspace.place, note)
    publish_warehouse(workspace)
    delete_job_leftovers(workspace, note.crawls)
    note, moved = _clean_files(workspace, note)
    if moved:
        publish_warehouse(workspace)
    return _finish(workspace, plan, note, moved, now=now)


def drop_subset(workspace: Workspace, slug: str, subset: str) -> int:
    """Deletes the captures of a target in ``subset`` in every crawl, and returns their number. Maintenance deletes
    stored files that no other row names a week later. Other subsets are kept.

    Raises ``EnvironmentFault`` if a run has the target (no captures were deleted then), and if the lake cannot be read
    or written.
    """
    with _hold_purge_lease(workspace, [slug]) as stopped_slices:
        slices = [
            slice_ for slice_ in {*slices_of_target(workspace.lake, slug), *stopped_slices} if slice_.subset == subset
        ]
        refuse_if_fetching(workspace, slug, slices)
        return _drop_slices(workspace, sorted(slices))


def _drop_slices(workspace: Workspace, slices: Sequence[Slice]) -> int:
    lake = workspace.lake
    captures = 0
    for crawl, targets_ in group_targets_by_crawl(slices).items():
        captures += sum(count_rows(lake, "captures", {"crawl": crawl, "target": targets_}, ["crawl"]).values())
        # before any row is deleted, as in a purge
        note_files_superseded(workspace, slices_of(crawl, targets_), (), time.time())
    _remove_rows(workspace, slices, of_subset=True)
    publish_warehouse(workspace)
    return captures


@contextmanager
def _hold_purge_lease(workspace: Workspace, slugs: Collection[str]) -> Iterator[list[Slice]]:
    """Inside the block no run of the targets ``slugs`` starts, and nothing is committed with an expired lease. Yields
    the slices that stopped runs may still commit. Raises ``EnvironmentFault`` if another purge has one of the targets,
    or if the lake has unknown tables."""
    refuse_unknown_tables(workspace.lake)
    with lease_of(workspace.storage, PURGES, slugs) as purge_lease:
        targets.note_purge(workspace.lake, slugs)
        other_leases = [
            other_lease
            for other_lease in leases_of(workspace.storage, PURGES)[0]
            if other_lease.key != purge_lease.key and other_lease.concerns(slugs)
        ]
        if other_leases:
            raise EnvironmentFault(
                f"{', '.join(sorted(slugs)[:3])} is being purged by {other_leases[0].holder}",
                "No captures were deleted. Wait for the end of that purge, then run the command again.",
            )
        stopped_slices = slices_of_stopped_runs(workspace, slugs)
        with workspace.lake.checked(purge_lease.confirm):
            yield stopped_slices


def refuse_if_fetching(workspace: Workspace, slug: str, slices: Sequence[Slice]) -> None:
    """Raises ``EnvironmentFault`` if a run of any home has the target."""
    runs = [run for run in leases_of(workspace.storage, RUNS)[0] if run.concerns([slug])]
    crawls = {crawl for run in runs for crawl in run.crawls}
    crawls |= {*find_fetching_crawls(workspace, slug, {slice_.crawl for slice_ in slices})}
    if runs or crawls:
        holders = f" by {', '.join(dict.fromkeys(run.holder for run in runs))}" if runs else ""
        places = f" in {', '.join(sorted(crawls)[:5])}{' …' if len(crawls) > 5 else ''}" if crawls else ""
        raise EnvironmentFault(
            f"{slug} is being fetched{places}{holders}",
            "No captures were deleted. Wait for the end of that run, or stop the run; then run the command again. A "
            "run that was killed on another machine counts as running for an hour.",
        )


def resume_purges(workspace: Workspace) -> None:
    """Resumes purges whose rows are deleted, for maintenance, before it publishes: a fetch may have reused stored files
    of them, so that rows name these again. Raises ``EnvironmentFault``."""
    for note in _list_hidden_purges(workspace):
        files_by_crawl: dict[str, tuple[str, ...]] = {}
        for crawl, files in note.old.items():
            row_files = list_named_files(workspace.lake, crawl).files
            files_by_crawl[crawl] = tuple(file for file in files if file in row_files)
        killed_files = (find_killed_run_files(workspace.lake, workspace.storage, crawl).files for crawl in note.crawls)
        if any(files_by_crawl.values()) or any(note.files.values()) or any(killed_files):
            _clean_files(workspace, note.with_files(files_by_crawl))


def finish_purges(workspace: Workspace, retention: float = RETENTION_SECONDS) -> int:
    """Ends the purges that have nothing left to delete, for maintenance, after it has deleted files older than
    ``retention`` (seconds). Returns their number. Raises ``EnvironmentFault``."""
    return sum(_end_purge(workspace, note, retention) for note in _list_hidden_purges(workspace))


def delete_job_leftovers(workspace: Workspace, crawls: Collection[str]) -> int:
    """Deletes plans and table files of ``crawls`` that ended jobs left behind, and that no table names. Returns their
    number.

    Raises ``EnvironmentFault``.
    """
    place, storage = workspace.place, workspace.storage
    plans: dict[str, list[str]] = {}
    tables: dict[str, dict[str, str]] = {}
    active_commits: set[str] = set()
    for crawl in crawls:
        prefix = f"{storage.folder(crawl)}/{PLANS}/"
        for stored_file in place.listing(prefix):
            plans.setdefault(stored_file.key.removeprefix(prefix).partition("/")[0], []).append(stored_file.key)
        for table in _TABLES:
            for stored_file in place.listing(f"tables/{table}/crawl={quote(crawl, safe='')}/"):
                tables.setdefault(table, {})[stored_file.key.rpartition("/")[2]] = stored_file.key
    # after the listings
    for crawl in crawls:
        active_commits |= {fetch_lease.commit for fetch_lease in list_active_leases(storage, crawl)}
    keys_to_delete = [key for job, keys in plans.items() if job not in active_commits for key in keys]
    pinned = read_pinned_versions(place) if workspace.settings.has_separate_lake else {}
    for table, by_name in tables.items():
        commits_by_name = {name: match[1] for name in by_name if (match := _COMMIT.search(name))}
        ended = {name for name, commit in commits_by_name.items() if commit not in active_commits}
        if not ended or pinned is None:
            continue
        # most files are named now; to check the others costs a listing of all crawls
        now = workspace.lake.pin(table)
        ended -= {path.rpartition("/")[2] for crawl in crawls for path in list_crawl_files(now, crawl)}
        if ended:
            uncommitted = find_uncommitted_files(workspace.lake, table, pinned.get(table, ()))
            keys_to_delete += [by_name[name] for name in sorted(ended & uncommitted)]
    for key in keys_to_delete:
        place.delete(key)
    return len(keys_to_delete)


def remove_empty_targets(workspace: Workspace, slugs: Collection[str], slices: Sequence[Slice]) -> None:
    """Removes targets without captures: their empty slices and their definitions. Raises ``EnvironmentFault``, also if
    a run has one of them (no captures were deleted then)."""
    with _hold_purge_lease(workspace, slugs) as stopped_slices:
        for slug in slugs:
            refuse_if_fetching(workspace, slug, slices)
        _remove_rows(workspace, sorted({*slices, *stopped_slices}))
        targets.delete_definitions(workspace.lake, slugs)


def _list_hidden_purges(workspace: Workspace) -> list[PurgeNote]:
    """Returns the purges whose rows are deleted. Those killed before that must be repeated by a person."""
    notes = [note for note in list_unfinished_purges(workspace.place) if note.removed_at is not None]
    now = datetime.now(UTC)
    for place, note in enumerate(notes):
        if note.removed_at is not None and not is_plausible(note.removed_at.timestamp(), now.timestamp()):
            # the clock was wrong; otherwise its files would be kept for ever
            notes[place] = replace(note, removed_at=now)
            write_note(workspace.place, notes[place])
    return notes


def _begin_note(workspace: Workspace, plan: PurgePlan) -> PurgeNote:
    """Writes the note of a purge, with the content of that of an earlier killed purge."""
    earlier_note = read_note(workspace.place, plan.slug)
    crawls = {slice_.crawl for slice_ in plan.slices}
    files = {crawl: tuple(share.file for share in shares if share.records) for crawl, shares in plan.files.items()}
    note = earlier_note or PurgeNote(plan.slug, plan.definition)
    if note.removed_at is not None or not note.plan:
        note = replace(note, plan=plan.digest)
    note = note.with_files({crawl: file_names for crawl, file_names in files.items() if file_names})
    # a new purge of a target that was fetched again: its rows are not deleted yet
    hidden_at = (
        None
        if any(_find_nonempty(workspace, stage, plan.slices) for stage in _stages(workspace.lake))
        else note.removed_at
    )
    note = replace(note, crawls=tuple(sorted({*note.crawls, *crawls})), removed_at=hidden_at)
    write_note(workspace.place, note)
    return note


def _stages(lake: Lake, *, of_subset: bool = False) -> dict[Stage, list[str]]:
    """Returns the stages whose slices are deleted, in the order of :func:`purged_tables`, each with the tables that
    have one row per slice. ``of_subset``: only stages whose slices are deleted with a subset of a target."""
    stages: dict[Stage, list[str]] = {}
    for spec in purged_tables(lake):
        if spec.stage is not None and (spec.removed_with == "subset" or not of_subset):
            stages.setdefault(spec.stage, []).extend([spec.name] if spec.has_row_a_slice else [])
    return stages


def _remove_rows(workspace: Workspace, slices: Sequence[Slice], *, of_subset: bool = False) -> None:
    """Empties the slices, in one commit per table; parsed tables first, since they are published. ``of_subset`` skips
    tables whose rows belong to no subset.

    All slices are emptied in the tables of a run's stages, even those without rows: then a run cannot commit them any
    more, because its commit conflicts with this one. In other tables, slices with digests or rows are emptied.
    """
    lake = workspace.lake
    for first in range(0, len(slices), _SLICES_AT_ONCE):
        batch = slices[first : first + _SLICES_AT_ONCE]
        for stage, tables_of_notes in _stages(lake, of_subset=of_subset).items():
            for table in tables_of_notes:
                if lake.version(table) >= 0:
                    empty_notes(lake, table, batch)
            if filled_slices := batch if stage in _RUN_STAGES else _find_present(workspace, stage, batch):
                stage.empty(lake, filled_slices)
        progress.report("rows", first + len(batch), len(slices))


def _find_nonempty(workspace: Workspace, stage: Stage, slices: Sequence[Slice]) -> list[Slice]:
    """Returns the slices with rows in any table of ``stage``."""
    slices_by_name = {stage.digest_name(slice_): slice_ for slice_ in slices}
    nonempty_slices: set[Slice] = set()
    for table in stage.tables:
        digests = workspace.lake.digests(table, [*slices_by_name])
        nonempty_slices |= {
            slices_by_name[name] for name, digest in digests.items() if digest not in (None, EMPTIED_DIGEST)
        }
    return sorted(nonempty_slices)


def _find_present(workspace: Workspace, stage: Stage, slices: Sequence[Slice]) -> list[Slice]:
    """As :func:`_find_nonempty`, with slices that have rows but no digest."""
    present_slices = {*_find_nonempty(workspace, stage, slices)}
    for crawl, targets_ in group_targets_by_crawl(slices).items():
        for table in stage.tables:
            where = {"crawl": crawl, "target": targets_}
            present_slices |= {Slice(*key) for key in count_rows(workspace.lake, table, where, SLICE)}
    return sorted(present_slices)


def _clean_files(workspace: Workspace, note: PurgeNote) -> tuple[PurgeNote, int]:
    """Removes the records from the stored files of ``note``. Returns the new note and the number of rewritten files."""
    lake, storage = workspace.lake, workspace.storage
    moved = 0
    for crawl in sorted({*note.crawls, *note.files}):
        commit = uuid.uuid4().hex
        # the lease keeps files that are read or written here from being swept
        with lease(storage, crawl, commit) as fetch_lease, workspace.scratch_folder("purge") as scratch:
            # journals name the records, whether their rows were committed or not
            delete_committed(storage, crawl)
            killed = find_killed_run_files(lake, storage, crawl)
            note = note.with_files({crawl: killed.files} if killed.files else {})
            if killed.files:
                write_note(workspace.place, note)
            # lost tasks and earlier refetches left the same bytes in files that no row names
            if free := find_orphan_files(storage, crawl, partial(list_named_files, lake, crawl), commit):
                note = note.with_finished_files(crawl, tuple(free))
                write_note(workspace.place, note)
            sizes = {
                stored_file.key: stored_file.size
                for stored_file in storage.transport.listing(f"{storage.folder(crawl)}/")
            }
            files = note.files.get(crawl, ())
            for number, batch in enumerate(_batch_files(files, sizes)):
                progress.report("stored files", number * _FILES_AT_ONCE, len(files), crawl)
                moved += move_records(
                    lake, storage, crawl, {file: sizes[file] for file in batch if file in sizes},
                    f"{crawl}-{commit}-{number:03d}", scratch, killed,
                )  # fmt: skip
                fetch_lease.confirm()
                note = note.with_finished_files(crawl, tuple(batch))
                write_note(workspace.place, note)
    return note, moved


def _batch_files(files: Sequence[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    return group_within(files, (_FILES_AT_ONCE, _BYTES_AT_ONCE), lambda file: (1, sizes.get(file, 0)))


def _finish(workspace: Workspace, plan: PurgePlan, note: PurgeNote, moved: int, *, now: bool) -> PurgeReport:
    retention = 0.0 if now else RETENTION_SECONDS
    for crawl, files in note.all_files.items():
        sweep(workspace.storage, crawl, partial(list_named_files, workspace.lake, crawl), retention, only=files)
    lake = workspace.lake
    pinned = read_pinned_versions(workspace.place) if workspace.settings.has_separate_lake else {}
    for table in lake.specs:
        if pinned is None:
            break
        if now:
            vacuum(lake, table, None, pinned.get(table, ()))
        elif _is_past(note, retention):
            vacuum(lake, table, keep=pinned.get(table, ()))
    waiting = _find_remaining(workspace, note)
    ended = _end_purge(workspace, note, retention)
    named_by_crawl = {crawl: {*list_named_files(lake, crawl).files} & {*files} for crawl, files in waiting.items()}
    removed = note.removed_at or datetime.now(UTC)
    return PurgeReport(
        plan,
        moved,
        sum(map(len, waiting.values())),
        tuple(crawl for crawl, files in named_by_crawl.items() if files),
        None if ended else datetime.fromtimestamp(removed.timestamp() + RETENTION_SECONDS, UTC),
        find_leftovers(workspace, plan.slug, note.crawls) if ended else None,
    )


def _end_purge(workspace: Workspace, note: PurgeNote, retention: float) -> bool:
    """Removes the note once all its files are deleted; returns whether it did."""
    if not _is_past(note, retention) or _find_remaining(workspace, note):
        return False
    end_note(workspace.place, note.slug)
    return True


def _is_past(note: PurgeNote, retention: float) -> bool:
    return note.removed_at is not None and time.time() - note.removed_at.timestamp() >= retention


def _find_remaining(workspace: Workspace, note: PurgeNote) -> dict[str, Collection[str]]:
    remaining: dict[str, Collection[str]] = {}
    for crawl, files in note.all_files.items():
        stored_keys = {
            stored_file.key for stored_file in workspace.place.listing(f"{workspace.storage.folder(crawl)}/")
        }
        if present_keys := stored_keys & {*files}:
            remaining[crawl] = present_keys
    return remaining
