"""Captures to fetch, made from the corpus's truth or from records written by the test itself."""

from __future__ import annotations

import gzip
import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from cc_pipeline.archive.record import sha1_base32
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.records.reading import read_members
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.stores.answer import S3Options
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.source_client import SourceOptions

CAPTURES_SCHEMA = pa.schema([pa.field("target", pa.string(), nullable=False), *CAPTURE_SCHEMA])


def captures_table(rows: Sequence[dict[str, Any]], crawl: str, target: str = "example.com") -> pa.Table:
    """Rows with any of the capture columns as a whole captures table."""
    fixed = {"crawl": crawl, "target": target, "subset": "warc", "archive_format": "warc", "located_by": "test"}
    complete = [
        {name: row.get(name, fixed.get(name)) for name in CAPTURES_SCHEMA.names if name != "extra_columns"}
        for row in rows
    ]
    return pa.Table.from_pylist(complete, schema=CAPTURES_SCHEMA)


def real_captures(corpus: Path, crawl: str) -> pa.Table:
    """What the corpus's little bucket of real pages has of a crawl."""
    with gzip.open(corpus / "realcrawl" / "expected.json.gz") as file:
        rows = json.load(file)[crawl]
    return captures_table([_legacy(row) if isinstance(row, list) else _modern(row) for row in rows], crawl)


def _modern(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"fetch_time": datetime.fromisoformat(row["fetch_time"]), "domain": row["url_host_registered_domain"]}


def _legacy(row: list[Any]) -> dict[str, Any]:
    _, (segment, date, partition, offset, size), url, _ = row
    return {
        "url": url,
        "archive_format": "arc",
        "warc_filename": f"parse-output/segment/{segment}/{date}_{partition}.arc.gz",
        "warc_record_offset": offset,
        "warc_record_length": size,
    }


def html_record(url: str, body: bytes, status: int = 200) -> bytes:
    """One gzip member with a WARC response record, as Common Crawl writes it."""
    http = b"HTTP/1.1 %d OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body
    now = datetime(2024, 5, 18, tzinfo=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    name = hashlib.md5(url.encode() + body, usedforsecurity=False).hexdigest()
    head = (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Date: {now}\r\nWARC-Target-URI: {url}\r\n"
        f"WARC-Record-ID: <urn:uuid:{uuid.UUID(name)}>\r\n"
        f"WARC-Payload-Digest: sha1:{sha1_base32(body)}\r\nWARC-Block-Digest: sha1:{sha1_base32(http)}\r\n"
        f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(http)}\r\n\r\n"
    )
    return gzip.compress(head.encode() + http + b"\r\n\r\n", 6, mtime=0)


def make_archives(bodies: Mapping[str, Sequence[bytes]]) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """The content of archives that hold records with these payloads, with gaps between them, and rows of their
    captures. ``bodies`` are by file name."""
    contents: dict[str, bytes] = {}
    rows: list[dict[str, Any]] = []
    for key, payloads in bodies.items():
        data = bytearray()
        for number, body in enumerate(payloads):
            url = f"https://example.com/{key.partition('.')[0]}/{number}"
            member = html_record(url, body)
            place = {"warc_filename": key, "warc_record_offset": len(data), "warc_record_length": len(member)}
            rows.append({"url": url, "content_digest": sha1_base32(body)} | place)
            data += member + bytes(40)
        contents[key] = bytes(data)
    return contents, rows


def write_archives(folder: Path, bodies: Mapping[str, Sequence[bytes]], crawl: str) -> pa.Table:
    """Writes the archives of ``make_archives`` into a folder, which is created. Returns their captures."""
    folder.mkdir(exist_ok=True)
    contents, rows = make_archives(bodies)
    for key, data in contents.items():
        (folder / key).write_bytes(data)
    return captures_table(rows, crawl)


def read_stored(storage: RecordStorage, row: Mapping[str, Any]) -> bytes:
    """The stored member of one row."""
    [(_, found)] = read_members([row], storage)
    assert isinstance(found, bytes)
    return found


@contextmanager
def shelf_at(root: Path | str, *, spool: Path | None = None, s3_endpoint: str | None = None) -> Iterator[RecordStorage]:
    """A storage with a transport of its own to the lake at ``root``."""
    with Transport(str(root), SourceOptions(s3=S3Options(endpoint=s3_endpoint))) as place:
        yield RecordStorage(place, spool=spool)
