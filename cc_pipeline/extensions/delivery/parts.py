"""Stored records as files of a delivery (parts): standard WARC and ARC files of a bounded size.

A part's bytes depend only on its records, not on time or chance, and its name contains their digest. The list of its
captures is sent first, so every part in the place can be read.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cc_pipeline import SOFTWARE
from cc_pipeline.archive import arc
from cc_pipeline.archive.gzip_members import inflate_member
from cc_pipeline.archive.writing import arc_as_warc_member, warcinfo_record, write_records
from cc_pipeline.capture_columns import PLACE
from cc_pipeline.commoncrawl.index_schema import distinct_captures
from cc_pipeline.errors import DataFault, EnvironmentFault, disk_trouble
from cc_pipeline.extensions.delivery.manifest import FileEntry, PartEntry, list_name, part_name
from cc_pipeline.records.reading import Row, read_members
from cc_pipeline.records.schema import RECORD_SCHEMA
from cc_pipeline.records.segments import file_description
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.transport.client import Transport

#: Compressed record bytes in one part.
PART_BYTES = 128 << 20
#: Stored bytes read at a time. It is less than usual because several parts are written in parallel.
_WINDOW = 2 << 20
#: Columns of a part's list: those of the ledger, and the location of the record in the part.
LIST_COLUMNS = tuple(name for name in RECORD_SCHEMA.names if not name.startswith("stored_"))
_LIST_SCHEMA = pa.schema(
    [*(RECORD_SCHEMA.field(name) for name in LIST_COLUMNS),
    pa.field("file", pa.string()), pa.field("offset", pa.int64()),
     pa.field("length", pa.int64())]
)  # fmt: skip
#: Returns the address at the source for the key of an archive file.
Address = Callable[[str], str]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Part:
    """Records that become one file: rows of the records table in file and offset order; ``kind`` is warc or arc."""

    kind: str
    rows: pa.Table
    bytes: int


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """A part that was sent (``None`` if it would be empty), and (row of the part, reason) of each record that was left
    out.
    """

    entry: PartEntry | None
    left_out: tuple[tuple[int, DataFault], ...]


def plan_copy(records: pa.Table, *, convert: bool = False, part_bytes: int = PART_BYTES) -> list[Part]:
    """Returns the parts to write for the fetched rows of ``records`` (``RECORD_SCHEMA`` rows of one crawl).

    A capture of several targets is copied once. With ``convert``, ARC records become WARC records.
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
            kind = "warc" if convert else formats[start]
            parts.append(Part(kind, ordered.slice(start, row - start), size))
            start, size = row, 0
        if not ends:
            size += lengths[row]
    return parts


def write_part(
    part: Part,
    number: int,
    storage: RecordStorage,
    place: Transport,
    scratch: Path,
    crawl: str,
    delivery: str,
    address: Address,
) -> WrittenPart:
    """Writes a part into ``scratch`` and sends it and its list to the folder of ``crawl`` in ``place``. ``number``
    distinguishes the scratch files of parallel parts. ``address`` returns an archive file's absolute address, which
    converted records contain.

    A record is left out if its stored bytes are missing or damaged, or if it has no WARC form. Raises
    ``EnvironmentFault`` (also as ``RangeFault``) if the disk or the place fails.
    """
    path = scratch / f"{delivery}-{number:06d}.{part.kind}.gz"
    written_rows: list[int] = []
    offsets: list[int] = []
    lengths: list[int] = []
    left_out: list[tuple[int, DataFault]] = []
    try:
        with disk_trouble(path), path.open("wb") as out:
            head = _file_head(part, crawl, delivery)
            digest = hashlib.sha256(head)
            out.write(head)
            size = len(head)
            for row, member in _members(part, storage, address):
                if isinstance(member, DataFault):
                    left_out.append((row, member))
                    continue
                out.write(member)
                digest.update(member)
                written_rows.append(row)
                offsets.append(size)
                lengths.append(len(member))
                size += len(member)
        if not written_rows:
            return WrittenPart(None, tuple(left_out))
        name = part_name(crawl, delivery, digest.hexdigest(), part.kind)
        data = _encode_list(part.rows.take(written_rows), name, offsets, lengths)
        list_entry = FileEntry(list_name(name), len(data), hashlib.sha256(data).hexdigest())
        place.put(f"{crawl}/{list_entry.name}", data)
        place.put(f"{crawl}/{name}", path)
        entry = PartEntry(FileEntry(name, size, digest.hexdigest()), part.kind, len(written_rows), list_entry)
        return WrittenPart(entry, tuple(left_out))
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be written: {error}", "Check the disk, then run it again.") from error
    finally:
        path.unlink(missing_ok=True)


def _file_head(part: Part, crawl: str, delivery: str) -> bytes:
    """The first record of a part. It does not name the file, because the file's name depends on its bytes."""
    rows = hashlib.sha256()
    for place in zip(*(part.rows[name].to_pylist() for name in PLACE), strict=True):
        rows.update(repr(place).encode())
    newest = pc.max(part.rows["fetch_time"]).as_py() or _EPOCH
    info = {"software": SOFTWARE, "isPartOf": crawl, "description": f"Records of {crawl}, copied",
            "plan": rows.hexdigest()}  # fmt: skip
    if part.kind == "warc":
        out = io.BytesIO()
        write_records(out, [warcinfo_record(None, {"format": "WARC File Format 1.0", **info}, newest)])
        return out.getvalue()
    return file_description(f"{crawl}-{delivery}.arc.gz", info, newest)


def _members(part: Part, storage: RecordStorage, address: Address) -> Iterator[tuple[int, bytes | DataFault]]:
    rows = (row for batch in part.rows.to_batches(max_chunksize=1_000) for row in batch.to_pylist())
    for number, (row, member) in enumerate(read_members(rows, storage, window=_WINDOW)):
        if isinstance(member, DataFault):
            yield number, member
            continue
        assert member is not None  # a fetched record has a place
        try:
            yield number, delivered_member(part.kind, row, member, address)
        except DataFault as fault:
            yield number, fault


def delivered_member(kind: str, row: Row, member: bytes, address: Address) -> bytes:
    """A stored record in the form of a file of ``kind`` (warc or arc). An ARC record in a WARC file is converted.

    Raises ``DataFault`` for damaged gzip members, and for a record that has no WARC form.
    """
    source, offset = row["warc_filename"], row["warc_record_offset"]
    if kind == "warc" and row["archive_format"] == "arc":
        return arc_as_warc_member(arc.read_record(member, source, offset), source, offset, len(member), address(source))
    # The bytes were sound when they were stored; the disk may have changed them since.
    inflate_member(member, source, offset)
    return member


def _encode_list(rows: pa.Table, name: str, offsets: list[int], lengths: list[int]) -> bytes:
    columns = [rows[column] for column in LIST_COLUMNS]
    columns += [pa.array([name] * len(offsets)), pa.array(offsets, pa.int64()), pa.array(lengths, pa.int64())]
    return table_bytes(pa.Table.from_arrays(columns, schema=_LIST_SCHEMA))


def table_bytes(table: pa.Table) -> bytes:
    """A table as a Parquet file."""
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd")
    return out.getvalue()
