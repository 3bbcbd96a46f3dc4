"""One DuckDB file of the catalog, asked: a crawl's own, the merged base, or a whole catalog in one file.

Bounds are compared as bytes, and unknown bounds match everything. The table is sorted by lowest key;
``key_blocks`` says for every 2,048 rows what they may hold, so that one domain touches a few blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.key_ranges import KeyRange, range_set
from cc_pipeline.index.catalog.schemas import ANSWER_SCHEMA, KEY_COLUMN

_COLUMNS: Final = ", ".join(ANSWER_SCHEMA.names)
#: Places in the table one question names; more are covered together.
_MOST_STRETCHES: Final = 40
#: A question about so many crawls or fewer has an answer of some dozen rows: see ``Part._few``.
FEW_CRAWLS: Final = 4
_LOW, _HIGH = f"{KEY_COLUMN}_min", f"{KEY_COLUMN}_max"


@dataclass(frozen=True, slots=True)
class Filter:
    """Restricts an answer. ``None`` means all."""

    crawls: tuple[str, ...] | None = None
    subsets: tuple[str, ...] | None = None

    def takes(self, crawl: str, subset: str) -> bool:
        """Whether row groups of this crawl and subset are wanted."""
        return (self.crawls is None or crawl in self.crawls) and (self.subsets is None or subset in self.subsets)


class Part:
    """A file attached to ``con`` as ``name``; rows of the crawls in ``hidden`` are not its to answer."""

    def __init__(self, con: duckdb.DuckDBPyConnection, name: str, hidden: Collection[str] = ()) -> None:
        self.name = name
        self.hidden = frozenset(hidden)
        self._con = con
        self._blocks: list[tuple[int, bytes, bytes]] = con.execute(
            f"SELECT block, lowest, highest FROM {name}.key_blocks ORDER BY block"
        ).fetchall()
        info = con.execute(f"SELECT block_rows, known_row_groups FROM {name}.catalog_info").fetchone()
        assert info is not None
        self._block_rows, self._known = int(info[0]), int(info[1])
        self._unknown_rows: pa.Table | None = None
        self._unknown_slices: dict[tuple[str, str], tuple[int, int]] = {}

    def row_groups_for(self, wanted: Filter, ranges: Sequence[KeyRange]) -> list[pa.Table]:
        """Tables (``ANSWER_SCHEMA``) of row groups that may hold a key of ``ranges``, each once, in no set order."""
        unknown = self._unknown(wanted)
        stretches = self._stretches(ranges)
        if not stretches:
            return [unknown]
        few = wanted.crawls is not None and len(wanted.crawls) <= FEW_CRAWLS and len(ranges) <= _MOST_STRETCHES
        conditions, values = self._conditions(wanted, hides=few)
        places = []
        for first, end, start, stop in stretches:
            place = f"rowid >= {first} AND rowid < {end} AND {_HIGH} >= ?"
            places.append(place if stop is None else f"{place} AND {_LOW} < ?")
            values += [start] if stop is None else [start, stop]
        conditions.append(places[0] if len(places) == 1 else f"(({') OR ('.join(places)}))")
        query = f"SELECT {_COLUMNS} FROM {self.name}.row_groups WHERE {' AND '.join(conditions)}"
        if few:
            return [self._few(query, values, ranges), unknown]
        return [_inside(self._shown(self._query(query, values)).cast(ANSWER_SCHEMA), ranges), unknown]

    def rows_of(self, table: str, crawl: str | None) -> pa.Table:
        """Rows of ``coverage`` or ``index_files``, of one crawl or of all that are this file's to answer."""
        conditions, values = self._conditions(Filter(None if crawl is None else (crawl,)))
        return self._query(f"SELECT * FROM {self.name}.{table} WHERE {' AND '.join(conditions) or 'true'}", values)

    def column_chunks(self, row_groups: pa.Table, crawls: Sequence[str], columns: Sequence[str] | None) -> pa.Table:
        """Rows of ``column_chunks`` for row groups of ``crawls``."""
        cursor = self._con.cursor()
        cursor.register("asked", row_groups.select(["crawl", "path", "row_group"]))
        chosen = "" if columns is None else ' AND list_contains(?, c."column")'
        return cursor.sql(
            f"""SELECT c.* FROM {self.name}.column_chunks c JOIN asked USING (crawl, path, row_group)
            WHERE list_contains(?, c.crawl){chosen} ORDER BY c.crawl, c.path, c.row_group, c.chunk_offset""",
            params=[list(crawls)] if columns is None else [list(crawls), list(columns)],
        ).to_arrow_table()

    def select(self, table: str) -> str:
        """SQL for all rows of ``table`` that are this file's to answer."""
        hidden = ", ".join(f"'{crawl}'" for crawl in sorted(self.hidden))
        return f"SELECT * FROM {self.name}.{table}" + (f" WHERE crawl NOT IN ({hidden})" if hidden else "")

    def _shown(self, rows: pa.Table) -> pa.Table:
        """Without the rows of hidden crawls: of some hundred rows that is less work than for DuckDB, row by row."""
        if not self.hidden:
            return rows
        return rows.filter(pc.invert(pc.is_in(rows["crawl"], pa.array(sorted(self.hidden), pa.string()))))

    def _conditions(self, wanted: Filter, *, hides: bool = True) -> tuple[list[str], list[object]]:
        conditions: list[str] = []
        values: list[object] = []
        for column, choice in (("crawl", wanted.crawls), ("subset", wanted.subsets)):
            if choice is not None:
                several = f"{column} IN ({', '.join('?' * len(choice))})" if choice else "false"
                conditions.append(f"{column} = ?" if len(choice) == 1 else several)
                values += choice
        if self.hidden and hides:
            conditions.append(f"crawl NOT IN ({', '.join('?' * len(self.hidden))})")
            values += self.hidden
        return conditions, values

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
        if len(ranges) > _MOST_STRETCHES:
            asked = range_set(ranges)
            near = ((block, asked.near(lowest, highest)) for block, lowest, highest in self._blocks)
            blocks = {block: (found[0].start, found[-1].end) for block, found in near if found}
        else:
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
                f"SELECT {_COLUMNS} FROM {self.name}.row_groups WHERE rowid >= {self._known} ORDER BY rowid", []
            )
            self._unknown_slices = _slices(rows)
            self._unknown_rows = rows.cast(ANSWER_SCHEMA).combine_chunks()
        slices: list[tuple[int, int]] = []
        for (subset, crawl), (first, count) in self._unknown_slices.items():
            if crawl not in self.hidden and wanted.takes(crawl, subset):
                if slices and sum(slices[-1]) == first:
                    slices[-1] = (slices[-1][0], slices[-1][1] + count)
                else:
                    slices.append((first, count))
        return pa.concat_tables([self._unknown_rows.slice(0, 0), *(self._unknown_rows.slice(*part) for part in slices)])


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
    if len(ranges) > _MOST_STRETCHES:
        asked = range_set(ranges)
        bounds = zip(low.to_pylist(), high.to_pylist(), strict=True)
        return rows.filter(pa.array([asked.meets(*one) for one in bounds], pa.bool_()))
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
