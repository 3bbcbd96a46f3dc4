"""Parquet bytes for the footer tests: every kind of writer's option, and thrift by hand where no writer goes."""

from __future__ import annotations

import base64
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

PATH = "cc-index/table/cc-main/warc/crawl=CC-MAIN-2024-22/subset=warc/part-00007-aaaa.c000.gz.parquet"


def index_table(rows: int = 60, prefix: str = "com,example") -> pa.Table:
    """Three columns of the index, sorted by key."""
    start = datetime(2024, 5, 18, tzinfo=UTC)
    return pa.table(
        {
            "url_surtkey": [f"{prefix})/page/{number:06d}" for number in range(rows)],
            "fetch_time": pa.array(
                [start + timedelta(seconds=number) for number in range(rows)], pa.timestamp("ms", tz="UTC")
            ),
            "url_host_registered_domain": pa.array(["example.com"] * rows),
            "warc_record_offset": pa.array(range(rows), pa.int32()),
        }
    )


def parquet_bytes(table: pa.Table, row_group_size: int = 20, **options: Any) -> bytes:
    """A whole file in memory; ``options`` go to pyarrow's writer."""
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=row_group_size, **options)
    return sink.getvalue()


class _PlainKeys(pe.KmsClient):
    """A key service that protects nothing."""

    def __init__(self, config: pe.KmsConnectionConfig) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)


def encrypted_bytes(table: pa.Table, *, plaintext_footer: bool) -> bytes:
    """A file whose key column is encrypted: with a plaintext footer pyarrow ends the process on its statistics."""
    factory = pe.CryptoFactory(_PlainKeys)
    config = pe.EncryptionConfiguration(
        footer_key="footer", column_keys={"columns": ["url_surtkey"]}, plaintext_footer=plaintext_footer
    )
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table, row_group_size=20)
    return sink.getvalue()


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    return varint((value << 1) ^ (value >> 63))


def text(value: bytes) -> bytes:
    return varint(len(value)) + value


def field(number: int, kind: int, value: bytes = b"") -> bytes:
    """A field with its number spelled out, so that parts can be put together in any order."""
    return bytes([kind]) + zigzag(number) + value


def struct(*fields: bytes) -> bytes:
    return b"".join(fields) + b"\0"


def listed(kind: int, *elements: bytes) -> bytes:
    return bytes([0xF0 | kind]) + varint(len(elements)) + b"".join(elements)


I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12


def old_file(
    low: bytes | None, high: bytes | None, *, created_by: bytes = b"parquet-mr version 1.8.1 (build x)", rows: int = 3
) -> tuple[bytes, int]:
    """The end of a file with one string column and only the deprecated statistics, and the file's size."""
    schema = listed(
        STRUCT,
        struct(field(4, BINARY, text(b"spark_schema")), field(5, I32, zigzag(1))),
        struct(
            field(1, I32, zigzag(6)),
            field(3, I32, zigzag(0)),
            field(4, BINARY, text(b"url_surtkey")),
            field(6, I32, zigzag(0)),
        ),
    )
    statistics = struct(
        *([field(1, BINARY, text(high))] if high is not None else []),
        *([field(2, BINARY, text(low))] if low is not None else []),
    )
    metadata = struct(
        field(1, I32, zigzag(6)), field(2, LIST, listed(I32, zigzag(0))),
        field(3, LIST, listed(BINARY, text(b"url_surtkey"))),
        field(4, I32, zigzag(2)), field(5, I64, zigzag(rows)), field(6, I64, zigzag(100)), field(7, I64, zigzag(90)),
        field(9, I64, zigzag(4)), field(12, STRUCT, statistics),
    )  # fmt: skip
    group = struct(
        field(1, LIST, listed(STRUCT, struct(field(2, I64, zigzag(4)), field(3, STRUCT, metadata)))),
        field(2, I64, zigzag(100)),
        field(3, I64, zigzag(rows)),
    )
    footer = struct(
        field(1, I32, zigzag(1)),
        field(2, LIST, schema),
        field(3, I64, zigzag(rows)),
        field(4, LIST, listed(STRUCT, group)),
        field(6, BINARY, text(created_by)),
    )
    tail = footer + len(footer).to_bytes(4, "little") + b"PAR1"
    return tail, 1000 + len(tail)
