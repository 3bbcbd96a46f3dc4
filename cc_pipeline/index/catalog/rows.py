"""Packs the three tables that users see into the catalog's stored rows, and unpacks them again.

Each fact is stored once; other columns of the tables are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.index.catalog.schemas import (
    CATALOG_SCHEMA,
    COVERAGE_SCHEMA,
    DECODED,
    INDEX_FILES_SCHEMA,
    KEY_COLUMN,
    PLACE_FIELDS,
    ROW_GROUPS_SCHEMA,
)

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_LOW, _HIGH = f"{KEY_COLUMN}_min", f"{KEY_COLUMN}_max"
_FILE: Final = [name for name in INDEX_FILES_SCHEMA.names if name not in PLACE_FIELDS]

#: The tables that users see, with their schemas.
VIEW_SCHEMAS: Final = {
    "index_files": INDEX_FILES_SCHEMA,
    "row_groups": ROW_GROUPS_SCHEMA,
    "coverage": COVERAGE_SCHEMA,
}


def table_query(table: str, stored: str) -> str:
    """Returns the query for one of the tables ``VIEW_SCHEMAS`` over the rows that SQL names ``stored``."""
    if table == "coverage":
        return f"""SELECT crawl, subset, any_value(coverage.expected) AS expected,
            count(*) FILTER (file.outcome = '{DECODED}') AS harvested,
            count(*) FILTER (file.outcome <> '{DECODED}') AS failed,
            any_value(coverage.expected) - count(file.outcome) AS missing,
            count(row_group) AS row_groups, coalesce(sum("rows"), 0)::BIGINT AS rows,
            count(*) FILTER (row_group IS NOT NULL AND ({_LOW} IS NULL OR {_HIGH} IS NULL)) AS without_statistics,
            any_value(coverage.reason) AS reason
            FROM {stored} GROUP BY crawl, subset ORDER BY crawl, subset"""
    if table == "index_files":
        columns = ", ".join([*PLACE_FIELDS, *(f'file."{name}" AS "{name}"' for name in _FILE)])
        return f"SELECT {columns} FROM {stored} WHERE file IS NOT NULL"
    columns = ", ".join(f'"{name}"' for name in ROW_GROUPS_SCHEMA.names)
    return f"SELECT {columns} FROM {stored} WHERE row_group IS NOT NULL"


def read_view(table: str, stored: pa.Table) -> pa.Table:
    """Returns one of the tables ``VIEW_SCHEMAS`` of ``stored`` rows, which need only the columns of that table.

    It has the rows of :func:`table_query`. Lookups and plans ask for single crawls, and need no DuckDB for that.
    """
    columns = _UNPACKED[table](stored)
    schema = VIEW_SCHEMAS[table]
    return pa.table([columns[name] for name in schema.names], schema.names).cast(schema)


def _unpack_coverage(stored: pa.Table) -> Mapping[str, pa.Array | pa.ChunkedArray]:
    outcome = pc.struct_field(stored["file"], "outcome")
    is_group = pc.is_valid(stored["row_group"])
    facts = pa.table(
        {
            "crawl": stored["crawl"],
            "subset": stored["subset"],
            "expected": pc.struct_field(stored["coverage"], "expected"),
            "reason": pc.struct_field(stored["coverage"], "reason"),
            "harvested": pc.equal(outcome, DECODED),
            "failed": pc.not_equal(outcome, DECODED),
            "row_groups": is_group,
            "rows": stored["rows"],
            "without_statistics": pc.and_(is_group, pc.or_(pc.is_null(stored[_LOW]), pc.is_null(stored[_HIGH]))),
        }
    )
    counted = ("harvested", "failed", "row_groups", "rows", "without_statistics")
    sums = [(name, "sum", pc.ScalarAggregateOptions(min_count=0)) for name in counted]
    # the one row of a subset that has them
    stated = [(name, "first", pc.ScalarAggregateOptions(skip_nulls=True)) for name in ("expected", "reason")]
    subsets = facts.group_by(["crawl", "subset"], use_threads=False).aggregate([*sums, *stated])
    subsets = subsets.sort_by([("crawl", "ascending"), ("subset", "ascending")])
    columns = {name: subsets[f"{name}_sum"] for name in counted}
    columns |= {name: subsets[f"{name}_first"] for name in ("expected", "reason")}
    known_files = pc.add(*(pc.cast(columns[name], pa.int64()) for name in ("harvested", "failed")))
    missing = pc.subtract(columns["expected"], known_files)
    return columns | {"crawl": subsets["crawl"], "subset": subsets["subset"], "missing": missing}


def _unpack_index_files(stored: pa.Table) -> Mapping[str, pa.Array | pa.ChunkedArray]:
    rows = stored.filter(pc.is_valid(stored["file"]))
    return {name: rows[name] for name in PLACE_FIELDS} | {name: pc.struct_field(rows["file"], name) for name in _FILE}


def _unpack_row_groups(stored: pa.Table) -> Mapping[str, pa.Array | pa.ChunkedArray]:
    rows = stored.filter(pc.is_valid(stored["row_group"]))
    return {name: rows[name] for name in ROW_GROUPS_SCHEMA.names}


_UNPACKED: Final[Mapping[str, Callable[[pa.Table], Mapping[str, pa.Array | pa.ChunkedArray]]]] = {
    "index_files": _unpack_index_files,
    "row_groups": _unpack_row_groups,
    "coverage": _unpack_coverage,
}


def pack_rows(
    con: DuckDBPyConnection,
    *,
    index_files: pa.Table,
    row_groups: pa.Table,
    coverage: pa.Table,
) -> pa.Table:
    """Returns the rows to store of these tables, sorted so that a search for keys skips most of them: row groups by
    their lowest key, those of unknown bounds last."""
    cursor = con.cursor()
    for name, table in {"f": index_files, "g": row_groups, "s": coverage}.items():
        cursor.register(name, table)
    file = ", ".join(f"'{name}': \"{name}\"" for name in _FILE)
    packed_rows = cursor.sql(
        f"""SELECT crawl, subset, {{'expected': expected, 'reason': reason}} AS coverage FROM s
        UNION ALL BY NAME SELECT crawl, subset, path, part, {{{file}}} AS file FROM f
        UNION ALL BY NAME SELECT * FROM g"""
    ).to_arrow_table()
    return sort_rows(packed_rows.select(CATALOG_SCHEMA.names).cast(CATALOG_SCHEMA))


def sort_rows(stored: pa.Table) -> pa.Table:
    """Sorts ``stored`` rows: subsets, index files, row groups of known bounds by the lowest key, other row groups."""
    group = pc.is_valid(stored["row_group"])
    is_unbounded = pc.and_(group, pc.or_(pc.is_null(stored[_LOW]), pc.is_null(stored[_HIGH])))
    order = pa.table(
        {
            "is_no_subset": pc.is_null(stored["coverage"]), "is_group": group, "is_unknown": is_unbounded,
            "low": pc.if_else(is_unbounded, pa.scalar(None, pa.binary()), stored[_LOW]),
            "subset": stored["subset"], "path": stored["path"], "number": stored["row_group"],
        }
    )  # fmt: skip
    return stored.take(pc.sort_indices(order, [(name, "ascending") for name in order.column_names])).combine_chunks()
