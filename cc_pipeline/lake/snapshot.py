"""The published DuckDB file: a snapshot that readers open read-only and writers never open again.

It is built under another name and renamed over the old file, so a reader that has the old file open can read all of
it. Views name explicit Parquet files of fixed table versions (docs/architecture.md, decision 3).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.lake import PinnedTable, TableSpec


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """A published name and the SQL behind it, which may use every pinned table under ``lake.<name>``.

    A name without a schema is published in ``main``; ``lake.<name>`` is for helpers that other views use.
    """

    name: str
    sql: str
    comment: str
    materialized: bool = False


@dataclass(frozen=True, slots=True)
class Publication:
    """What was published: row counts by name and bytes of the file."""

    path: Path
    rows: dict[str, int]
    versions: dict[str, int]
    bytes: int


def publish(
    path: Path, tables: Sequence[PinnedTable], views: Sequence[ViewSpec], s3_setup: Sequence[str] = ()
) -> Publication:
    """Builds ``path`` from ``tables`` and ``views`` and swaps it in.

    ``lake.<table>`` is a view over the pinned files; each of ``views`` becomes ``main.<name>``, a table when
    ``materialized``. Raises ``EnvironmentFault`` when the file cannot be built; the old one then stays.
    """
    building = path.with_name(f"{path.name}.building-{os.getpid()}")
    building.unlink(missing_ok=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with duckdb.connect(str(building)) as connection:
            for statement in s3_setup:
                connection.execute(statement)
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("CREATE SCHEMA lake")
            for pinned in tables:
                connection.execute(f"CREATE VIEW lake.{pinned.spec.name} AS {_select(connection, pinned)}")
            for view in views:
                kind = "TABLE" if view.materialized else "VIEW"
                connection.execute(f"CREATE {kind} {_qualified(view)} AS {view.sql}")
                connection.execute(f"COMMENT ON {kind} {_qualified(view)} IS {_text(view.comment)}")
            rows = {view.name: _count(connection, view.name) for view in views if "." not in view.name}
            versions = {pinned.spec.name: pinned.version for pinned in tables}
            _write_publication(connection, tables, rows)
            connection.execute("CHECKPOINT")
        size = building.stat().st_size
        building.replace(path)
    except (duckdb.Error, OSError) as error:
        advice = "The file published before is untouched. Check the disk and the lake, then publish again."
        raise EnvironmentFault(f"could not build {path}: {error}", advice) from error
    finally:
        for leftover in (building, building.with_name(building.name + ".wal")):
            with suppress(OSError):
                leftover.unlink(missing_ok=True)
    return Publication(path=path, rows=rows, versions=versions, bytes=size)


def _write_publication(
    connection: duckdb.DuckDBPyConnection, tables: Sequence[PinnedTable], rows: dict[str, int]
) -> None:
    connection.execute(
        "CREATE TABLE main.publication (published_at TIMESTAMPTZ, table_name VARCHAR, version BIGINT, files BIGINT, "
        "lake_rows BIGINT, published_rows BIGINT)"
    )
    now = datetime.now(UTC)
    records = [(now, p.spec.name, p.version, len(p.files), p.rows, rows.get(p.spec.name)) for p in tables]
    if records:
        connection.executemany("INSERT INTO main.publication VALUES (?, ?, ?, ?, ?, ?)", records)
    connection.execute("COMMENT ON TABLE main.publication IS 'Which version of each lake table this file shows.'")


def _select(connection: duckdb.DuckDBPyConnection, pinned: PinnedTable) -> str:
    columns = _columns(connection, pinned.spec)
    if not pinned.files:
        typed = ", ".join(f"NULL::{kind} AS {name}" for name, kind in columns)
        return f"SELECT {typed} WHERE false"
    files = ", ".join(_text(address) for address in pinned.files)
    hive = "true, hive_types = {'crawl': VARCHAR}" if "crawl" in pinned.spec.slice_columns else "false"
    # opens every file's footer, so only where files differ
    union = ", union_by_name = true" if pinned.uneven else ""
    source = f"read_parquet([{files}], hive_partitioning = {hive}{union})"
    # a column that was added may be in no file yet
    here = _described(connection, f"SELECT * FROM {source}") if pinned.uneven else pinned.columns
    names = ", ".join(_selected(name, kind, here) for name, kind in columns)
    return f"SELECT {names} FROM {source}"


def _selected(name: str, kind: str, here: Collection[str]) -> str:
    if name.strip('"') not in here:
        return f"NULL::{kind} AS {name}"
    return f"{name}::{kind} AS {name}" if kind == "TIMESTAMP WITH TIME ZONE" else name


def _described(connection: duckdb.DuckDBPyConnection, sql: str) -> set[str]:
    return {row[0] for row in connection.execute(f"DESCRIBE {sql}").fetchall()}


def _columns(connection: duckdb.DuckDBPyConnection, spec: TableSpec) -> list[tuple[str, str]]:
    connection.register("_empty", spec.schema.empty_table())
    described = connection.execute("DESCRIBE SELECT * FROM _empty").fetchall()
    connection.unregister("_empty")
    return [(f'"{row[0]}"', row[1]) for row in described]


def _qualified(view: ViewSpec) -> str:
    return view.name if "." in view.name else f"main.{view.name}"


def _count(connection: duckdb.DuckDBPyConnection, name: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM main.{name}").fetchone()
    return int(row[0]) if row else 0


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
