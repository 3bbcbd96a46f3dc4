"""Builds the published file: a snapshot that names pinned versions of tables. Readers keep it open for days while runs
go on, so they open it read-only and writers never open it again.

It is built under another name and renamed over the old file, so a reader that has the old file open can read all of it.
Views name explicit Parquet files of fixed table versions (docs/architecture.md, decision 3). A copy holds the rows of
those versions itself, and needs neither the lake nor a network.
"""

from __future__ import annotations

import json
import platform
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeAlias

import duckdb
import pyarrow as pa

from cc_pipeline.atomic import parse_leftover_name, written_whole
from cc_pipeline.duck import READ_BY, STORED_AS, connect
from cc_pipeline.errors import EnvironmentFault, disk_is_full
from cc_pipeline.lake.lake import NO_TABLE, PinnedTable, TableSpec
from cc_pipeline.lake.live_rows import LiveTable
from cc_pipeline.lake.published_file import S3LakeLocation, enable_s3_reads
from cc_pipeline.lake.quoting import quote_literal
from cc_pipeline.locks import is_plausible
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault

#: How long the files of another home's published file are kept, counted from its publication.
PIN_LIFETIME: Final = timedelta(days=30)
_FOLDER: Final = "published/"
_MAX_NOTE_BYTES: Final = 1 << 20

#: What DuckDB may hold in memory while it copies; it puts more into ``Copying.scratch``.
_COPY_MEMORY: Final = "1GB"
#: The same while it looks for captures of several targets.
_VIEWS_MEMORY: Final = "400MB"
#: Bytes of a copy for each byte of its Parquet files, which are packed more tightly. Measured: 1.6 for pages with text,
#: 6.6 for a mini crawl's. So a copy that is let in may still fill the disk; then it fails like any publication.
_COPY_FACTOR: Final = 2

_PUBLICATION: Final = "main.publication"
_PUBLICATION_NOTES: Final = {
    "published_at": "Time at which this file was built",
    "table_name": "Table of the lake",
    "version": "Delta version of the table that this file shows; -1: the table does not exist yet",
    "commit_id": "Digest of the names of that version's files; it differs after a log was restored",
    "files": "Parquet files of that version",
    "lake_rows": "Rows that count in these files",
    "build_digest": "Digest of the inputs of this file: version of the program, settings, location of the tables",
}

#: Runs a query on the file that is being built.
RunQuery: TypeAlias = Callable[[str], list[tuple[Any, ...]]]
#: A query, or a function that builds one from the file so far.
Sql: TypeAlias = str | Callable[[RunQuery], str]


def pin(lake: Transport, home: Path, tables: Sequence[PinnedTable], *, keep_previous: bool = False) -> None:
    """Notes that the published file of ``home`` names these versions, with ``keep_previous`` also those noted
    before."""
    pins = {table.spec.name: {table.version} for table in tables if table.version != NO_TABLE}
    if keep_previous:
        for name, versions in _read_versions(lake, _key(home)).items():
            pins.setdefault(name, set()).update(versions)
    content = {
        "published_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {name: sorted(versions) for name, versions in pins.items()},
    }
    lake.put(_key(home), (json.dumps(content) + "\n").encode())


def unpin(lake: Transport, home: Path) -> None:
    """Notes that the published file of ``home`` needs no files of the lake."""
    lake.delete(_key(home))


def read_pinned_versions(lake: Transport) -> dict[str, set[int]] | None:
    """By table, the versions that published files name; ``None`` if a note cannot be read: then no version may be
    deleted. Expired notes are deleted."""
    versions_by_table: dict[str, set[int]] | None = {}
    for note_file in lake.listing(_FOLDER):
        if parse_leftover_name(note_file.key.rpartition("/")[2]):
            continue
        pins = _read_pins(lake, note_file.key)
        now = time.time()
        # a note without a time, or with a future one, counts from when it was stored
        times = [note_file.modified] if pins is None else [pins.published_at, note_file.modified]
        note_time = next((moment for moment in times if is_plausible(moment, now)), None)
        if note_time is None or now - note_time >= PIN_LIFETIME.total_seconds():
            lake.delete(note_file.key)
        elif pins is None:
            versions_by_table = None
        elif versions_by_table is not None:
            for name, versions in pins.versions.items():
                versions_by_table.setdefault(name, set()).update(versions)
    return versions_by_table


