"""Copies fetched records to a bucket or folder of the user: standard WARC and ARC files (parts) of a bounded size.

The name of a part depends on its records alone, and its data is uploaded after the list of its captures. So a part
that exists is complete, and after a kill the next copy sends only the missing parts.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cc_pipeline import SOFTWARE
from cc_pipeline.archive import arc
from cc_pipeline.archive.writing import arc_as_warc, write_records
from cc_pipeline.errors import DataFault, EnvironmentFault, disk_trouble
from cc_pipeline.keys import CAPTURE, PLACE
from cc_pipeline.records.fetch import read_stored
from cc_pipeline.records.schema import RECORD_SCHEMA
from cc_pipeline.records.segments import segment_head
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.transport.client import Transport

#: Compressed record bytes in one part.
PART_BYTES = 128 << 20
#: Columns of the list beside a part: those of the ledger, and where in the part a record lies.
_LISTED = tuple(name for name in RECORD_SCHEMA.names if not name.startswith("stored_"))
_LIST_SCHEMA = pa.schema(
    [*(RECORD_SCHEMA.field(name) for name in _LISTED), pa.field("file", pa.string()), pa.field("offset", pa.int64()),
     pa.field("length", pa.int64())]
)  # fmt: skip

#: ``(parts done, parts in all, bytes uploaded, bytes in all)``.
Progress = Callable[[int, int, int, int], None]


@dataclass(frozen=True, slots=True)
class Part:
    """Records that make one file: rows of the records table in file and offset order, ``kind`` is warc or arc."""

    key: str
    kind: str
    rows: pa.Table
    bytes: int


@dataclass(frozen=True, slots=True)
class CopyReport:
    """How many ``records`` the place has now, in ``parts`` files; ``held`` of the files were there before.

    ``bytes`` were uploaded. ``left_out`` records could not be converted; ``faults`` has the first reasons."""

    records: int
    parts: int
    held: int
    bytes: int
    left_out: int
    faults: tuple[str, ...]


def distinct_captures(captures: pa.Table) -> pa.Table:
    """The first row of each capture (crawl, file, offset) of a table of captures or records, in their order."""
    numbered = captures.select([*CAPTURE]).append_column("row", pa.array(range(captures.num_rows), pa.int64()))
    first = numbered.group_by([*CAPTURE]).aggregate([("row", "min")])
    return captures.take(first["row_min"].combine_chunks().sort())


def plan_copy(records: pa.Table, crawl: str, *, convert: bool = False, part_bytes: int = PART_BYTES) -> list[Part]:
    """The parts to write for those of ``records`` (``RECORD_SCHEMA`` rows of one crawl) that are fetched.

    A capture that several targets have is copied once. ``convert`` makes WARC of ARC records.
    """
    fetched = distinct_captures(records.filter(pc.equal(records["outcome"], "fetched")))
    ordered = fetched.sort_by([("archive_format", "ascending"), ("warc_filename", "ascending"),
                               ("warc_record_offset", "ascending")])  # fmt: skip
    formats = ordered["archive_format"].to_pylist()
    lengths = ordered["stored_length"].to_pylist()
    parts: list[Part] = []
    start = size = 0
    for row in range(ordered.num_rows + 1):
        ends = row == ordered.num_rows
        if row > start and (ends or formats[row] != formats[start] or size + lengths[row] > part_bytes):
            parts.append(_part(crawl, ordered.slice(start, row - start), formats[start], convert, size))
            start, size = row, 0
        if not ends:
            size += lengths[row]
    return parts


def copy_parts(
    parts: Sequence[Part],
    storage: RecordStorage,
    place: Transport,
    scratch: Path,
    *,
    crawl: str,
    parallel: int = 4,
    progress: Progress | None = None,
) -> CopyReport:
    """Writes ``parts`` from ``storage`` to ``place``, ``parallel`` at a time. Skips parts that exist there.

    Raises ``EnvironmentFault`` (also as ``RangeFault``) when the place refuses; what is there stays, and copying again
    goes on from there.
    """
    total = sum(part.bytes for part in parts)
    done = held = sent = written = records = 0
    faults: list[str] = []
    left_out = 0
    with ThreadPoolExecutor(max(1, parallel)) as pool:
        running = {pool.submit(_copy_part, part, storage, place, scratch, crawl): part for part in parts}
        try:
            for future in as_completed(running):
                part = running[future]
                size, bad = future.result()
                done += 1
                held += size is None
                sent += part.bytes
                written += size or 0
                records += part.rows.num_rows - len(bad)
                left_out += len(bad)
                faults += [str(fault) for fault in bad[: 20 - len(faults)]]
                if progress is not None:
                    progress(done, len(parts), sent, total)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return CopyReport(records, len(parts), held, written, left_out, tuple(faults))


def list_key(key: str) -> str:
    """Where the list of a part's captures is, a Parquet file beside it."""
    return f"{key}.captures.parquet"


def _part(crawl: str, rows: pa.Table, archive_format: str, convert: bool, size: int) -> Part:
    converted = convert and archive_format == "arc"
    digest = hashlib.sha256(f"converted {converted}\n".encode())
    for place in zip(*(rows[name].to_pylist() for name in PLACE), strict=True):
        digest.update(repr(place).encode())
    kind = "warc" if converted else archive_format
    return Part(f"{crawl}/{crawl}-{digest.hexdigest()[:16]}.{kind}.gz", kind, rows, size)


def _copy_part(
    part: Part, storage: RecordStorage, place: Transport, scratch: Path, crawl: str
) -> tuple[int | None, list[DataFault]]:
    """Bytes uploaded, ``None`` where the part is there already, and records that were left out."""
    if place.exists(part.key):
        return None, []
    name = part.key.rpartition("/")[2]
    path = scratch / name
    listed: list[dict[str, object]] = []
    faults: list[DataFault] = []
    try:
        with disk_trouble(path), path.open("wb") as out:
            info = {"software": SOFTWARE, "isPartOf": crawl, "description": f"Records of {crawl}, copied"}
            out.write(segment_head(part.kind, name, info))
            for row, member in _members(part, storage, faults):
                offset = out.tell()
                out.write(member)
                listed.append({**{key: row[key] for key in _LISTED},
                               "file": name, "offset": offset, "length": len(member)})  # fmt: skip
        table = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(listed, schema=_LIST_SCHEMA), table, compression="zstd")
        place.put(list_key(part.key), table.getvalue())
        place.put(part.key, path)
        return path.stat().st_size, faults
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be written: {error}", "Check the disk, then run it again.") from error
    finally:
        path.unlink(missing_ok=True)


def _members(part: Part, storage: RecordStorage, faults: list[DataFault]) -> Iterator[tuple[dict[str, object], bytes]]:
    for batch in part.rows.to_batches(max_chunksize=1_000):
        for row in batch.to_pylist():
            member = read_stored(storage, row)
            if part.kind == "warc" and row["archive_format"] == "arc":
                try:
                    member = _as_warc(member, row)
                except DataFault as fault:
                    faults.append(fault)
                    continue
            yield row, member


def _as_warc(member: bytes, row: dict[str, object]) -> bytes:
    source, offset, length = str(row["warc_filename"]), _int(row["warc_record_offset"]), len(member)
    record = arc.read_record(member, source, offset)
    extra = [("WARC-Source-URI", source), ("WARC-Source-Range", f"bytes={offset}-{offset + length - 1}")]
    out = io.BytesIO()
    write_records(out, [arc_as_warc(record, source, offset, extra)])
    return out.getvalue()


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value
