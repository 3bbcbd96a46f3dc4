"""Which row groups of which index files may hold a key: answered from one DuckDB file, with no network.

Bounds are compared as bytes, and unknown bounds match everything. The table is sorted by lowest key;
``key_blocks`` says for every 2,048 rows what they may hold, so that one domain touches a few blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.btree_keys import KeyRange
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.index.catalog.build import FORMAT
from cc_pipeline.index.catalog.schemas import KEY_CHUNK_FIELDS, KEY_COLUMN, ROW_GROUPS_SCHEMA

#: The columns of an answer, a part of ``ROW_GROUPS_SCHEMA``.
ANSWER_SCHEMA: Final = pa.schema(
    [
        ROW_GROUPS_SCHEMA.field(name)
        for name in (
            *("crawl", "subset", "path", "row_group", "rows", "compressed_bytes", "data_offset"),
            *KEY_CHUNK_FIELDS,
            *(f"{KEY_COLUMN}_min", f"{KEY_COLUMN}_max", f"{KEY_COLUMN}_source", "fetch_time_min", "fetch_time_max"),
        )
    ]
)
_COLUMNS: Final = ", ".join(ANSWER_SCHEMA.names)
#: Places in the table one question names; more are covered together.
_MOST_STRETCHES: Final = 40
#: A question about so many crawls or fewer has an answer of some dozen rows: see ``Catalog._few``.
_FEW_CRAWLS: Final = 4
_LOW, _HIGH = f"{KEY_COLUMN}_min", f"{KEY_COLUMN}_max"


@dataclass(frozen=True, slots=True)
class Filter:
    """Restricts an answer. ``None`` means all; times are aware, ``since`` inclusive, ``until`` exclusive."""

    crawls: tuple[str, ...] | None = None
    subsets: tuple[str, ...] | None = None
    since: datetime | None = None
    until: datetime | None = None

    def takes(self, crawl: str, subset: str) -> bool:
        """Whether row groups of this crawl and subset are wanted."""
        return (self.crawls is None or crawl in self.crawls) and (self.subsets is None or subset in self.subsets)


@dataclass(frozen=True, slots=True)
class RowGroupMatches:
    """The answer for many targets at once.

    ``row_groups`` (``ANSWER_SCHEMA``) holds each row group once; those from ``unknown_from`` on have no key
    bounds and may match every target. ``pairs`` says which of the others may match which target: columns
    ``target`` and ``row`` (index into ``row_groups``).
    """

    row_groups: pa.Table
    pairs: pa.Table
    unknown_from: int

    def for_target(self, target: str) -> pa.Table:
        """The row groups that may hold captures of one target, unknown ones included."""
        rows = self.pairs.filter(pc.equal(self.pairs["target"], target))["row"]
        return pa.concat_tables([self.row_groups.take(rows), self.row_groups.slice(self.unknown_from)])


class Catalog:
    """An open ``catalog.duckdb``; made by ``open_catalog``, a context manager, safe to use from threads."""

    def __init__(self, path: Path, con: duckdb.DuckDBPyConnection) -> None:
        self.path = path
        self._con = con
        self._blocks: list[tuple[int, bytes, bytes]] = con.execute(
            "SELECT block, lowest, highest FROM catalog.key_blocks ORDER BY block"
        ).fetchall()
        info = con.execute("SELECT block_rows, known_row_groups FROM catalog.catalog_info").fetchone()
        assert info is not None
        self._block_rows, self._known = int(info[0]), int(info[1])
        self._unknown_rows: pa.Table | None = None
        self._unknown_slices: dict[tuple[str, str], tuple[int, int]] = {}

    def __enter__(self) -> Catalog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._con.close()

    def row_groups_for(
        self,
        crawls: str | Sequence[str] | None,
        subsets: Sequence[str] | None,
        ranges: Sequence[KeyRange],
        *,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> pa.Table:
        """Every row group that may hold a key of ``ranges`` (``ANSWER_SCHEMA``), each once, in no set order.

        ``None`` for ``crawls`` or ``subsets`` means all of them.
        """
        wanted = _filter(crawls, subsets, since, until)
        found = [self._unknown(wanted)]
        stretches = self._stretches(ranges)
        if stretches:
            conditions, values = _conditions(wanted)
            places = []
            for first, end, start, stop in stretches:
                place = f"rowid >= {first} AND rowid < {end} AND {_HIGH} >= ?"
                places.append(place if stop is None else f"{place} AND {_LOW} < ?")
                values += [start] if stop is None else [start, stop]
            conditions.append(places[0] if len(places) == 1 else f"(({') OR ('.join(places)}))")
            query = f"SELECT {_COLUMNS} FROM catalog.row_groups WHERE {' AND '.join(conditions)}"
            if wanted.crawls is not None and len(wanted.crawls) <= _FEW_CRAWLS:
                found.insert(0, self._few(query, values, ranges))
            else:
                found.insert(0, _inside(self._query(query, values).cast(ANSWER_SCHEMA), ranges))
        return pa.concat_tables(found)

    def row_groups_for_many(
        self,
        crawls: str | Sequence[str] | None,
        subsets: Sequence[str] | None,
        targets: Mapping[str, Sequence[KeyRange]],
        *,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> RowGroupMatches:
        """Like ``row_groups_for``, for thousands of targets (name to ranges) in one pass."""
        wanted = _filter(crawls, subsets, since, until)
        unknown = self._unknown(wanted)
        names = list(targets)
        asked = [(number, key_range) for number, name in enumerate(names) for key_range in targets[name]]
        questions = [(number, block, r.start, r.end) for number, r in asked for block in self._candidates(r)]
        if not questions:
            return RowGroupMatches(unknown, _pairs([], np.empty(0, np.int64), np.empty(0, np.int64)), 0)
        conditions, values = _conditions(wanted)
        restricted = "".join(f" AND {condition}" for condition in conditions)
        number, block, start, end = zip(*questions, strict=True)
        asked_table = pa.table(
            {
                "target": pa.array(number, pa.int64()),
                "block": pa.array(block, pa.int64()),
                "range_start": pa.array(start, pa.binary()),
                "range_end": pa.array(end, pa.binary()),
            }
        )
        cursor = self._con.cursor()
        cursor.register("asked", asked_table)
        hits = cursor.sql(
            f"""SELECT DISTINCT asked.target, row_groups.rowid AS row FROM catalog.row_groups row_groups JOIN asked
            ON row_groups.rowid // {self._block_rows} = asked.block
            AND (asked.range_end IS NULL OR {_LOW} < asked.range_end) AND {_HIGH} >= asked.range_start
            WHERE row_groups.rowid >= {min(block) * self._block_rows}
            AND row_groups.rowid < {min(self._known, (max(block) + 1) * self._block_rows)}{restricted}""",
            params=values,
        ).to_arrow_table()
        row_ids = np.unique(hits["row"].to_numpy())
        cursor.register("hit", pa.table({"id": row_ids}))
        rows = cursor.sql(
            f"SELECT {_COLUMNS} FROM catalog.row_groups groups JOIN hit ON groups.rowid = hit.id ORDER BY hit.id"
        ).to_arrow_table()
        pairs = _pairs(names, hits["target"].to_numpy(), np.searchsorted(row_ids, hits["row"].to_numpy()))
        return RowGroupMatches(pa.concat_tables([rows.cast(ANSWER_SCHEMA), unknown]), pairs, len(row_ids))

    def column_chunks(self, row_groups: pa.Table, columns: Iterable[str] | None = None) -> pa.Table:
        """Positions of look-up columns (``COLUMN_CHUNKS_SCHEMA``) for row groups of an answer."""
        cursor = self._con.cursor()
        cursor.register("asked", row_groups.select(["crawl", "path", "row_group"]))
        crawls = pc.unique(row_groups["crawl"]).to_pylist()
        chosen = "" if columns is None else ' AND list_contains(?, c."column")'
        return cursor.sql(
            f"""SELECT c.* FROM catalog.column_chunks c JOIN asked USING (crawl, path, row_group)
            WHERE list_contains(?, c.crawl){chosen} ORDER BY c.crawl, c.path, c.row_group, c.chunk_offset""",
            params=[crawls] if columns is None else [crawls, list(columns)],
        ).to_arrow_table()

    def coverage(self, crawl: str | None = None) -> pa.Table:
        """Files expected, harvested and failed of each subset (``COVERAGE_SCHEMA``)."""
        return self._of_crawl("coverage", crawl)

    def index_files(self, crawl: str | None = None) -> pa.Table:
        """The index files (``INDEX_FILES_SCHEMA``) of a crawl, or all."""
        return self._of_crawl("index_files", crawl)

    def crawls(self) -> tuple[str, ...]:
        """The crawls the catalog knows of, harvested or not, in order of their names."""
        rows = self._con.cursor().execute("SELECT DISTINCT crawl FROM catalog.coverage ORDER BY crawl").fetchall()
        return tuple(str(row[0]) for row in rows)

    def sql(self, query: str, params: Sequence[object] = ()) -> pa.Table:
        """Any read-only query; its tables are named ``catalog.row_groups`` and so on."""
        return self._query(query, list(params))

    def _of_crawl(self, table: str, crawl: str | None) -> pa.Table:
        if crawl is None:
            return self._query(f"SELECT * FROM catalog.{table}", [])
        return self._query(f"SELECT * FROM catalog.{table} WHERE crawl = ?", [crawl])

    def _query(self, query: str, values: Sequence[object]) -> pa.Table:
        return self._con.cursor().sql(query, params=list(values)).to_arrow_table()

    def _few(self, query: str, values: Sequence[object], ranges: Sequence[KeyRange]) -> pa.Table:
        """The same for an answer of some dozen rows, which DuckDB gives faster as plain rows than as Arrow."""
        low, high = ANSWER_SCHEMA.get_field_index(_LOW), ANSWER_SCHEMA.get_field_index(_HIGH)
        rows = [
            row
            for row in self._con.cursor().execute(query, list(values)).fetchall()
            if any(keys.may_overlap(row[low], row[high]) for keys in ranges)
        ]
        columns = zip(*rows, strict=True) if rows else [()] * len(ANSWER_SCHEMA)
        return pa.table(
            [pa.array(column, field.type) for column, field in zip(columns, ANSWER_SCHEMA, strict=True)],
            schema=ANSWER_SCHEMA,
        )

    def _candidates(self, key_range: KeyRange) -> list[int]:
        end = key_range.end
        found = []
        for block, lowest, highest in self._blocks:
            if end is not None and lowest >= end:
                break
            if highest >= key_range.start:
                found.append(block)
        return found

    def _stretches(self, ranges: Sequence[KeyRange]) -> list[tuple[int, int, bytes, bytes | None]]:
        """Where in the table keys of the ranges can be: first row, row after the last, lowest key, end of the keys.

        Ranges that fall into the same or neighbouring blocks are covered together: one comparison for the two
        ranges of a domain costs half of two, and the few rows between them are taken out afterwards.
        """
        blocks: dict[int, tuple[bytes, bytes | None]] = {}
        for key_range in ranges:
            for block in self._candidates(key_range):
                blocks[block] = _covering(blocks.get(block), key_range)
        stretches: list[tuple[int, int, bytes, bytes | None]] = []
        for block, keys in sorted(blocks.items()):
            first, end = block * self._block_rows, min(self._known, (block + 1) * self._block_rows)
            if stretches and (stretches[-1][1] == first or len(stretches) >= _MOST_STRETCHES):
                before, _, start, stop = stretches.pop()
                stretches.append((before, end, *_covering((start, stop), KeyRange(*keys))))
            else:
                stretches.append((first, end, *keys))
        return stretches

    def _unknown(self, wanted: Filter) -> pa.Table:
        """The row groups without key bounds that pass the filter: read once, then sliced without a copy."""
        if self._unknown_rows is None:
            rows = self._query(
                f"SELECT {_COLUMNS} FROM catalog.row_groups WHERE rowid >= {self._known} ORDER BY rowid", []
            )
            self._unknown_slices = _slices(rows)
            self._unknown_rows = rows.cast(ANSWER_SCHEMA).combine_chunks()
        slices: list[tuple[int, int]] = []
        for (subset, crawl), (first, count) in self._unknown_slices.items():
            if wanted.takes(crawl, subset):
                if slices and sum(slices[-1]) == first:
                    slices[-1] = (slices[-1][0], slices[-1][1] + count)
                else:
                    slices.append((first, count))
        rows = pa.concat_tables([self._unknown_rows.slice(0, 0), *(self._unknown_rows.slice(*part) for part in slices)])
        if wanted.since is not None:
            rows = rows.filter(pc.fill_null(pc.greater_equal(rows["fetch_time_max"], wanted.since), True))
        if wanted.until is not None:
            rows = rows.filter(pc.fill_null(pc.less(rows["fetch_time_min"], wanted.until), True))
        return rows


def open_catalog(path: Path, *, threads: int | None = None) -> Catalog:
    """Opens a catalog for reading; later rebuilds do not disturb it. Raises ``EnvironmentFault``."""
    if not path.exists():
        raise EnvironmentFault(f"there is no catalog at {path}", "Harvest a crawl first (the row_groups asset).")
    con = duckdb.connect()
    try:
        if threads is not None:
            con.execute(f"SET threads = {int(threads)}")
        quoted = str(path).replace("'", "''")
        con.execute(f"ATTACH '{quoted}' AS catalog (READ_ONLY)")
        row = con.execute("SELECT format FROM catalog.catalog_info").fetchone()
        if row is None or row[0] != FORMAT:
            raise EnvironmentFault(
                f"another version of cc_pipeline built {path}", "Build the catalog again: materialize row_groups."
            )
        return Catalog(path, con)
    except duckdb.Error as error:
        con.close()
        raise EnvironmentFault(
            f"{path} cannot be opened as a catalog: {error}", "Build the catalog again: materialize row_groups."
        ) from error
    except EnvironmentFault:
        con.close()
        raise


def _filter(
    crawls: str | Sequence[str] | None, subsets: Sequence[str] | None, since: datetime | None, until: datetime | None
) -> Filter:
    some = (crawls,) if isinstance(crawls, str) else None if crawls is None else tuple(crawls)
    return Filter(some, None if subsets is None else tuple(subsets), since, until)


def _conditions(wanted: Filter) -> tuple[list[str], list[object]]:
    conditions: list[str] = []
    values: list[object] = []
    for column, choice in (("crawl", wanted.crawls), ("subset", wanted.subsets)):
        if choice is not None:
            several = f"{column} IN ({', '.join('?' * len(choice))})" if choice else "false"
            conditions.append(f"{column} = ?" if len(choice) == 1 else several)
            values += choice
    if wanted.since is not None:
        conditions.append("(fetch_time_max IS NULL OR fetch_time_max >= ?)")
        values.append(wanted.since)
    if wanted.until is not None:
        conditions.append("(fetch_time_min IS NULL OR fetch_time_min < ?)")
        values.append(wanted.until)
    return conditions, values


def _covering(known: tuple[bytes, bytes | None] | None, more: KeyRange) -> tuple[bytes, bytes | None]:
    if known is None:
        return more.start, more.end
    end = None if known[1] is None or more.end is None else max(known[1], more.end)
    return min(known[0], more.start), end


def _inside(rows: pa.Table, ranges: Sequence[KeyRange]) -> pa.Table:
    """The rows whose bounds overlap one of the ranges."""
    if len(ranges) == 1 or not len(rows):
        return rows
    low, high = rows[_LOW], rows[_HIGH]
    keep = None
    for key_range in ranges:
        mask = pc.greater_equal(high, pa.scalar(key_range.start, pa.binary()))
        if key_range.end is not None:
            mask = pc.and_(mask, pc.less(low, pa.scalar(key_range.end, pa.binary())))
        keep = mask if keep is None else pc.or_(keep, mask)
    return rows.filter(keep)


def _slices(rows: pa.Table) -> dict[tuple[str, str], tuple[int, int]]:
    slices: dict[tuple[str, str], tuple[int, int]] = {}
    for number, place in enumerate(zip(rows["subset"].to_pylist(), rows["crawl"].to_pylist(), strict=True)):
        first, count = slices.get(place, (number, 0))
        slices[place] = (first, count + 1)
    return slices


def _pairs(names: Sequence[str], target: np.ndarray, row: np.ndarray) -> pa.Table:
    dictionary = pa.DictionaryArray.from_arrays(pa.array(target, pa.int32()), pa.array(names, pa.string()))
    return pa.table({"target": dictionary, "row": pa.array(row, pa.int64())})
