"""Finds damaged files of a table: incomplete files that a power cut, a full disk or a person left of a commit.

A commit is an entry of the table's log and the files that it names. An empty entry has no content, so the library takes
it for a commit without changes; half an entry, or half a checkpoint, stops every process that opens the table.
``maintenance/repair.py`` takes them out of the table.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.layout import StoredFile, list_stored_files

if TYPE_CHECKING:
    from cc_pipeline.lake.lake import Lake, PinnedTable

#: Kinds of files of a table.
ENTRY: Final = "entry"
CHECKPOINT: Final = "checkpoint"
HINT: Final = "hint"
ROWS: Final = "rows"
#: The last bytes of a Parquet file.
_MAGIC: Final = b"PAR1"
#: Files that are read in parallel.
_PARALLEL_READS: Final = 8
REPAIR: Final = "cc-pipeline doctor --repair"
#: The advice of read errors that may come from a damaged file.
DAMAGE_ADVICE: Final = "Run cc-pipeline doctor: it finds incomplete files of a table."


class DamagedTable(EnvironmentFault):
    """A table has an incomplete file."""


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A file of a table that is ``missing``, ``empty``, ``cut`` or ``unreadable`` (``state``): its ``kind`` and
    address. ``version`` is that of an entry or a checkpoint, and the table's if ``rows`` are lost. ``later_commits`` is
    the number of commits after an entry or a checkpoint."""

    table: str
    kind: str
    path: str
    state: str
    version: int
    later_commits: int = 0
    file: StoredFile | None = None

    @property
    def is_lost(self) -> bool:
        """Whether later commits were built on the file, so that nothing can replace it."""
        return self.kind == ENTRY and bool(self.version) and self.state != "empty" and self.later_commits > 0

    @property
    def is_harmless(self) -> bool:
        """Whether the table can be read as if the file were not there."""
        return self.kind == HINT or (
            self.kind == ENTRY and bool(self.version) and not self.is_lost and self.later_commits > 0
        )

    @property
    def text(self) -> str:
        """The problem, for a person."""
        if self.kind == CHECKPOINT:
            return f"a checkpoint of {self.table} is incomplete: {self.path} is {self.state}"
        if self.kind == HINT:
            return f"{self.path} is {self.state}: the log of {self.table} is listed instead"
        if self.kind == ROWS:
            return f"a file of {self.table} is incomplete: {self.path} is {self.state}"
        built = f", and {self.later_commits:,} later ones were built on it" if self.later_commits else ""
        commit = "a commit" if self.later_commits else "the last commit"
        return f"{commit} of {self.table} is incomplete: {self.path} is {self.state}{built}"

    @property
    def advice(self) -> str:
        """The advice for a person."""
        if self.is_lost:
            folder = self.path.partition("/_delta_log/")[0]
            return (
                "Restore the file from a backup. Without a backup, rename the folder "
                f"{folder}: cc-pipeline run then makes all slices of the table again, from stored records"
            )
        if self.kind == ROWS:
            return f"{REPAIR} takes the file out of the table; the next run makes its slices again"
        return f"{REPAIR} moves the incomplete file away"

    def fault(self) -> DamagedTable:
        """The fault for a process that reads the file."""
        return DamagedTable(self.text, f"{self.advice[0].upper()}{self.advice[1:]}.")


def log_folder(folder: str) -> str:
    """The folder of a table's log."""
    return f"{folder.removeprefix('s3://')}/_delta_log"


def find_damaged_log_files(files: FileSystem, folder: str, table: str, *, read: bool = True) -> list[DamagedFile]:
    """The incomplete files of a table's log, the newest first: entries that the newest complete checkpoint does not
    cover, checkpoints, and the hint that names one. Without ``read`` only their sizes count. Raises ``OSError``."""
    entries: dict[int, FileInfo] = {}
    checkpoints: dict[int, FileInfo] = {}
    hint = None
    for info in files.get_file_info(FileSelector(log_folder(folder), allow_not_found=True)):
        number, _, kind = info.base_name.partition(".")
        if info.base_name == "_last_checkpoint":
            hint = info
        elif number.isdigit() and kind == "json":
            entries[int(number)] = info
        elif number.isdigit() and kind == "checkpoint.parquet":
            checkpoints[int(number)] = info
    newest = max([*entries, *checkpoints], default=-1)
    damaged: list[DamagedFile] = []
    base = -1
    for version in sorted(checkpoints, reverse=True):
        state = _check_checkpoint(files, checkpoints[version], read=read)
        if state is None:
            base = version
            break
        damaged.append(DamagedFile(table, CHECKPOINT, checkpoints[version].path, state, version, newest - version))
    for version in range(newest, base, -1):
        entry = entries.get(version)
        state = "missing" if entry is None else _check_entry(files, entry, read=read)
        if state is not None:
            path = f"{log_folder(folder)}/{version:020}.json"
            damaged.append(DamagedFile(table, ENTRY, path, state, version, newest - version))
    if hint is not None and (state := _check_hint(files, hint)) is not None:
        damaged.append(DamagedFile(table, HINT, hint.path, state, newest))
    return sorted(damaged, key=lambda damaged_file: (damaged_file.kind == HINT, -damaged_file.version))


