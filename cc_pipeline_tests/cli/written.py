"""What files hold, as a reader sees it: to look for what must not be there."""

from __future__ import annotations

import sqlite3
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow.parquet as pq


def texts_in(path: Path) -> Iterator[bytes]:
    """The bytes of a file and what they inflate to, members of an archive, rows and schema of a table or database."""
    data = path.read_bytes()
    yield data
    if path.suffix == ".duckdb":
        with duckdb.connect(str(path), read_only=True) as connection:
            for schema, name in connection.execute("SELECT schema_name, table_name FROM duckdb_tables()").fetchall():
                yield repr(connection.sql(f'FROM "{schema}"."{name}"').fetchall()).encode()
            for what in ("views", "functions", "tables", "columns"):
                yield repr(connection.sql(f"FROM duckdb_{what}()").fetchall()).replace(str(path), "").encode()
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                yield name.encode()
                yield from _inflated(archive.read(name))
    elif data[:4] == b"PAR1":
        table = pq.read_table(path, partitioning=None)
        yield f"{table.schema} {table.schema.metadata}".encode()
        for column in table.columns:
            for value in column.to_pylist():
                yield value if isinstance(value, bytes) else str(value).encode()
    elif data[:15] == b"SQLite format 3":
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
            yield "\n".join(connection.iterdump()).encode("utf-8", "replace")
    else:
        yield from _inflated(data)


def _inflated(data: bytes) -> Iterator[bytes]:
    """Each member of what gzip compressed; anything else as it is."""
    if data[:2] != b"\x1f\x8b":
        yield data
    while data[:2] == b"\x1f\x8b":
        inflater = zlib.decompressobj(31)
        yield inflater.decompress(data)
        data = inflater.unused_data


def everything_in(place: Path) -> Iterator[tuple[Path, bytes]]:
    """The texts of each file below ``place``, its name first."""
    for path in sorted(path for path in place.rglob("*") if path.is_file()):
        yield path, path.name.encode()
        yield from ((path, text) for text in texts_in(path))
