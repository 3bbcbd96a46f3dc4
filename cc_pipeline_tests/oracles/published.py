"""Published rows by value: digests of a published file, and whether two published files hold the same rows.

``python -m cc_pipeline_tests.oracles.published FIRST.duckdb SECOND.duckdb`` compares two files row for row, as
multisets, in both directions. :func:`read_digests` reduces one file to digests that do not depend on the order of rows;
``frozen.py`` compares these with the digests in this folder. Both leave out the columns of :data:`LEFT_OUT`.
"""

from __future__ import annotations

import argparse
import base64
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

import duckdb

#: Columns that differ between two runs over the same source, whatever the code, and why.
LEFT_OUT: Final[Mapping[str, str]] = {
    "last_attempt_at": "a time of the run",
    "last_ask_at": "a time of the run",
    "next_ask_at": "a time of the run",
    "fetched_at": "a time of the run",
    "harvested_at": "a time of the run",
    "looked_up_at": "a time of the run",
    "etag": "of a folder: time of the file",
    "parser_version": "the parser's version; what it made is compared",
    "stored_file": "holds the id of the run that stored it",
    "stored_offset": "depends on which records were stored together",
    "stored_length": "a stored record names its source, here a path of this machine",
}
#: Tables that are left out, and why.
TABLES_LEFT_OUT: Final[Mapping[str, str]] = {"publication": "ids and times of the commits that were published"}
#: Larger tables have no marks of rows.
MARKED_ROWS: Final = 2000
_MARK: Final = 0xFFFFFF
_EQUAL: Final = "equal"


@dataclass(frozen=True, slots=True)
class TableDigest:
    """A published table: ``rows``, the digest of its whole rows, and a digest of each column by its name.

    A digest is the sum of 64-bit MD5 halves of the values, in hexadecimal: the order of rows does not matter, and equal
    rows do not cancel each other. ``row_marks`` has 24 bits of each row's digest, to tell which rows are new; empty for
    tables of more than ``MARKED_ROWS`` rows.
    """

    rows: int
    digest: str
    columns: Mapping[str, str]
    row_marks: tuple[int, ...] = ()

    @classmethod
    def from_json(cls, noted: Mapping[str, Any]) -> Self:
        """The digest that ``to_json`` gave."""
        marks = base64.b64decode(noted["row_marks"])
        row_marks = tuple(int.from_bytes(marks[place : place + 3], "big") for place in range(0, len(marks), 3))
        return cls(noted["rows"], noted["digest"], dict(noted["columns"]), row_marks)

    def to_json(self) -> dict[str, object]:
        """Plain values, for a fixture."""
        marks = b"".join(mark.to_bytes(3, "big") for mark in self.row_marks)
        return asdict(self) | {"row_marks": base64.b64encode(marks).decode()}


def read_digests(published: Path) -> dict[str, TableDigest]:
    """The digests of all tables of a published file, by table."""
    with duckdb.connect() as connection:
        _attach(connection, "published", published)
        return {table: _digest(connection, table) for table in _tables(connection, "published")}


def read_new_rows(published: Path, table: str, frozen: TableDigest, limit: int = 3) -> list[dict[str, Any]]:
    """Up to ``limit`` rows of a table that have no mark in ``frozen``, the compared columns by name."""
    with duckdb.connect() as connection:
        _attach(connection, "published", published)
        columns = _compared_columns(connection, f"published.main.{table}")
        if not frozen.row_marks or columns != list(frozen.columns):
            return []
        row_hash = _row_hash(_value_hash(name) for name in columns)
        listed = ", ".join(f'"{name}"' for name in columns)
        query = f"SELECT {listed} FROM published.main.{table} WHERE NOT list_contains(?, {row_hash} & {_MARK}) LIMIT ?"
        rows = connection.execute(query, [list(frozen.row_marks), limit]).fetchall()
        return [dict(zip(columns, row, strict=True)) for row in rows]


