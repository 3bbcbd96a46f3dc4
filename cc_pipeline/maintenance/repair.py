"""Takes damaged files out of tables, and marks the slices that lost rows, so that the next run makes them again.

An entry of a log that is not complete is replaced by one without changes. A file of rows that is missing or cut is
taken out of its table, once the slices that lose rows are marked (``lake/live_rows.py``). Every damaged file is kept in
the table's folder ``_torn``. Each step is one commit or one replaced file: a killed repair continues where it stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake.exceptions import DeltaError

from cc_pipeline.atomic import write_whole
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import UserInputError
from cc_pipeline.lake import target_definitions as definitions
from cc_pipeline.lake.damaged_files import CHECKPOINT, ENTRY, ROWS, DamagedFile, find_damaged_files, log_folder
from cc_pipeline.lake.lake import Lake, lake_fault
from cc_pipeline.lake.live_rows import find_live_rows
from cc_pipeline.lake.slice import Stage
from cc_pipeline.lake.slices import SLICES, invalidate_slices

#: Folder in that of a table for damaged files, named with the time of their removal. Readers skip the prefix.
KEPT_FOLDER: Final = "_torn"
#: Maximum number of repair steps for one table; each repairs one file of its log, or all files of rows.
_MAX_STEPS: Final = 1_000


@dataclass(frozen=True, slots=True)
class FileRepair:
    """A damaged file that was taken away, and the path of its copy (``None`` if there was no file)."""

    damaged_file: DamagedFile
    kept_path: str | None


def repair_tables(lake: Lake, cache: Path) -> list[FileRepair]:
    """Repairs damaged files on which no later commit depends; ``find_damaged_files`` finds the others. ``cache`` is the
    folder for the counts of files. Raises ``EnvironmentFault`` if the lake cannot be read or written."""
    repairs: list[FileRepair] = []
    for table in lake.specs:
        for _ in range(_MAX_STEPS):
            damaged_files = find_damaged_files(lake, table)
            # without the entries, the checkpoint is the only record of the table
            if not damaged_files or any(damaged_file.is_lost for damaged_file in damaged_files):
                break
            try:
                repairs += _repair(lake, table, damaged_files, cache)
            except (OSError, DeltaError) as error:
                raise lake_fault(f"could not repair {lake.address(table)}", error) from error
            lake.forget(table)
    return repairs


def restore_definitions(lake: Lake, watched: Sequence[Target] = ()) -> list[str]:
    """Restores the definitions of targets that have slices and no definition, and of parts of sets: from ``watched``,
    or from their keys. Returns the slugs of the others. Raises ``EnvironmentFault``."""
    lost = definitions.find_lost_definitions(lake)
    found = {target.slug: target for target in watched if target.slug in lost or target.kind == "set"}
    for slug in lost:
        with suppress(UserInputError):
            target = parse_target(slug)
            if target.slug == slug:
                found.setdefault(slug, target)
    definitions.register(lake, [*found.values()])
    return [slug for slug in lost if slug not in found]


def _repair(lake: Lake, table: str, damaged_files: Sequence[DamagedFile], cache: Path) -> list[FileRepair]:
    first = damaged_files[0]
    if first.kind == ROWS:
        if lake.specs[table].has_slices:
            _invalidate_slices(lake, table, damaged_files, cache)
        return _take_out(lake, table, damaged_files)
    if first.kind == CHECKPOINT:
        _keep_copy(lake, table, f"{log_folder(lake.address(table))}/_last_checkpoint", move=True)
    kept_path = _keep_copy(lake, table, first.path, move=first.kind != ENTRY)
    if first.kind == ENTRY:
        _write(lake, first.path, _build_entry(lake, first))
    return [FileRepair(first, kept_path)]


def _invalidate_slices(lake: Lake, table: str, damaged_files: Sequence[DamagedFile], cache: Path) -> None:
    """Marks the slices with rows in the files, before readers find fewer rows of them: if the repair is killed then, a
    run makes them again."""
    slices, pinned = lake.pin(SLICES.name), lake.pin(table)
    assert pinned.actions is not None
    lost = {damaged_file.file.path for damaged_file in damaged_files if damaged_file.file is not None}
    is_whole = pa.array([unquote(path) not in lost for path in pinned.actions["path"].to_pylist()], pa.bool_())
    rest = replace(pinned, actions=pinned.actions.filter(is_whole))
    incomplete = find_live_rows(lake, [slices, rest], cache).incomplete
    for label in {one.stage for one in incomplete}:
        invalidate_slices(lake, Stage(label, ()), [one.slice_ for one in incomplete if one.stage == label])


def _take_out(lake: Lake, table: str, damaged_files: Sequence[DamagedFile]) -> list[FileRepair]:
    """Takes files of rows out of a table; none if another process committed meanwhile."""
    files = [damaged_file.file for damaged_file in damaged_files if damaged_file.file is not None]
    with lake.fixed(table) as handle:
        if not lake.swap(table, handle, [], files):
            return []
    return [FileRepair(one, _keep_copy(lake, table, one.path, move=True)) for one in damaged_files]


def _keep_copy(lake: Lake, table: str, path: str, *, move: bool) -> str | None:
    """Moves or copies a file to the folder ``_torn``. Returns the new path; ``None`` if there is no file."""
    files = lake.file_system()
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    folder = f"{lake.address(table).removeprefix('s3://')}/{KEPT_FOLDER}"
    kept_path = f"{folder}/{path.rpartition('/')[2]}.{stamp}"
    try:
        if "://" not in lake.root:
            files.create_dir(folder)
        files.copy_file(path, kept_path)
        if move:
            files.delete_file(path)
    except FileNotFoundError:
        return None
    return kept_path


def _build_entry(lake: Lake, damaged_file: DamagedFile) -> bytes:
    """An entry without changes; the first one of a log has the columns of the table."""
    if damaged_file.version:
        info = {"timestamp": int(time.time() * 1_000), "operation": "TAKE BACK", "operationParameters": {}}
        return (json.dumps({"commitInfo": info}) + "\n").encode()
    with TemporaryDirectory() as folder:
        like = Lake(folder, [lake.specs[damaged_file.table]])
        like.prepare(damaged_file.table)
        return Path(f"{log_folder(like.address(damaged_file.table))}/{0:020}.json").read_bytes()


def _write(lake: Lake, path: str, data: bytes) -> None:
    if "://" not in lake.root:
        write_whole(Path(path), data, durable=True)
        return
    with lake.file_system().open_output_stream(path) as sink:
        sink.write(data)
