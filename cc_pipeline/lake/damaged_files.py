"""Finds files of a table that are missing or incomplete, as a failing disk or a person leaves them.

A commit is on disk before it returns, so a power cut can tear only the newest entry of a log, or a checkpoint: nobody
was told of that commit. ``maintenance/repair.py`` takes damaged files out of the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.layout import StoredFile

if TYPE_CHECKING:
    from cc_pipeline.lake.lake import Lake, PinnedTable

REPAIR: Final = "cc-pipeline doctor --repair"
#: The advice of read errors that may come from a damaged file.
DAMAGE_ADVICE: Final = "Run cc-pipeline doctor: it finds incomplete files of a table."
#: The table of blocked sites, which a person wrote: without its rows, these sites would be fetched again.
BLOCKED: Final = "blocked"
_CHECKPOINT: Final = ".checkpoint.parquet"


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A file of a table that is ``missing`` or ``incomplete`` (``state``), with its path. ``file`` is set for a file of
    rows, else it is one of the log. Later commits are built on a file that ``is_needed``: nothing can replace it."""

    table: str
    path: str
    state: str
    file: StoredFile | None = None
    is_needed: bool = False

    @property
    def text(self) -> str:
        """The problem, for a person."""
        kind = "the log" if self.file is None else "the rows"
        return f"a file of {kind} of {self.table} is {self.state}: {self.path}"

    @property
    def advice(self) -> str:
        """The advice for a person."""
        folder = self.path.partition(f"/{self.table}/")[0] + f"/{self.table}"
        if self.table == BLOCKED:
            return (
                "Restore the file from a backup: until then nothing is fetched. Without a backup, rename the folder "
                f"{folder} and block the sites again: cc-pipeline targets block"
            )
        if self.is_needed:
            return (
                "Restore the file from a backup. Without a backup, rename the folder "
                f"{folder}: cc-pipeline run then makes all slices of the table again, from stored records"
            )
        consequence = "" if self.file is None else "; the next run makes its slices again"
        return f"{REPAIR} takes the file out of the table{consequence}"


def find_damaged_files(lake: Lake, table: str) -> list[DamagedFile]:
    """The damaged files of a table: of its log, or, if that can be read, of its rows. Raises ``EnvironmentFault``."""
    address = lake.address(table)
    try:
        # an object of a bucket is complete or missing
        log_files = [] if "://" in address else [*_find_log_files(lake.file_system(), address, table)]
    except OSError as error:
        raise EnvironmentFault(
            f"could not look at {address}: {error}", "Check the lake's disk and its rights."
        ) from error
    return log_files or find_damaged_row_files(lake, lake.pin(table))


def _find_log_files(files: FileSystem, folder: str, table: str) -> Iterator[DamagedFile]:
    """The checkpoints, and the entries that no complete checkpoint covers, that the library cannot read."""
    infos = files.get_file_info(FileSelector(f"{folder}/_delta_log", allow_not_found=True))
    checkpoints = [info for info in infos if info.base_name.endswith(_CHECKPOINT)]
    cut = [info for info in checkpoints if not _is_parquet(files, info.path)]
    yield from (DamagedFile(table, info.path, "incomplete") for info in cut)
    covered = max((_version_of(info) for info in checkpoints if info not in cut), default=-1)
    entries = [info for info in infos if info.extension == "json" and _version_of(info) > covered]
    newest = max(map(_version_of, entries), default=covered)
    for info in entries:
        # the library takes an empty entry for a commit without changes, except for the first, which has the columns
        if (info.size or not _version_of(info)) and not _has_actions(files, info.path):
            yield DamagedFile(table, info.path, "incomplete", is_needed=_version_of(info) < newest)


def _version_of(info: FileInfo) -> int:
    name = info.base_name.partition(".")[0]
    return int(name) if name.isdigit() else -1


def _is_parquet(files: FileSystem, path: str) -> bool:
    try:
        with files.open_input_file(path) as source:
            pq.ParquetFile(source, pre_buffer=False)
    except (pa.ArrowException, ValueError):
        return False
    return True


def _has_actions(files: FileSystem, path: str) -> bool:
    with files.open_input_file(path) as source:
        lines = bytes(source.read()).splitlines()
    try:
        return bool(lines) and all(isinstance(json.loads(line), dict) for line in lines if line.strip())
    except ValueError:
        return False


def find_damaged_row_files(lake: Lake, pinned: PinnedTable) -> list[DamagedFile]:
    """The files of a pinned table that have another size than the log says, or are missing: one listing. Raises
    ``EnvironmentFault``."""
    if not pinned.files:
        return []
    folder = lake.address(pinned.spec.name).removeprefix("s3://")
    try:
        infos = lake.file_system().get_file_info(FileSelector(folder, allow_not_found=True, recursive=True))
    except OSError as error:
        raise EnvironmentFault(
            f"could not list {folder}: {error}", "Check the lake's disk or bucket and its rights."
        ) from error
    sizes = {info.path: info.size for info in infos if info.type == FileType.File}
    return [
        DamagedFile(pinned.spec.name, path, "missing" if path not in sizes else "incomplete", file)
        for file in pinned.stored_files()
        if sizes.get(path := f"{folder}/{file.path}") != file.size
    ]