def find_other_publications(lake: Transport, home: Path) -> dict[str, datetime]:
    """The other homes whose published files name versions of this lake (as keys of their notes), each with the time of
    its last publication."""
    homes = {}
    for note_file in lake.listing(_FOLDER):
        if note_file.key != _key(home) and _read_versions(lake, note_file.key):
            homes[note_file.key] = datetime.fromtimestamp(note_file.modified, UTC)
    return homes


@dataclass(frozen=True, slots=True)
class _Pins:
    """A note: the versions of tables that a published file names, and when it was published (seconds since the
    epoch)."""

    published_at: float
    versions: Mapping[str, Collection[int]]


def _read_versions(lake: Transport, key: str) -> Mapping[str, Collection[int]]:
    """The versions that a note pins; empty if it does not exist, is too old, or cannot be read."""
    pins = _read_pins(lake, key)
    return pins.versions if pins is not None and time.time() - pins.published_at < PIN_LIFETIME.total_seconds() else {}


def _read_pins(lake: Transport, key: str) -> _Pins | None:
    """Reads a note. A missing note pins nothing; ``None`` for a note that cannot be understood."""
    try:
        document = json.loads(lake.read_all(key, _MAX_NOTE_BYTES).data)
        versions = {str(name): [*map(int, numbers)] for name, numbers in document["versions"].items()}
        return _Pins(datetime.fromisoformat(document["published_at"]).timestamp(), versions)
    except RangeFault as fault:
        if fault.kind is FaultKind.NOT_FOUND:
            return _Pins(0.0, {})
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _key(home: Path) -> str:
    return f"{_FOLDER}{sha256(f'{platform.node()}:{home}'.encode()).hexdigest()[:16]}.json"


@dataclass(frozen=True, slots=True)
class ViewSpec:
    """A published name and the SQL behind it, which may use every pinned table under ``lake.<name>``.

    A name without a schema is published in ``main``; ``lake.<name>`` is for helpers that other views use. ``sql`` may
    depend on the content of the file before it. ``notes`` describe each column in a line."""

    name: str
    sql: Sql
    comment: str
    materialized: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MacroSpec:
    """A macro that can be called in the published file: ``name(parameters)``.

    ``sql`` is a query (a macro that is read like a table), or an expression if ``scalar``. When it is made, DuckDB
    looks at the names in it, as for a view, and at no row. ``parameters`` are names, ``name := value`` if there is a
    default.
    """

    name: str
    parameters: tuple[str, ...]
    sql: str
    comment: str
    scalar: bool = False


@dataclass(frozen=True, slots=True)
class Publication:
    """The result of publishing: rows and versions of the lake's tables, and bytes of the file."""

    path: Path
    rows: dict[str, int]
    versions: dict[str, int]
    bytes: int


@dataclass(frozen=True, slots=True)
class Copying:
    """The options of a copy. ``scratch`` is a folder for rows that do not fit into memory; it is made, and removed
    again.

    ``rows`` opens the rows of a table. Without it DuckDB reads the files itself, which a folder allows.
    """

    scratch: Path
    rows: Callable[[LiveTable], pa.RecordBatchReader] | None = None


