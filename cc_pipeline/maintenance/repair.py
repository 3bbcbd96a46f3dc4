"""Takes damaged files out of tables. Slices then have fewer rows than they were committed with: ``doctor --repair``
marks them, so that the next run makes them again.

Every damaged file is kept in the table's folder ``_torn``.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from deltalake.exceptions import DeltaError

from cc_pipeline.lake.damaged_files import BLOCKED, DamagedFile, find_damaged_files
from cc_pipeline.lake.lake import Lake, lake_fault

#: Folder in that of a table for damaged files. Readers skip the prefix.
KEPT_FOLDER: Final = "_torn"


def repair_tables(lake: Lake) -> list[DamagedFile]:
    """Takes the damaged files away on which no later commit depends, and returns them; ``find_damaged_files`` finds the
    others. Those of the list of blocked sites stay. Raises ``EnvironmentFault`` if the lake cannot be read or
    written."""
    repaired: list[DamagedFile] = []
    for table in lake.specs.keys() - {BLOCKED}:
        # the files of rows are known once the log can be read
        for _ in ("log", "rows"):
            damaged_files = find_damaged_files(lake, table)
            if not damaged_files or any(damaged_file.is_needed for damaged_file in damaged_files):
                break
            try:
                repaired += _take_out(lake, table, damaged_files)
            except (OSError, DeltaError) as error:
                raise lake_fault(f"could not repair {lake.address(table)}", error) from error
            lake.forget(table)
    return repaired


def _take_out(lake: Lake, table: str, damaged_files: list[DamagedFile]) -> list[DamagedFile]:
    """Takes files out of a table; none if another process committed meanwhile."""
    row_files = [damaged_file.file for damaged_file in damaged_files if damaged_file.file is not None]
    if row_files:
        with lake.fixed(table) as handle:
            if not lake.swap(table, handle, [], row_files):
                return []
    else:
        # it may name a checkpoint that goes
        with suppress(FileNotFoundError):
            _keep(lake, table, f"{lake.address(table)}/_delta_log/_last_checkpoint")
    for damaged_file in damaged_files:
        with suppress(FileNotFoundError):
            _keep(lake, table, damaged_file.path)
    return damaged_files


def _keep(lake: Lake, table: str, path: str) -> None:
    files = lake.file_system()
    folder = f"{lake.address(table).removeprefix('s3://')}/{KEPT_FOLDER}"
    if "://" not in lake.root:
        files.create_dir(folder)
    files.move(path, f"{folder}/{path.rpartition('/')[2]}")
