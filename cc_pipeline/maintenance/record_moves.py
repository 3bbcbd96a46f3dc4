"""Moves the stored records that stay to new files if others of their files are deleted, and updates their rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline import SOFTWARE
from cc_pipeline.archive.gzip_members import inflate_member
from cc_pipeline.atomic import sync
from cc_pipeline.errors import DataFault, EnvironmentFault, disk_trouble
from cc_pipeline.lake.files import write_rows
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import FETCH, slices_of
from cc_pipeline.lake.slices import Base, SlicesChanged, commit_slices, draw_generations, read_epochs, read_slice_rows
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.maintenance.purge_plan import as_places, rows_of_files
from cc_pipeline.records.file_leases import list_active_leases
from cc_pipeline.records.locations import PLACE_NAME, LocationCollector, LocationIndex
from cc_pipeline.records.segments import SUFFIXES, Row, adopt, delete_journals, journal_rows, segment_head
from cc_pipeline.records.storage import JOURNAL_SUFFIX, STORED, RecordStorage

#: Maximum bytes of neighbouring members that are read together; one record may be larger.
_MAX_READ_BYTES: Final = 8 << 20
#: Bytes at the beginning of a file that contain its first member, which describes the file.
_HEAD_BYTES: Final = 64 << 10
_KINDS: Final[Mapping[str, str]] = {suffix: kind for kind, suffix in SUFFIXES.items()}

#: Number of journal rows that are processed together.
_JOURNAL_BATCH_ROWS: Final = 8_192
_PLACE_KINDS: Final = (pa.string(), pa.int64())
#: Maximum number of attempts: a fetch may reuse more records of the files meanwhile.
_MAX_ATTEMPTS: Final = 5


def has_other_members(storage: RecordStorage, file: str, size: int, lengths: Any) -> bool:
    """Whether a stored file of ``size`` bytes has more than its head and members of these ``lengths`` (bytes)."""
    return int(np.sum(lengths)) + _head_length(storage, file, size) < size


def rewrite_file(
    storage: RecordStorage, file: str, size: int, name: str, offsets: Any, lengths: Any, scratch: Path
) -> tuple[str, Any]:
    """Writes the members at ``offsets`` (ascending int64, with their ``lengths`` in bytes) of a stored ``file`` of
    ``size`` bytes to a new file called ``name`` without its suffix; returns the new key and the members' new offsets.

    Members beyond the end of a truncated file get offsets beyond the end of the new file. ``scratch`` is a folder for
    the new file. Raises ``EnvironmentFault``, and ``RangeFault`` if the old file cannot be read.
    """
    folder, _, old = file.rpartition("/")
    suffix = next(known_suffix for known_suffix in _KINDS if old.endswith(known_suffix))
    crawl = folder.rpartition("/")[2]
    new = f"{name}{suffix}"
    info = {
        "software": SOFTWARE,
        "format": "WARC File Format 1.0",
        "description": f"Records of {crawl}, extracted from Common Crawl, of {old} without those that were purged",
        "isPartOf": crawl,
    }
    is_present = offsets + lengths <= size
    path = scratch / new
    with disk_trouble(path), path.open("wb") as out:
        head = segment_head(_KINDS[suffix], new, info)
        out.write(head)
        for start, end in _join_ranges(offsets[is_present], lengths[is_present]):
            out.write(storage.transport.read(file, start, end - start).data)
        out.flush()
        sync(out.fileno())
    written = path.stat().st_size
    present_lengths = lengths[is_present]
    places = np.full(len(offsets), written, np.int64)
    places[is_present] = len(head) + np.cumsum(present_lengths) - present_lengths
    key = f"{folder}/{new}"
    storage.transport.put(key, path)
    path.unlink()
    return key, places


def _join_ranges(offsets: Any, lengths: Any) -> Iterator[tuple[int, int]]:
    """Yields the ranges (begin, end) of neighbouring members, of limited size."""
    start = end = 0
    for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True):
        if offset != end or offset + length - start > _MAX_READ_BYTES:
            if end > start:
                yield start, end
            start = offset
        end = offset + length
    if end > start:
        yield start, end


def _head_length(storage: RecordStorage, file: str, size: int) -> int:
    if file.endswith(SUFFIXES["raw"]) or not size:
        return 0
    try:
        return inflate_member(storage.transport.read(file, 0, min(size, _HEAD_BYTES)).data, file, 0).consumed
    except DataFault:
        return 0


class _RecordTakeover(Exception):
    """A row names a record that no row named when the files were rewritten."""


@dataclass(frozen=True, slots=True)
class _MovedRecords:
    """Stored locations (``places``) and, by their numbers, the new file and offset of each."""

    places: LocationIndex
    names: pa.Array
    files: Any
    offsets: Any

    def relocate(self, rows: pa.RecordBatch, old_files: pa.Array) -> pa.RecordBatch:
        """Returns the rows, with new locations of moved records. Raises ``_RecordTakeover`` for other records of
        ``old_files``."""
        positions = self.places.positions(as_places(rows))
        is_moved = positions >= 0
        if np.any(pc.is_in(rows.column("stored_file"), value_set=old_files).to_numpy(zero_copy_only=False) & ~is_moved):
            raise _RecordTakeover
        if not np.any(is_moved):
            return rows
        mask = pa.array(is_moved)
        positions = np.where(is_moved, positions, 0)
        file = pc.if_else(mask, self.names.take(pa.array(self.files[positions])), rows.column("stored_file"))
        offset = pc.if_else(mask, pa.array(self.offsets[positions]), rows.column("stored_offset"))
        columns = [
            file if name == "stored_file" else offset if name == "stored_offset" else rows.column(name)
            for name in rows.schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def move_records(
    lake: Lake,
    storage: RecordStorage,
    crawl: str,
    files: Mapping[str, int],
    name: str,
    scratch: Path,
    killed: KilledRunFiles,
) -> None:
    """Rewrites each of ``files`` (keys of stored files and their sizes in bytes) that has records without a row, and
    commits their rows anew, with the new locations.

    ``name`` begins the names of the new files and is used once. Journal rows of ``killed`` runs move too, if a target
    has the capture. Raises ``EnvironmentFault``.
    """
    for attempt in range(_MAX_ATTEMPTS):
        named_records = _list_named_records(lake, crawl, files)
        written: dict[str, tuple[str, Any, Any]] = {}
        freed: list[str] = []
        for number, (file, size) in enumerate(sorted(files.items())):
            offsets, lengths = named_records.get(file, (np.zeros(0, np.int64), np.zeros(0, np.int64)))
            rows = killed.journal_of(storage, file)
            if rows:
                offsets, lengths = _add_journal_records(offsets, lengths, rows)
            if not len(offsets):
                freed.append(file)
            elif file in killed.files or has_other_members(storage, file, size, lengths):
                new, places = rewrite_file(
                    storage, file, size, f"{name}-{attempt}{number:04d}", offsets, lengths, scratch
                )
                if rows:
                    _write_journal(storage, new, rows, dict(zip(offsets.tolist(), places.tolist(), strict=True)))
                written[file] = (new, offsets, places)
        try:
            if written:
                _relocate_rows(lake, crawl, written)
        except (_RecordTakeover, SlicesChanged):
            continue
        delete_journals(storage, [file for file in (*written, *freed) if file in killed.files])
        return
    raise EnvironmentFault(
        f"a running fetch reuses stored records of {crawl}, so the purge cannot move them now",
        "Wait for the end of that fetch, then run the command again: it continues where it stopped.",
    )


@dataclass(frozen=True, slots=True)
class KilledRunFiles:
    """Stored files of killed runs whose journals have captures that no target has, and the locations of the captures
    that a target has."""

    files: tuple[str, ...]
    captured_places: LocationIndex

    def journal_of(self, storage: RecordStorage, file: str) -> list[Row]:
        """Returns the journal rows of a file whose captures a target has."""
        rows = list(journal_rows(storage, file)) if file in self.files else []
        if not rows:
            return []
        return [
            row
            for row, is_captured in zip(
                rows, self.captured_places.contains(_capture_places(rows)).to_pylist(), strict=True
            )
            if is_captured
        ]


def find_killed_run_files(lake: Lake, storage: RecordStorage, crawl: str) -> KilledRunFiles:
    """Finds files of killed fetches with captures that no target has: no row will ever name these. Files of running
    fetches are left out. Raises ``EnvironmentFault``."""
    commits = [lease.commit for lease in list_active_leases(storage, crawl)]
    places_found, by_file = LocationCollector(), dict[str, list[pa.RecordBatch]]()
    for rows in _batches(adopt(storage, crawl)):
        places = _capture_places(rows)
        places_found.add(places)
        for row_file in {str(row["stored_file"]) for row in rows}:
            is_of_file = pa.array([row["stored_file"] == row_file for row in rows])
            by_file.setdefault(row_file, []).append(places.filter(is_of_file))
    if not by_file:
        return KilledRunFiles((), places_found.places())
    all_places, captures_found = places_found.places(), LocationCollector()
    for batch in stream_rows(lake, "captures", {"crawl": crawl}, PLACE_NAME):
        captures_found.add(batch.filter(all_places.contains(batch)))
    captured_places = captures_found.places()
    files = [
        file
        for file, file_batches in by_file.items()
        if not all(pc.all(captured_places.contains(file_places)).as_py() is not False for file_places in file_batches)
        and not any(f"-{commit}-" in file for commit in commits)
    ]
    return KilledRunFiles(tuple(sorted(files)), captured_places)


def _capture_places(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([row[name] for row in rows], kind) for name, kind in zip(PLACE_NAME, _PLACE_KINDS, strict=True)],
        names=list(PLACE_NAME),
    )


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    row_iterator = iter(rows)
    while batch := list(islice(row_iterator, _JOURNAL_BATCH_ROWS)):
        yield batch


def _list_named_records(lake: Lake, crawl: str, files: Collection[str]) -> dict[str, tuple[Any, Any]]:
    """Returns offsets and lengths of the records that rows name, by file, in the order of the file."""
    schema = pa.schema([("stored_file", pa.string()), ("stored_offset", pa.int64()), ("stored_length", pa.int64())])
    tables = [pa.Table.from_batches([rows]).select(list(STORED)) for rows in rows_of_files(lake, crawl, files)]
    table = pa.concat_tables([schema.empty_table(), *tables]).group_by(list(STORED)).aggregate([])
    table = table.sort_by([("stored_file", "ascending"), ("stored_offset", "ascending")])
    by_file = {}
    for file in pc.unique(table.column("stored_file")).to_pylist():
        file_rows = table.filter(pc.equal(table.column("stored_file"), file))
        by_file[file] = tuple(file_rows.column(name).to_numpy().astype(np.int64) for name in STORED[1:])
    return by_file


def _relocate_rows(lake: Lake, crawl: str, written: Mapping[str, tuple[str, Any, Any]]) -> None:
    places_found = LocationCollector()
    old = [
        pa.RecordBatch.from_arrays(
            [pa.array([file] * len(offsets), pa.string()), pa.array(offsets)], names=list(STORED[:2])
        )
        for file, (_, offsets, _) in written.items()
    ]
    for rows in old:
        places_found.add(as_places(rows))
    places = places_found.places()
    names = pa.array([new for new, _, _ in written.values()], pa.string())
    files, moved_to = np.zeros(len(places), np.int32), np.zeros(len(places), np.int64)
    for number, (rows, (_, _, new)) in enumerate(zip(old, written.values(), strict=True)):
        positions = places.positions(as_places(rows))
        files[positions], moved_to[positions] = number, new
    _commit_moved(lake, crawl, _MovedRecords(places, names, files, moved_to), pa.array([*written], pa.string()))


def _commit_moved(lake: Lake, crawl: str, moved: _MovedRecords, old_files: pa.Array) -> None:
    """Commits the rows of all slices that name any of ``old_files``, with the new locations, under new generations.
    Raises ``SlicesChanged`` if a fetch commits one of them meanwhile."""
    targets = {
        target
        for rows in rows_of_files(lake, crawl, old_files.to_pylist())
        for target in rows.column("target").unique().to_pylist()
    }
    slices = slices_of(crawl, sorted(targets))
    epochs = read_epochs(lake, slices)
    fetched = read_slice_rows(lake, slices, (FETCH,), details=True)
    replaced = {slice_: row for (slice_, _), row in fetched.items() if row.tables}
    generations = draw_generations(replaced)
    where = {"crawl": crawl, "target": [slice_.target for slice_ in replaced]}
    old = [row.tables["records"].generation for row in replaced.values()]
    ends: dict[str, Counter[str]] = {}
    batches = (
        _count_ends(moved.relocate(rows, old_files), ends)
        for rows in stream_rows(lake, "records", where, generations=old)
    )
    numbers = {slice_.target: number for slice_, number in generations.items()}
    written = write_rows(lake, "records", crawl, batches, numbers, is_sorted=False)
    lake.append("records", written.files)
    rows = [
        replace(
            row,
            tables={"records": replace(row.tables["records"], generation=generations[slice_])},
            note={**row.note, "stored_files": _list_stored_files(ends.get(slice_.target, {}))},
        )
        for slice_, row in replaced.items()
    ]
    if rows:
        commit_slices(lake, rows, Base(epochs, replaced))


def _list_stored_files(ends: Mapping[str, int]) -> list[dict[str, object]]:
    return [{"file": file, "bytes": end} for file, end in sorted(ends.items())]


def _count_ends(rows: pa.RecordBatch, ends: dict[str, Counter[str]]) -> pa.RecordBatch:
    """Adds the end of the last record of each slice in each stored file to ``ends``; returns ``rows``."""
    stored = pa.Table.from_batches([rows]).select(["target", *STORED]).drop_null()
    stored = stored.append_column("end", pc.add(stored["stored_offset"], stored["stored_length"]))
    for row in stored.group_by(["target", "stored_file"]).aggregate([("end", "max")]).to_pylist():
        files = ends.setdefault(row["target"], Counter())
        files[row["stored_file"]] = max(files[row["stored_file"]], row["end_max"])
    return rows


def _add_journal_records(offsets: Any, lengths: Any, rows: Collection[Row]) -> tuple[Any, Any]:
    journal_lengths = {int(row["stored_offset"]): int(row["stored_length"]) for row in rows}
    all_lengths = dict(
        sorted({**journal_lengths, **dict(zip(offsets.tolist(), lengths.tolist(), strict=True))}.items())
    )
    return np.array([*all_lengths], np.int64), np.array([*all_lengths.values()], np.int64)


def _write_journal(storage: RecordStorage, new: str, rows: Collection[Row], places: Mapping[int, int]) -> None:
    lines = (
        json.dumps({**row, "stored_file": new, "stored_offset": places[row["stored_offset"]]}, separators=(",", ":"))
        for row in rows
    )
    storage.transport.put(new + JOURNAL_SUFFIX, ("\n".join(lines) + "\n").encode())
