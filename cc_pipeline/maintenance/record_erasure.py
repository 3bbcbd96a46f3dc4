"""Erases stored records in files that other records need: their bytes are overwritten, and everything else stays where
it is, so that no row changes.

The overwritten bytes become records without content, so any program still reads the file from begin to end.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.archive.gzip_members import inflate_member
from cc_pipeline.errors import DataFault, disk_trouble
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.streaming import stream_crawl, stream_rows
from cc_pipeline.records.file_leases import FileLease, Holding
from cc_pipeline.records.locations import PLACE_NAME, LocationCollector
from cc_pipeline.records.segments import SUFFIXES, Row, adopt, delete_journals, journal_rows
from cc_pipeline.records.storage import JOURNAL_SUFFIX, STORED, RecordStorage

#: Bytes that are copied together.
_COPIED_BYTES: Final = 8 << 20
#: Bytes of a record without content, at most: readers need not hold more.
_EMPTY_RECORD_BYTES: Final = 64 << 10
#: Bytes at the beginning of a file that contain its first member, which describes the file.
_HEAD_BYTES: Final = 64 << 10
#: Number of journal rows that are processed together.
_JOURNAL_BATCH_ROWS: Final = 8_192
_PLACE_KINDS: Final = (pa.string(), pa.int64())
_HAS_COMMENT: Final = 0x10
#: Folder beside stored files with an empty object for each whose journal lacks records that are to be erased.
_MARKS_FOLDER: Final = "erasing"


def erase_journal_rows(lake: Lake, storage: RecordStorage, crawl: str, running: Collection[Holding]) -> set[str]:
    """Deletes the rows of captures that no target has from the journals of killed fetches, so that no fetch adopts
    them. Journals of ``running`` fetches stay. Returns the stored files whose journals were changed, now or by a purge
    that was killed before it erased their records: they are marked until :func:`unmark`. Raises
    ``EnvironmentFault``."""
    collector = LocationCollector()
    files: set[str] = set()
    for rows in _batches(adopt(storage, crawl)):
        collector.add(_capture_places(rows))
        files |= {str(row["stored_file"]) for row in rows}
    journal_places, captured = collector.places(), LocationCollector()
    for batch in stream_rows(lake, "captures", {"crawl": crawl}, PLACE_NAME) if files else ():
        captured.add(batch.filter(journal_places.contains(batch)))
    captured_places = captured.places()
    for file in sorted(files):
        rows = [*journal_rows(storage, file)]
        is_captured = captured_places.contains(_capture_places(rows)).to_pylist()
        if all(is_captured) or any(f"-{holding.commit}-" in file for holding in running):
            continue
        storage.transport.put(_mark_of(file), b"")
        if captured_rows := [row for row, is_captured_row in zip(rows, is_captured, strict=True) if is_captured_row]:
            lines = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in captured_rows)
            storage.transport.put(file + JOURNAL_SUFFIX, lines.encode())
        else:
            delete_journals(storage, [file])
    folder = storage.folder(crawl)
    marks = storage.transport.listing(f"{folder}/{_MARKS_FOLDER}/")
    return {f"{folder}/{mark.key.rpartition('/')[2]}" for mark in marks}


def unmark(storage: RecordStorage, file: str) -> None:
    """Notes that the records of a stored file were erased."""
    storage.transport.delete(_mark_of(file))


def _mark_of(file: str) -> str:
    folder, _, name = file.rpartition("/")
    return f"{folder}/{_MARKS_FOLDER}/{name}"


def _capture_places(rows: Collection[Row]) -> pa.RecordBatch:
    columns = [pa.array([row[name] for row in rows], kind) for name, kind in zip(PLACE_NAME, _PLACE_KINDS, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=list(PLACE_NAME))


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    row_iterator = iter(rows)
    while batch := list(islice(row_iterator, _JOURNAL_BATCH_ROWS)):
        yield batch


def erase_records(
    lake: Lake,
    storage: RecordStorage,
    crawl: str,
    files: Mapping[str, int],
    erased: Collection[int],
    scratch: Path,
    file_lease: FileLease,
) -> None:
    """Overwrites the records in ``files`` (keys of stored files and their sizes in bytes) that no row and no journal
    names. Rows of the generations ``erased`` do not count. Files without any other record stay: they are swept.

    ``scratch`` is a folder for copies. ``file_lease`` keeps other purges from these files. Raises ``LeaseExpired`` if
    one may have changed them meanwhile, ``EnvironmentFault``, and ``RangeFault`` if a file cannot be read.
    """
    for file, records in _list_named_records(lake, storage, crawl, files, erased).items():
        size = files[file]
        if gaps := [*_find_gaps(records, _head_length(storage, file, size), size)] if records else []:
            copy = scratch / file.rpartition("/")[2]
            _write_copy(storage, file, size, gaps, copy)
            file_lease.confirm()
            storage.transport.put(file, copy)
            copy.unlink()


def _list_named_records(
    lake: Lake, storage: RecordStorage, crawl: str, files: Collection[str], erased: Collection[int]
) -> dict[str, list[tuple[int, int]]]:
    """Offset and length of the records that journals and rows name, by file. Rows that are not committed yet are among
    them."""
    # the journals first: a fetch that adopts one adds its rows to the table before the journal goes
    records = {
        file: [(int(row["stored_offset"]), int(row["stored_length"])) for row in journal_rows(storage, file)]
        for file in files
    }
    names = pa.array(sorted(files), pa.string())
    for batch in stream_crawl(lake, "records", crawl, STORED, excluded=erased):
        for row in batch.filter(pc.is_in(batch.column("stored_file"), value_set=names)).to_pylist():
            records[row["stored_file"]].append((row["stored_offset"], row["stored_length"]))
    return records


def _head_length(storage: RecordStorage, file: str, size: int) -> int:
    """The bytes of the first member, which describes the file."""
    if file.endswith(SUFFIXES["raw"]) or not size:
        return 0
    try:
        return inflate_member(storage.transport.read(file, 0, min(size, _HEAD_BYTES)).data, file, 0).consumed
    except DataFault:
        return 0


def _find_gaps(records: Iterable[tuple[int, int]], start: int, size: int) -> Iterator[tuple[int, int]]:
    """The ranges (begin, end) from ``start`` on that none of ``records`` (offset, length) has."""
    for offset, length in sorted(records):
        if start < min(offset, size):
            yield start, min(offset, size)
        start = max(start, offset + length)
    if start < size:
        yield start, size


def _write_copy(storage: RecordStorage, file: str, size: int, gaps: Collection[tuple[int, int]], copy: Path) -> None:
    """Writes a copy of a stored file whose ``gaps`` have no content."""
    start = 0
    with disk_trouble(copy), copy.open("wb") as out:
        for begin, end in (*gaps, (size, size)):
            for offset in range(start, begin, _COPIED_BYTES):
                out.write(storage.transport.read(file, offset, min(_COPIED_BYTES, begin - offset)).data)
            out.writelines(_build_empty_records(file, end - begin))
            start = end


def _build_empty_records(file: str, size: int) -> Iterator[bytes]:
    """Records without content of ``size`` bytes in all, for a file of this name."""
    count = -(-size // _EMPTY_RECORD_BYTES)
    for number in range(count):
        length = size * (number + 1) // count - size * number // count
        member = gzip.compress(_describe_nothing(file), mtime=0)
        # no record is so short that this happens, and spaces are no content either
        if file.endswith(SUFFIXES["raw"]) or len(member) >= length:
            yield b" " * length
        else:
            comment = b" " * (length - len(member) - 1) + b"\0"
            yield member[:3] + bytes([member[3] | _HAS_COMMENT]) + member[4:10] + comment + member[10:]


def _describe_nothing(file: str) -> bytes:
    if file.endswith(SUFFIXES["arc"]):
        return b"dns:erased.invalid 0.0.0.0 19700101000000 text/plain 0\n\n"
    return (
        b"WARC/1.0\r\nWARC-Type: metadata\r\nWARC-Record-ID: <urn:uuid:%s>\r\nWARC-Date: 1970-01-01T00:00:00Z\r\n"
        b"Content-Length: 0\r\n\r\n\r\n\r\n" % str(uuid4()).encode()
    )
