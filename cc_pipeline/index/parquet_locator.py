"""Finds captures in the columnar index: row groups from a finder, of them only the columns and pages that matter."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.commoncrawl.keyrange import KeyRange
from cc_pipeline.commoncrawl.target_ranges import merge_ranges
from cc_pipeline.commoncrawl.targets import Target
from cc_pipeline.index.locator import LookupPrice, LookupResult
from cc_pipeline.index.parquet_fetch import GAP, Cost, ManyReader, Piece, coalesce, run_end
from cc_pipeline.index.parquet_finder import RowGroupFinder
from cc_pipeline.index.parquet_kept import PageIndexes
from cc_pipeline.index.parquet_keys import rows_in_ranges
from cc_pipeline.index.parquet_places import KEY, ColumnPlace, RowGroupPlace, wanted_columns
from cc_pipeline.index.parquet_read import Wanted, read_rows
from cc_pipeline.index.parquet_rows import capture_rows
from cc_pipeline.index.parquet_single import may_repeat

#: Bytes of column chunks that one round may have to hold in memory.
_ROUND_BYTES = 192 << 20
#: Rows in a page as the index's writer cuts them.
_PAGE_ROWS = 20_000


class ParquetLocator:
    """Looks targets up in the columnar index of one source.

    ``finder`` says which row groups may hold them, ``columns`` limits what is read (``None``: all, the key always),
    ``indexes`` keeps page indexes from one look-up to the next.
    Row groups that several targets need are read once. Faults raise: an answer is complete or an error.
    """

    name = "parquet"

    def __init__(
        self,
        reader: ManyReader,
        finder: RowGroupFinder,
        *,
        columns: Sequence[str] | None = None,
        indexes: PageIndexes | None = None,
        round_bytes: int = _ROUND_BYTES,
    ) -> None:
        self.columns = columns
        self._reader = reader
        self._finder = finder
        self._round_bytes = round_bytes
        self._indexes = indexes or PageIndexes()

    def price(self, crawl: str, subsets: Sequence[str], targets: Sequence[Target]) -> LookupPrice:
        """An upper bound without any read of the index: whole chunks, although pages are read where they can be."""
        places = self._finder.find(crawl, subsets, _all_ranges(targets), self.columns)
        requests = size = likely = 0
        for place in places:
            names = wanted_columns(self.columns, place.file)
            columns = [place.columns[name] for name in names if name in place.columns]
            requests += _requests(place, columns)
            size += sum(column.size + _index_bytes(column, place.rows) + GAP for column in columns)
            likely += _likely_bytes(place, columns)
        files = len({place.file.path for place in places})
        return LookupPrice(files, len(places), requests, size, self._finder.gaps(crawl, subsets), likely)

    def locate(self, crawl: str, subsets: Sequence[str], targets: Sequence[Target]) -> LookupResult:
        """Every capture of every target, per slug. Raises ``DataFault`` and ``EnvironmentFault``."""
        started = time.monotonic()
        cost = Cost()
        said = (self._finder.cost.requests, self._finder.cost.bytes)
        places = self._finder.find(crawl, subsets, _all_ranges(targets), self.columns)
        parts: dict[str, list[pa.Table]] = {target.slug: [] for target in targets}
        asked = _all_ranges(targets)
        for batch in self._batches(places):
            wanted = [Wanted(place, asked, wanted_columns(self.columns, place.file)) for place in batch]
            for found in read_rows(self._reader, wanted, self._indexes, cost):
                if not len(found.rows):
                    continue
                table, hosts = capture_rows(found, self.name)
                urls = table["url"].to_pylist()
                for target in targets:
                    inside = rows_in_ranges(found.columns[KEY], target.ranges).tolist()
                    mine = [row for row in inside if target.matches(urls[row] or "", hosts[row])]
                    if mine:
                        parts[target.slug].append(table.take(pa.array(np.asarray(mine, dtype=np.int64))))
        captures = {
            slug: pa.concat_tables(tables) if tables else CAPTURE_SCHEMA.empty_table() for slug, tables in parts.items()
        }
        after = (self._finder.cost.requests, self._finder.cost.bytes)
        requests, size = cost.requests + after[0] - said[0], cost.bytes + after[1] - said[1]
        notes = self._finder.gaps(crawl, subsets)
        return LookupResult(captures, requests, size, time.monotonic() - started, notes)

    def _batches(self, places: Sequence[RowGroupPlace]) -> Iterator[list[RowGroupPlace]]:
        """Row groups in rounds whose chunks fit the memory bound together; a larger one makes a round of its own."""
        batch: list[RowGroupPlace] = []
        held = 0
        for place in places:
            names = wanted_columns(self.columns, place.file)
            size = sum(place.columns[name].size for name in names if name in place.columns)
            if batch and held + size > self._round_bytes:
                yield batch
                batch, held = [], 0
            batch.append(place)
            held += size
        if batch:
            yield batch


def _requests(place: RowGroupPlace, columns: Sequence[ColumnPlace]) -> int:
    """Of a large chunk with a page index the dictionary and the pages; of others as many as gaps fit between them."""
    path = place.file.path
    large = [column for column in columns if column.offset_index is not None and column.size > GAP]
    others = [Piece(path, column.offset, column.size) for column in columns if column not in large]
    indexes = [Piece(path, *column.offset_index) for column in columns if column.offset_index is not None]
    splits = sum(max(0, run_end(run) - run[0].offset - 1) // GAP + 1 for run in coalesce(others))
    return 2 * len(large) + splits + 1 + 2 * len(coalesce(indexes))


def _index_pieces(path: str, column: ColumnPlace, rows: int) -> list[Piece]:
    """What of a column's page index a look-up reads: where pages lie, and what they hold where that matters."""
    told = column.layout.name == KEY or may_repeat(column, rows)
    positions = (column.offset_index, column.column_index if told else None)
    return [Piece(path, *position) for position in positions if position is not None]


def _index_bytes(column: ColumnPlace, rows: int) -> int:
    return sum(piece.length for piece in _index_pieces("", column, rows))


def _likely_bytes(place: RowGroupPlace, columns: Sequence[ColumnPlace]) -> int:
    """Of a column with a page index two pages and the index, else all of it; with the gaps that are read over.

    Where the pages lie is not known yet: in the middle of each chunk is as good a guess as any.
    """
    path = place.file.path
    pieces = []
    for column in columns:
        size = column.size
        if column.offset_index is not None:
            size = min(size, size * 2 * _PAGE_ROWS // max(place.rows, 1))
        pieces.append(Piece(path, column.offset + (column.size - size) // 2, size))
    indexes = [piece for column in columns for piece in _index_pieces(path, column, place.rows)]
    return sum(run_end(run) - run[0].offset for group in (pieces, indexes) for run in coalesce(group))


def _all_ranges(targets: Sequence[Target]) -> tuple[KeyRange, ...]:
    return merge_ranges(each for target in targets for each in target.ranges)
