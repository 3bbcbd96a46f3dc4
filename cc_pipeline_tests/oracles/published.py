"""``python -m cc_pipeline_tests.oracles.published ONE.duckdb OTHER.duckdb``: whether two published files say the same.

For a change that must not change a row: run the same targets with the code of before and of after, in two homes over
one bucket, and compare. Every view is compared row for row, as multisets, in both directions. Left out are columns
that no two runs share: when something was done, and under which name and offset a record was stored.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import duckdb

#: Of a run, not of the data.
OF_THE_RUN = ("asked_at", "fetched_at", "harvested_at", "looked_up_at", "served_by", "stored_file", "stored_offset")
#: About the publication itself.
NOT_COMPARED = ("publication",)
_SAME = "the same"


def main() -> int:
    """Prints a line per view; gives 1 where anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("one", type=Path)
    parser.add_argument("other", type=Path)
    given = parser.parse_args()
    said = compared(given.one, given.other)
    for line in said.values():
        print(line)
    print(f"not compared: the columns {', '.join(OF_THE_RUN)}, and {', '.join(NOT_COMPARED)}")
    return 0 if all(line.endswith(_SAME) for line in said.values()) else 1


def differences(one: Path, other: Path) -> list[str]:
    """A line for each view that is not the same in both files."""
    return [line for line in compared(one, other).values() if not line.endswith(_SAME)]


def compared(one: Path, other: Path) -> dict[str, str]:
    """By view, how many rows it has and whether it is the same in both files."""
    with duckdb.connect() as connection:
        # views name their files by absolute paths, so both files can be open side by side
        connection.execute(f"ATTACH '{one}' AS one (READ_ONLY)")
        connection.execute(f"ATTACH '{other}' AS other (READ_ONLY)")
        names = {name: _views(connection, name) for name in ("one", "other")}
        return {view: _compare(connection, view, names) for view in sorted(names["one"] | names["other"])}


def _views(connection: duckdb.DuckDBPyConnection, database: str) -> set[str]:
    rows = connection.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_catalog = ? AND table_schema = 'main'", [database]
    ).fetchall()
    return {name for (name,) in rows} - set(NOT_COMPARED)


def _compare(connection: duckdb.DuckDBPyConnection, view: str, names: dict[str, set[str]]) -> str:
    missing = [name for name in names if view not in names[name]]
    if missing:
        return f"{view}: not in {', '.join(missing)}"
    columns = {name: _columns(connection, f"{name}.main.{view}") for name in names}
    shared = [column for column in columns["one"] if column in columns["other"]]
    extra = sorted(set(columns["one"]) ^ set(columns["other"]))
    listed = ", ".join(f'"{column}"::VARCHAR' for column in shared if column not in OF_THE_RUN)
    one, other = (f"SELECT {listed} FROM {name}.main.{view}" for name in names)
    rows = connection.execute(f"SELECT count(*) FROM ({one})").fetchone() or (0,)
    only = [
        (connection.execute(f"SELECT count(*) FROM ({a} EXCEPT ALL {b})").fetchone() or (0,))[0]
        for a, b in ((one, other), (other, one))
    ]
    said = _SAME if not any(only) else f"{only[0]:,} rows only in one, {only[1]:,} only in the other"
    return f"{view}: {rows[0]:,} rows, {said}" + (f"; columns of one file alone: {', '.join(extra)}" if extra else "")


def _columns(connection: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    return [row[0] for row in connection.execute(f"DESCRIBE {table}").fetchall()]


if __name__ == "__main__":
    sys.exit(main())
