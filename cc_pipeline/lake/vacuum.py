"""Deletes files of tables that nobody can need any more: the work of upkeep. No table's rows change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.fs import FileSelector

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.lake import Lake, TableSpec, lake_fault

#: How long entries of a log stay: the library's own time, which it takes from when they were written.
_LOG_KEPT = timedelta(days=30)
#: Hours for which superseded files of a table stay at least: readers may have them open, and a commit under way has
#: files that no version names yet.
RETENTION_FLOOR_HOURS = 168


def vacuum(lake: Lake, table: str, retention_hours: int = RETENTION_FLOOR_HOURS, keep: Collection[int] = ()) -> int:
    """Deletes files that were superseded, or written and never committed, more than ``retention_hours`` ago, and
    that none of the versions in ``keep`` names; gives how many.

    For superseded files the log says when, however old they are. For files that no commit ever named (those of a
    killed process, and those of a commit under way) their own age counts. Fewer hours than
    ``RETENTION_FLOOR_HOURS`` are taken for that many. ``table`` may be one that this version no longer has.
    Raises ``EnvironmentFault``.
    """
    spec = lake.specs.get(table) or TableSpec(table, pa.schema([]))
    handle = lake.handle(spec)
    if handle is None:
        return 0
    kept = [version for version in sorted(keep) if _has_version(lake, spec, version)]
    hours = max(retention_hours, RETENTION_FLOOR_HOURS)
    try:
        return _delete(lake, table, handle, retention_hours=hours, full=True, keep_versions=kept or None)
    except (OSError, DeltaError) as error:
        raise lake_fault(f"could not delete superseded files of {lake.address(table)}", error) from error


def clean_log(lake: Lake, table: str, keep: Collection[int] = ()) -> int:
    """Deletes entries of a table's log that are older than a month (``delta.logRetentionDuration``, 30 days), up to the
    newest checkpoint behind which none of them is; gives how many.

    What the table says stays, the digests of slices among it: the checkpoint has it all. Versions before it can be read
    no more, so that nothing is deleted while any in ``keep`` is. Raises ``EnvironmentFault``.
    """
    spec = lake.specs.get(table) or TableSpec(table, pa.schema([]))
    lake.look_again(table)
    handle = lake.handle(spec)
    if handle is None:
        return 0
    try:
        before = _log_entries(lake, table)
        old = datetime.now(UTC) - _LOG_KEPT
        # what the library deletes ends at the newest checkpoint that is not behind the first young entry: one that is
        # young itself, where everything before it is old
        young = [version for version, written in before.entries.items() if written >= old]
        whole = [version for version in before.checkpoints if version <= min(young, default=handle.version())]
        if not whole or any(version < max(whole) for version in keep):
            return 0
        handle.cleanup_metadata()
        return len(before.entries) - len(_log_entries(lake, table).entries)
    except (OSError, DeltaError) as error:
        raise lake_fault(f"could not delete old entries of the log of {lake.address(table)}", error) from error


@dataclass(frozen=True, slots=True)
class _Log:
    """The versions that have an entry in the log, with when it was written, and those that have a checkpoint."""

    entries: Mapping[int, datetime]
    checkpoints: Collection[int]


def _log_entries(lake: Lake, table: str) -> _Log:
    folder = f"{lake.address(table).removeprefix('s3://')}/_delta_log"
    entries, checkpoints = {}, []
    for info in lake.file_system().get_file_info(FileSelector(folder)):
        version, _, kind = info.base_name.partition(".")
        if version.isdigit() and kind == "json":
            entries[int(version)] = info.mtime
        elif version.isdigit() and kind == "checkpoint.parquet":
            checkpoints.append(int(version))
    return _Log(entries, checkpoints)


def never_committed(lake: Lake, table: str, keep: Collection[int] = ()) -> set[str]:
    """The names of files in a table's folder that no version names which the log still has, nor any in ``keep``: those
    of killed processes, and those of commits under way. Raises ``EnvironmentFault``."""
    spec = lake.specs[table]
    handle = lake.handle(spec)
    if handle is None:
        return set()
    kept = [version for version in sorted(keep) if _has_version(lake, spec, version)]
    try:
        unneeded, superseded = (
            handle.vacuum(
                retention_hours=0, enforce_retention_duration=False, dry_run=True, full=full, keep_versions=kept or None
            )
            for full in (True, False)
        )
    except (OSError, DeltaError) as error:
        raise lake_fault(f"could not look for files that {lake.address(table)} does not name", error) from error
    return {path.rpartition("/")[2] for path in unneeded} - {path.rpartition("/")[2] for path in superseded}


def vacuum_now(lake: Lake, table: str, keep: Collection[int] = ()) -> int:
    """Deletes all superseded files of a table that none of the versions in ``keep`` names, whoever reads them; gives
    how many.

    Files that no commit has named are left alone: those of a commit under way are among them. Raises
    ``EnvironmentFault``.
    """
    spec = lake.specs[table]
    handle = lake.handle(spec)
    if handle is None:
        return 0
    kept = [version for version in sorted(keep) if _has_version(lake, spec, version)]
    try:
        return _delete(
            lake, table, handle, retention_hours=0, enforce_retention_duration=False, keep_versions=kept or None
        )
    except (OSError, DeltaError) as error:
        raise lake_fault(f"could not delete superseded files of {lake.address(table)}", error) from error


def _delete(lake: Lake, table: str, handle: DeltaTable, **chosen: Any) -> int:
    """Deletes the ``chosen`` files, which the library notes in the log; gives how many."""
    gone: list[str] = []
    vacuum_files = partial(handle.vacuum, dry_run=False, **chosen)
    lake.commit_durably(
        table, handle.version(), lambda hooks: gone.extend(vacuum_files(post_commithook_properties=hooks))
    )
    return len(gone)


def _has_version(lake: Lake, spec: TableSpec, version: int) -> bool:
    # a version whose log has been cleaned away cannot be kept, nor be read
    try:
        return lake.open(spec, version) is not None
    except EnvironmentFault:
        return False