def _digest(connection: duckdb.DuckDBPyConnection, table: str) -> TableDigest:
    columns = _compared_columns(connection, f"published.main.{table}")
    hashes = ", ".join(f'{_value_hash(name)} AS "{name}"' for name in columns)
    row_hash = _row_hash(f'"{name}"' for name in columns)
    hashed = f"SELECT {row_hash} AS row_hash, * FROM (SELECT {hashes} FROM published.main.{table})"
    connection.execute(f"CREATE OR REPLACE TEMP TABLE hashed AS {hashed}")
    sums = ", ".join(f'sum("{name}")' for name in ("row_hash", *columns))
    rows, *digests = connection.execute(f"SELECT count(*), {sums} FROM hashed").fetchone() or ()
    digest, *of_columns = (f"{int(value or 0):x}" for value in digests)
    marks = connection.execute(f"SELECT row_hash & {_MARK} FROM hashed ORDER BY 1").fetchall()
    row_marks = tuple(mark for (mark,) in marks) if rows <= MARKED_ROWS else ()
    return TableDigest(rows, digest, dict(zip(columns, of_columns, strict=True)), row_marks)


def _value_hash(column: str) -> str:
    # a value is marked, so that an empty text and no value differ
    return f"md5_number_lower(coalesce('=' || \"{column}\"::VARCHAR, ''))"


def _row_hash(hashes: Iterable[str]) -> str:
    return f"md5_number_lower(concat_ws(',', {', '.join(hashes)}))"


def compare_files(first: Path, second: Path) -> dict[str, str]:
    """By table, how many rows it has in the first file, and whether both files hold the same rows."""
    with duckdb.connect() as connection:
        # views name their files by absolute paths, so both files can be open side by side
        _attach(connection, "first", first)
        _attach(connection, "second", second)
        tables = {name: _tables(connection, name) for name in ("first", "second")}
        every = sorted({*tables["first"], *tables["second"]})
        return {table: _compare(connection, table, tables) for table in every}


def list_differences(first: Path, second: Path) -> list[str]:
    """A line for each table whose rows are not the same in both files."""
    return [line for line in compare_files(first, second).values() if not line.endswith(_EQUAL)]


def _compare(connection: duckdb.DuckDBPyConnection, table: str, tables: Mapping[str, list[str]]) -> str:
    missing = [name for name in tables if table not in tables[name]]
    if missing:
        return f"{table}: not in the {', '.join(missing)} file"
    columns = {name: _compared_columns(connection, f"{name}.main.{table}") for name in tables}
    shared = [column for column in columns["first"] if column in columns["second"]]
    extra = sorted(set(columns["first"]) ^ set(columns["second"]))
    listed = ", ".join(f'"{column}"::VARCHAR AS "{column}"' for column in shared)
    first, second = (f"SELECT {listed} FROM {name}.main.{table}" for name in ("first", "second"))
    rows = connection.execute(f"SELECT count(*) FROM ({first})").fetchone() or (0,)
    lines = []
    for name, difference in (("first", f"{first} EXCEPT ALL {second}"), ("second", f"{second} EXCEPT ALL {first}")):
        count = (connection.execute(f"SELECT count(*) FROM ({difference})").fetchone() or (0,))[0]
        if count:
            example = connection.execute(f"{difference} LIMIT 1").fetchone() or ()
            shown = ", ".join(f"{column}={value}" for column, value in zip(shared, example, strict=True))
            lines.append(f"{count:,} rows only in the {name} file, as {shown}")
    if extra:
        lines.append(f"columns of one file alone: {', '.join(extra)}")
    return f"{table}: {rows[0]:,} rows, {'; '.join(lines) or _EQUAL}"


def _attach(connection: duckdb.DuckDBPyConnection, name: str, published: Path) -> None:
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"ATTACH '{published}' AS {name} (READ_ONLY)")


def _tables(connection: duckdb.DuckDBPyConnection, database: str) -> list[str]:
    rows = connection.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_catalog = ? AND table_schema = 'main'", [database]
    ).fetchall()
    return sorted({name for (name,) in rows} - TABLES_LEFT_OUT.keys())


def _compared_columns(connection: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    described = connection.execute(f"DESCRIBE {table}").fetchall()
    return [name for name, *_ in described if name not in LEFT_OUT]


def main() -> int:
    """Prints a line for each table; gives 1 where any rows differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    arguments = parser.parse_args()
    lines = compare_files(arguments.first, arguments.second).values()
    print(*lines, sep="\n")
    print(f"not compared: the columns {', '.join(LEFT_OUT)}, and {', '.join(TABLES_LEFT_OUT)}")
    return 0 if all(line.endswith(_EQUAL) for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