def publish(
    path: Path,
    tables: Sequence[LiveTable],
    views: Sequence[ViewSpec],
    *,
    macros: Sequence[MacroSpec] = (),
    s3: S3LakeLocation | None = None,
    copying: Copying | None = None,
    build_digest: str | None = None,
) -> Publication:
    """Builds ``path`` from ``tables`` and ``views`` and swaps it in.

    ``lake.<table>`` is a view over the pinned files, or with ``copying`` a table of their rows; each of ``views``
    becomes ``main.<name>``, a table when ``materialized``, and each of ``macros`` a macro there. ``s3`` is the location
    of the files, if on S3. ``build_digest`` is kept in the file, to be compared with the digest of a later publication.
    Raises ``EnvironmentFault`` when the file cannot be built; the old one then stays."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if copying is not None:
            _check_room(path, tables)
        with written_whole(path) as building, connect(building, storage_compatibility_version=STORED_AS) as connection:
            _configure(connection, s3, copying)
            # hundreds of small statements, and each transaction is a write to the disk
            connection.execute("BEGIN")
            connection.execute("CREATE SCHEMA lake")
            for table in tables:
                _make_table(connection, table, copying)
            _make_views(connection, views)
            make_macros(connection, macros)
            _write_publication(connection, tables, build_digest)
            connection.execute("COMMIT")
            connection.execute("CHECKPOINT")
    except (duckdb.Error, OSError) as error:
        remedy = "Free some space" if disk_is_full(error) else "Check the disk and the lake"
        advice = f"{remedy}, then run the command again. The file published before is untouched."
        raise EnvironmentFault(f"could not build {path}: {error}", advice) from error
    finally:
        if copying is not None:
            shutil.rmtree(copying.scratch, ignore_errors=True)
    rows = {table.pinned.spec.name: table.rows for table in tables}
    versions = {table.pinned.spec.name: table.pinned.version for table in tables}
    return Publication(path, rows, versions, path.stat().st_size)


def _configure(connection: duckdb.DuckDBPyConnection, s3: S3LakeLocation | None, copying: Copying | None) -> None:
    connection.execute("SET TimeZone = 'UTC'")
    if copying is not None:
        _bound_memory(connection, copying.scratch)
        return
    # beyond that it writes to a folder beside the file, and removes it
    connection.execute(f"SET memory_limit = '{_VIEWS_MEMORY}'")
    if s3 is not None:
        enable_s3_reads(connection, s3)


def _run_query(connection: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(query).fetchall()


def _make_views(connection: duckdb.DuckDBPyConnection, views: Sequence[ViewSpec]) -> None:
    """Makes ``views``, with their comments."""
    for view in views:
        kind, sql = "TABLE" if view.materialized else "VIEW", view.sql
        query = sql if isinstance(sql, str) else sql(partial(_run_query, connection))
        connection.execute(f"CREATE {kind} {_qualify_name(view)} AS {query}")
        connection.execute(f"COMMENT ON {kind} {_qualify_name(view)} IS {quote_literal(view.comment)}")
    _annotate(connection, {_qualify_name(view): view.notes for view in views})


def _make_table(connection: duckdb.DuckDBPyConnection, table: LiveTable, copying: Copying | None) -> None:
    pinned = table.pinned
    name = f"lake.{pinned.spec.name}"
    if table.mixed:
        connection.register("_generations", pa.table({"generation": table.generations}))
        connection.execute(f"CREATE TABLE {name}_generations AS FROM _generations")
        connection.unregister("_generations")
    if copying is None:
        connection.execute(f"CREATE VIEW {name} AS {_build_select(connection, table)}")
    elif copying.rows is None or not pinned.files:
        connection.execute(f"CREATE TABLE {name} AS {_build_select(connection, table)}")
    else:
        connection.register("_rows", copying.rows(table))
        connection.execute(f"CREATE TABLE {name} AS FROM _rows")
        connection.unregister("_rows")
    kind = "VIEW" if copying is None else "TABLE"
    comment = f"Rows of {pinned.spec.name} as the stages wrote them: version {pinned.version}."
    connection.execute(f"COMMENT ON {kind} {name} IS {quote_literal(comment)}")


def make_macros(connection: duckdb.DuckDBPyConnection, macros: Sequence[MacroSpec]) -> None:
    """Makes ``macros``, with their comments, in the file that is in use."""
    for macro in macros:
        table = "" if macro.scalar else "TABLE "
        connection.execute(f"CREATE MACRO main.{macro.name}({', '.join(macro.parameters)}) AS {table}{macro.sql}")
        connection.execute(f"COMMENT ON MACRO {table}main.{macro.name} IS {quote_literal(macro.comment)}")


def _annotate(connection: duckdb.DuckDBPyConnection, notes: Mapping[str, Mapping[str, str]]) -> None:
    """Comments on columns, by view or table and column. Opens no file of the lake."""
    query = "SELECT schema_name || '.' || table_name, column_name FROM duckdb_columns() WHERE NOT internal"
    comments = [
        f'COMMENT ON COLUMN {name}."{column}" IS {quote_literal(comment)}'
        for name, column in connection.execute(query).fetchall()
        if (comment := notes.get(name, {}).get(column)) is not None
    ]
    if comments:
        connection.execute(";".join(comments))


def _bound_memory(connection: duckdb.DuckDBPyConnection, scratch: Path) -> None:
    scratch.mkdir(parents=True, exist_ok=True)
    connection.execute(f"SET temp_directory = {quote_literal(str(scratch))}")
    connection.execute(f"SET memory_limit = '{_COPY_MEMORY}'")
    # rows are read in no order anyway, and to keep one DuckDB would hold back early rows
    connection.execute("SET preserve_insertion_order = false")


def _check_room(path: Path, tables: Sequence[LiveTable]) -> None:
    needed = _COPY_FACTOR * sum(table.pinned.bytes for table in tables)
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise EnvironmentFault(
            f"a copy of the tables takes about {needed / 1e9:,.1f} GB beside {path}, and {free / 1e9:,.1f} GB are free",
            "Free some space, or publish views: CC_PIPELINE_PUBLISH=views. The file published before is untouched.",
        )


def _write_publication(
    connection: duckdb.DuckDBPyConnection, tables: Sequence[LiveTable], build_digest: str | None
) -> None:
    connection.execute(
        f"CREATE TABLE {_PUBLICATION} (published_at TIMESTAMPTZ, table_name VARCHAR, version BIGINT, "
        "commit_id VARCHAR, files BIGINT, lake_rows BIGINT, build_digest VARCHAR)"
    )
    now = datetime.now(UTC)
    records = [
        (
            now,
            table.pinned.spec.name,
            table.pinned.version,
            table.pinned.commit_id,
            len(table.pinned.files),
            table.rows,
            build_digest,
        )
        for table in tables
    ]
    if records:
        connection.executemany(f"INSERT INTO {_PUBLICATION} VALUES (?, ?, ?, ?, ?, ?, ?)", records)
    comment = f"Which version of each lake table this file shows. {READ_BY}"
    connection.execute(f"COMMENT ON TABLE {_PUBLICATION} IS {quote_literal(comment)}")
    _annotate(connection, {_PUBLICATION: _PUBLICATION_NOTES})


def _build_select(connection: duckdb.DuckDBPyConnection, table: LiveTable) -> str:
    """The rows that count of a table, by its pinned files."""
    spec = table.pinned.spec
    columns = _read_columns(connection, spec)
    if not table.complete and not table.mixed:
        typed = ", ".join(f"NULL::{kind} AS {name}" for name, kind in columns)
        return f"SELECT {typed} WHERE false"
    # Delta stores times in microseconds
    names = ", ".join(
        f"{name}::{kind} AS {name}" if kind == "TIMESTAMP WITH TIME ZONE" else name for name, kind in columns
    )
    parts = [f"SELECT {names} FROM {_read_files(spec, table.complete)}"] if table.complete else []
    if table.mixed:
        counting = f"WHERE generation IN (FROM lake.{spec.name}_generations)"
        parts.append(f"SELECT {names} FROM {_read_files(spec, table.mixed)} {counting}")
    return " UNION ALL ".join(parts)


def _read_files(spec: TableSpec, addresses: Sequence[str]) -> str:
    files = ", ".join(quote_literal(address) for address in addresses)
    hive = "true, hive_types = {'crawl': VARCHAR}" if spec.partition_columns else "false"
    source = f"read_parquet([{files}], hive_partitioning = {hive})"
    if not spec.key:
        return source
    newest = f"seq = max(seq) OVER (PARTITION BY {', '.join(spec.key)})"
    return f"(FROM (FROM {source} QUALIFY {newest}) WHERE NOT is_removed)"


def _read_columns(connection: duckdb.DuckDBPyConnection, spec: TableSpec) -> list[tuple[str, str]]:
    connection.register("_empty", spec.schema.empty_table())
    described = connection.execute("DESCRIBE SELECT * FROM _empty").fetchall()
    connection.unregister("_empty")
    return [(f'"{row[0]}"', row[1]) for row in described]


def _qualify_name(view: ViewSpec) -> str:
    return view.name if "." in view.name else f"main.{view.name}"
