"""Stored records as files of a delivery: standard WARC and ARC files of a bounded size, each with a list."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cc_pipeline import SOFTWARE
from cc_pipeline.archive.writing import Address, warcinfo_record, write_records
from cc_pipeline.errors import DataFault, disk_trouble
from cc_pipeline.extensions.delivery.manifest import FileEntry, RecordFile
from cc_pipeline.records.reading import read_delivered_members
from cc_pipeline.records.schema import RECORD_SCHEMA
from cc_pipeline.records.segments import file_description
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.transport.client import Transport

LIST_SUFFIX = ".captures.parquet"
#: Stored bytes read at a time. It is less than usual because several files are written in parallel.
_WINDOW = 2 << 20
#: Columns of a list: those of the records table, and the location of the record in the file.
_RECORD_COLUMNS = tuple(name for name in RECORD_SCHEMA.names if not name.startswith("stored_"))
_LIST_SCHEMA = pa.schema(
    [*(RECORD_SCHEMA.field(name) for name in _RECORD_COLUMNS),
     pa.field("file", pa.string()), pa.field("offset", pa.int64()), pa.field("length", pa.int64())]
)  # fmt: skip
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """Records that become one file: rows of the records table in file and offset order; ``kind`` is warc or arc."""

    kind: str
    rows: pa.Table
    bytes: int


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was sent (``None`` if it would be empty), and the reason why a row of the plan was left out."""

    entry: RecordFile | None
    left_out: dict[int, DataFault]


def plan_files(fetched: pa.Table, file_bytes: int, *, convert: bool = False) -> list[PlannedFile]:
    """Returns the files to write for ``fetched`` rows of one crawl (``RECORD_SCHEMA``, each capture once), of at most
    ``file_bytes``. With ``convert``, ARC records become WARC records.
    """
    ordered = fetched.sort_by([(name, "ascending") for name in ("archive_format", "warc_filename",
                                                                "warc_record_offset")])  # fmt: skip
    formats = ordered["archive_format"].to_pylist()
    lengths = ordered["stored_length"].to_pylist()
    files: list[PlannedFile] = []
    start = size = 0
    for row in range(ordered.num_rows + 1):
        ends = row == ordered.num_rows
        if row > start and (ends or formats[row] != formats[start] or size + lengths[row] > file_bytes):
            kind = "warc" if convert else formats[start]
            files.append(PlannedFile(kind, ordered.slice(start, row - start), size))
            start, size = row, 0
        if not ends:
            size += lengths[row]
    return files


def write_file(
    planned: PlannedFile, crawl: str, name: str, storage: RecordStorage, place: Transport, scratch: Path,
    address: Address,
) -> WrittenFile:  # fmt: skip
    """Writes a file of ``crawl`` into ``scratch``, and sends its list and the file to ``place`` as ``name``.
    ``address`` returns an archive file's absolute address, which converted records contain.

    A record is left out if its stored bytes are missing or damaged, or if it has no WARC form. Raises
    ``EnvironmentFault`` (also as ``RangeFault``) if the disk or the place fails.
    """
    path = scratch / name.replace("/", "-")
    lengths: dict[int, int] = {}
    left_out: dict[int, DataFault] = {}
    try:
        with disk_trouble(path), path.open("wb") as out:
            out.write(head := _file_head(planned, crawl, name))
            rows = (row for batch in planned.rows.to_batches(max_chunksize=1_000) for row in batch.to_pylist())
            members = read_delivered_members(planned.kind, rows, storage, address, window=_WINDOW)
            for number, (_, member) in enumerate(members):
                if isinstance(member, DataFault):
                    left_out[number] = member
                elif member is not None:
                    lengths[number] = out.write(member)
        if not lengths:
            return WrittenFile(None, left_out)
        data = _encode_list(planned.rows.take([*lengths]), name, len(head), [*lengths.values()])
        place.put(name + LIST_SUFFIX, data)
        place.put(name, path)
        list_entry = FileEntry(name + LIST_SUFFIX, len(data), hashlib.sha256(data).hexdigest())
        return WrittenFile(RecordFile(crawl, len(lengths), _entry_of(path, name, place), list_entry), left_out)
    finally:
        path.unlink(missing_ok=True)


def _entry_of(path: Path, name: str, place: Transport) -> FileEntry:
    stored = place.head(name)
    with disk_trouble(path), path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    return FileEntry(name, path.stat().st_size, sha256, None if stored is None else stored.etag)


def _file_head(planned: PlannedFile, crawl: str, name: str) -> bytes:
    newest = pc.max(planned.rows["fetch_time"]).as_py() or _EPOCH
    info = {"software": SOFTWARE, "isPartOf": crawl, "description": f"Records of {crawl}, copied"}
    file_name = name.rpartition("/")[2]
    if planned.kind == "arc":
        return file_description(file_name, info, newest)
    out = io.BytesIO()
    write_records(out, [warcinfo_record(file_name, {"format": "WARC File Format 1.0", **info}, newest)])
    return out.getvalue()


def _encode_list(rows: pa.Table, name: str, first_offset: int, lengths: list[int]) -> bytes:
    offsets, offset = [], first_offset
    for length in lengths:
        offsets.append(offset)
        offset += length
    columns = [rows[column] for column in _RECORD_COLUMNS]
    columns += [pa.array([name] * len(offsets)), pa.array(offsets, pa.int64()), pa.array(lengths, pa.int64())]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, schema=_LIST_SCHEMA), out, compression="zstd")
    return out.getvalue()