def _check_entry(files: FileSystem, entry: FileInfo, *, read: bool) -> str | None:
    if not entry.size or not read:
        return None if entry.size else "empty"
    return "cut" if None in parse_actions(read_file(files, entry.path)) else None


def parse_actions(data: bytes) -> list[dict[str, object] | None]:
    """The actions of a log's entry, ``None`` for a line that is none."""
    actions: list[dict[str, object] | None] = []
    for line in data.splitlines():
        try:
            action = json.loads(line) if line.strip() else {}
        except ValueError:
            action = None
        actions.append(action if isinstance(action, dict) else None)
    return actions


def read_file(files: FileSystem, path: str) -> bytes:
    """The bytes of a file."""
    with files.open_input_file(path) as source:
        return bytes(source.read())


def _check_checkpoint(files: FileSystem, checkpoint: FileInfo, *, read: bool) -> str | None:
    if not checkpoint.size or not read:
        return None if checkpoint.size else "empty"
    try:
        with files.open_input_file(checkpoint.path) as source:
            pq.ParquetFile(source, pre_buffer=False)
    except (pa.ArrowException, ValueError):
        return "cut"
    return None


def _check_hint(files: FileSystem, hint: FileInfo) -> str | None:
    if not hint.size:
        return "empty"
    try:
        int(json.loads(read_file(files, hint.path))["version"])
    except (ValueError, KeyError, TypeError):
        return "cut"
    return None


def find_damaged_row_files(lake: Lake, table: str, *, read_ends: bool = True) -> list[DamagedFile]:
    """The files that the newest version of a table names, and that do not match it. ``read_ends`` looks at the last
    bytes of each too. Raises ``EnvironmentFault`` and ``OSError``."""
    handle = lake.handle(lake.specs[table])
    if handle is None:
        return []
    folder = lake.address(table).removeprefix("s3://")
    files = lake.file_system()
    sizes = _read_sizes(lake, table)

    def check(file: StoredFile) -> str | None:
        state = _compare_size(sizes.get(file.path), file.size)
        if state is not None or not read_ends:
            return state
        return None if _last_bytes(files, f"{folder}/{file.path}") == _MAGIC else "unreadable"

    named_files = list_stored_files(lake.specs[table], handle)
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        states = [*pool.map(check, named_files)]
    return [
        DamagedFile(table, ROWS, f"{folder}/{file.path}", state, handle.version(), file=file)
        for file, state in zip(named_files, states, strict=True)
        if state is not None
    ]


def find_damaged_paths(lake: Lake, pinned: PinnedTable) -> list[str]:
    """The paths, below the folder of a pinned table, of its files that do not match the log: one listing. Empty for a
    place on S3, where an object is complete or missing. Raises ``EnvironmentFault``."""
    if "://" in lake.root or not pinned.files:
        return []
    sizes = _read_sizes(lake, pinned.spec.name)
    return [file.path for file in pinned.stored_files() if _compare_size(sizes.get(file.path), file.size)]


def _read_sizes(lake: Lake, table: str) -> dict[str, int]:
    """The bytes of each file below a table's folder, by its path there."""
    folder = lake.address(table).removeprefix("s3://")
    file_infos = lake.file_system().get_file_info(FileSelector(folder, allow_not_found=True, recursive=True))
    start = len(Path(folder).as_posix()) + 1
    return {info.path[start:]: info.size for info in file_infos if info.type == FileType.File}


def _compare_size(actual: int | None, expected: int) -> str | None:
    if actual is None:
        return "missing"
    if not actual:
        return "empty"
    return None if actual == expected else "cut"


def _last_bytes(files: FileSystem, path: str) -> bytes:
    with files.open_input_file(path) as source:
        source.seek(max(0, source.size() - len(_MAGIC)))
        return bytes(source.read())


def find_damaged_files(lake: Lake, table: str) -> list[DamagedFile]:
    """The incomplete files of a table: of its log, and, if that can be read, of its rows.

    Raises ``EnvironmentFault`` if the place does not say.
    """
    is_folder = "://" not in lake.root
    try:
        # an object of a bucket is complete or missing, so reading each would be for nothing
        damaged = find_damaged_log_files(lake.file_system(), lake.address(table), table, read=is_folder)
        if all(damaged_file.is_harmless for damaged_file in damaged):
            damaged += find_damaged_row_files(lake, table, read_ends=is_folder)
        return damaged
    except OSError as error:
        raise EnvironmentFault(
            f"could not look at {lake.address(table)}: {error}", "Check the lake's disk or bucket and permissions."
        ) from error
