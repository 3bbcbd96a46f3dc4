"""Deletes files of tables that no reader can need any more: a part of maintenance. No table's rows change."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from functools import partial

from deltalake.exceptions import DeltaError
from pyarrow.fs import FileSelector

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.lake import Lake, TableSpec, lake_fault

#: How long entries of a log stay: the library's own time, counted from when they were written.
_LOG_RETENTION = timedelta(days=30)
#: Hours for which superseded files of a table stay at least: readers may have them open, and a commit in progress has
#: files that no version names yet.
RETENTION_FLOOR_HOURS = 168


def vacuum(
    lake: Lake, table: str, retention_hours: int | None = RETENTION_FLOOR_HOURS, keep: Collection[int] = ()
) -> int:
    """Deletes files that were superseded, or written and never committed, more than ``retention_hours`` ago, and that
    none of the versions in ``keep`` names. Returns how many.

    For superseded files the log has the time, however old they are. For files that no commit ever named (of a killed
    process, or of a commit under way) their own age counts. ``RETENTION_FLOOR_HOURS`` is the minimum. With ``None`` all
    superseded files are deleted, even if they are being read, and files that no commit has named stay. Raises
    ``EnvironmentFault``.
    """
    spec = lake.specs[table]
    handle = lake.handle(spec)
    if handle is None:
        return 0
    vacuum_files = partial(
        handle.vacuum,
        retention_hours=0 if retention_hours is None else max(retention_hours, RETENTION_FLOOR_HOURS),
        enforce_retention_duration=retention_hours is not None,
        full=retention_hours is not None,
        keep_versions=_kept_versions(lake, spec, keep),
        dry_run=False,
    )
    deleted: list[str] = []
    try:
        lake.commit_durably(
            table, handle.version(), lambda hooks: deleted.extend(vacuum_files(post_commithook_properties=hooks))
        )
    except (OSError, DeltaError) as error:
        raise lake_fault(f"could not delete superseded files of {lake.address(table)}", error) from error
    return len(deleted)


def clean_log(lake: Lake, table: str, keep: Collection[int] = ()) -> int:
    """Deletes entries of a table's log that are older than a month (``delta.logRetentionDuration``, 30 days). Returns
    how many.

    It stops at the newest checkpoint that no old entry follows: the checkpoint has the table's whole state. Earlier
    versions cannot be read any more, so nothing is deleted if that would remove a version in ``keep``. Raises
    ``EnvironmentFault``.
    """
    spec = lake.specs[table]
    handle = lake.handle(spec)
    if handle is None:
        return 0
    try:
        entries, checkpoints = _log_entries(lake, table)
        cutoff = datetime.now(UTC) - _LOG_RETENTION
        # the library deletes up to the newest checkpoint that is not after the first young entry: one that is young
        # itself, if everything before it is old
        young_versions = [version for version, written in entries.items() if written >= cutoff]
        newest_covered = min(young_versions, default=handle.version())
        covering_checkpoints = [version for version in checkpoints if version <= newest_covered]
        if not covering_checkpoints or any(version < max(covering_checkpoints) for version in keep):
            return 0
        handle.cleanup_metadata()
        return len(entries) - len(_log_entries(lake, table)[0])
    except (OSError, DeltaError) as error:
        raise lake_fault(f"could not delete old entries of the log of {lake.address(table)}", error) from error


def _log_entries(lake: Lake, table: str) -> tuple[dict[int, datetime], list[int]]:
    """The versions that have an entry in the log, with its time, and those that have a checkpoint."""
    folder = f"{lake.address(table).removeprefix('s3://')}/_delta_log"
    entries, checkpoints = {}, []
    for info in lake.file_system().get_file_info(FileSelector(folder)):
        version, _, kind = info.base_name.partition(".")
        if version.isdigit() and kind == "json":
            entries[int(version)] = info.mtime
        elif version.isdigit() and kind == "checkpoint.parquet":
            checkpoints.append(int(version))
    return entries, checkpoints


def _kept_versions(lake: Lake, spec: TableSpec, keep: Collection[int]) -> list[int] | None:
    return [version for version in sorted(keep) if _has_version(lake, spec, version)] or None


def _has_version(lake: Lake, spec: TableSpec, version: int) -> bool:
    # a version whose log has been cleaned away cannot be kept, nor be read
    try:
        return lake.open(spec, version) is not None
    except EnvironmentFault:
        return False
