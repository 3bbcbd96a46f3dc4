"""Finds captures in the columnar index: a finder returns the row groups, and only pages that can match are read.

Rows of every era become capture rows: types widened, missing columns null, unknown ones kept as text.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import pyarrow as pa

from cc_pipeline.advice import advise
from cc_pipeline.capture_columns import TIMESTAMP
from cc_pipeline.commoncrawl.domains import host_columns, registered_domain
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA, INDEX_COLUMN_NAMES, LATER_COLUMNS
from cc_pipeline.commoncrawl.paths import todays_keys
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault
from cc_pipeline.grouping import group_within
from cc_pipeline.index.gaps import name_subsets
from cc_pipeline.index.locator import CaptureSink, LookupEstimate, LookupResult, TargetRouter, surt_ranges
from cc_pipeline.index.parquet.chunk_locations import (
    KEY,
    ColumnLocation,
    RowGroupLocation,
    requested_columns,
    unread_notes,
)
from cc_pipeline.index.parquet.fetch import GAP, Cost, PageIndexes, Piece, coalesce, run_end
from cc_pipeline.index.parquet.finder import CatalogFinder
from cc_pipeline.index.parquet.pages import may_repeat
from cc_pipeline.index.parquet.read import RowGroupQuery, RowGroupRows, read_rows
from cc_pipeline.index.shards import holds_arc
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind

#: Faults of an object that is not the expected one: its ETag or its length differs.
_CHANGED_FILE_KINDS = frozenset({FaultKind.CHANGED_OBJECT, FaultKind.RANGE_NOT_SATISFIABLE})
KNOWN_COLUMNS = frozenset((*INDEX_COLUMN_NAMES, *(field.name for field in LATER_COLUMNS)))
_EXTRA = CAPTURE_SCHEMA.field("extra_columns").type


def capture_rows(row_group_rows: RowGroupRows, located_by: str) -> tuple[pa.Table, list[str]]:
    """Returns the ``CAPTURE_SCHEMA`` rows of one row group, and the host of each row.

    A host comes from the URL if the index's column was not stored or not read. Raises ``DataFault`` for a column whose
    stored type does not fit the schema.
    """
    place, file = row_group_rows.place, row_group_rows.place.file
    count = len(row_group_rows.rows)
    meanings = {name: meaning for name, (_, _, meaning) in file.columns.items()}
    columns: dict[str, pa.Array] = {}
    for name in KNOWN_COLUMNS & row_group_rows.columns.keys():
        try:
            columns[name] = _typed(
                row_group_rows.columns[name], CAPTURE_SCHEMA.field(name).type, meanings.get(name, "")
            )
        except (pa.ArrowException, ValueError) as error:
            raise DataFault(
                DataKind.UNSUPPORTED, file.path, None, f"column {name} cannot be read as the index schema's ({error})"
            ) from error
    if "warc_filename" in columns:
        columns["warc_filename"] = todays_keys(columns["warc_filename"])
    hosts = _hosts(columns, count)
    columns["domain"] = pa.array(_domains(columns, hosts), pa.string())
    columns["extra_columns"] = _extra(
        {name: row_group_rows.columns[name] for name in row_group_rows.columns if name not in KNOWN_COLUMNS}, count
    )
    constants = {
        "crawl": file.crawl,
        "subset": file.subset,
        "archive_format": "arc" if holds_arc(file.path) else "warc",
        "located_by": located_by,
        "index_file": file.path,
        "index_position": place.number,
    }
    arrays = []
    for field in CAPTURE_SCHEMA:
        if field.name in constants:
            arrays.append(_repeated(constants[field.name], field.type, count))
        else:
            arrays.append(columns.get(field.name, pa.nulls(count, field.type)))
    return pa.Table.from_arrays(arrays, schema=CAPTURE_SCHEMA), hosts


def _repeated(value: object, kind: pa.DataType, count: int) -> pa.Array:
    """Repeats ``value``. Pieces of a row group share one array, since a long one costs as much as all URLs."""
    if count > _PIECE_ROWS:
        return pa.repeat(pa.scalar(value, kind), count)
    return _one_repeated(value, kind, 1 << (count - 1).bit_length() if count else 1).slice(0, count)


@lru_cache(maxsize=64)
def _one_repeated(value: object, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def as_text(values: pa.Array) -> pa.Array:
    """Returns stored bytes as strings; bytes that are no UTF-8 are written as ``\\xNN``."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if raw is None else raw.decode("utf-8", "backslashreplace") for raw in values.to_pylist()]
        return pa.array(texts, pa.string())


def _typed(values: pa.Array, kind: pa.DataType, meaning: str) -> pa.Array:
    if kind == pa.string() and pa.types.is_binary(values.type):
        return as_text(values)
    if kind == TIMESTAMP:
        if pa.types.is_integer(values.type):
            unit = "us" if "MICROS" in meaning else "ns" if "NANOS" in meaning else "ms"
            values = values.cast(pa.timestamp(unit, tz="UTC"))
        return values.cast(kind, safe=False)
    return values.cast(kind)


def _hosts(columns: Mapping[str, pa.Array], count: int) -> list[str]:
    names, urls = (
        columns[name].to_pylist() if name in columns else [None] * count for name in ("url_host_name", "url")
    )
    return [
        name if name is not None else str(host_columns(url or "")["url_host_name"] or "")
        for name, url in zip(names, urls, strict=True)
    ]


def _domains(columns: Mapping[str, pa.Array], hosts: Sequence[str]) -> list[str | None]:
    name = "url_host_registered_domain"
    stored_domains = columns[name].to_pylist() if name in columns else [None] * len(hosts)
    return [domain or _domain(host) for domain, host in zip(stored_domains, hosts, strict=True)]


@lru_cache(maxsize=4096)
def _domain(host: str) -> str | None:
    return registered_domain(host) or host or None


def _extra(unknown_columns: Mapping[str, pa.Array], count: int) -> pa.Array:
    if not unknown_columns:
        return pa.nulls(count, _EXTRA)
    texts = {
        name: as_text(values) if pa.types.is_binary(values.type) else values for name, values in unknown_columns.items()
    }
    values_by_name = {name: values.to_pylist() for name, values in texts.items()}
    rows = [
        [(name, str(values[row])) for name, values in values_by_name.items() if values[row] is not None]
        for row in range(count)
    ]
    return pa.array(rows, _EXTRA)


#: Rows that are decoded, and become capture rows, at a time.
_PIECE_ROWS = 1 << 14
#: Maximum bytes of column chunks in memory per round, and maximum rows whose keys are.
_ROUND_BYTES = 192 << 20
_ROUND_ROWS = 1 << 19
#: Rows in a page as the index's writer cuts them.
_PAGE_ROWS = 20_000


class ParquetLocator:
    """Looks targets up in the columnar index of one source.

    ``finder`` returns the row groups that may hold them, ``columns`` are the columns to read (``None``: all, the key
    always), ``indexes`` caches page indexes from one lookup to the next. Row groups that several targets need are read
    once. Faults are raised: an answer is complete or an error.
    """

    name = "parquet"

    def __init__(
        self,
        reader: Transport,
        finder: CatalogFinder,
        *,
        columns: Sequence[str] | None = None,
        indexes: PageIndexes | None = None,
    ) -> None:
        self.columns = columns
        self._reader = reader
        self._finder = finder
        self._indexes = indexes or PageIndexes()

    def price(self, crawl: str, subsets: Sequence[str], targets: Sequence[Target]) -> LookupEstimate:
        """Estimates an upper bound without reading the index: whole chunks, although often only pages are read."""
        ranges = TargetRouter(targets, surt_ranges(crawl, self.name)).ranges
        places = self._finder.find(crawl, subsets, ranges, self.columns)
        requests = size = likely = 0
        for place in places:
            names = requested_columns(self.columns, place.file)
            columns = [place.columns[name] for name in names if name in place.columns]
            requests += _max_requests(place, columns)
            indexes = [piece for column in columns for piece in _index_pieces(place.file.path, column, place.rows)]
            size += sum(column.size + GAP for column in columns) + sum(piece.length for piece in indexes)
            likely += _likely_bytes(place, columns)
        files = len({place.file.path for place in places})
        return LookupEstimate(files, len(places), requests, size, self._finder.gaps(crawl, subsets), likely)

    def locate(
        self, crawl: str, subsets: Sequence[str], targets: Sequence[Target], sink: CaptureSink | None = None
    ) -> LookupResult:
        """Returns every capture of every target, per slug. Raises ``DataFault`` and ``EnvironmentFault``."""
        started = time.monotonic()
        cost = Cost()
        spent_before = (self._finder.cost.requests, self._finder.cost.bytes)
        router = TargetRouter(targets, surt_ranges(crawl, self.name), sink)
        places = self._finder.find(crawl, subsets, router.ranges, self.columns)
        for batch in self._batches(places):
            queries = [
                RowGroupQuery(place, router.ranges, requested_columns(self.columns, place.file)) for place in batch
            ]
            for row_group_rows in self._read(queries, cost):
                table, hosts = capture_rows(row_group_rows, self.name)
                rows = zip(row_group_rows.columns[KEY].to_pylist(), table["url"].to_pylist(), hosts, strict=True)
                router.give(table, [router.matching_targets(key, url or "", host) for key, url, host in rows])
        spent_after = (self._finder.cost.requests, self._finder.cost.bytes)
        requests, size = cost.requests + spent_after[0] - spent_before[0], cost.bytes + spent_after[1] - spent_before[1]
        files = list({place.file.path: place.file for place in places}.values())
        notes = (*self._finder.gaps(crawl, subsets), *unread_notes(files, self.columns))
        return LookupResult(router.captures(), requests, size, time.monotonic() - started, notes)

    def _read(self, queries: Sequence[RowGroupQuery], cost: Cost) -> Iterator[RowGroupRows]:
        """Yields the matching rows, each once."""
        try:
            yield from read_rows(self._reader, queries, self._indexes, cost, window=_PIECE_ROWS)
        except DataFault as fault:
            if fault.kind not in _CHANGED_FILE_KINDS:
                raise
            file = next(query.place.file for query in queries if query.place.file.path == fault.source)
            raise EnvironmentFault(
                f"{fault.source} differs from the file whose footer was harvested: {fault.reason}",
                advise(
                    "index harvest",
                    crawl=file.crawl,
                    subset=name_subsets([file.subset]),
                    refresh=True,
                    sentence="The file was published again, or this home does not have its footer. Harvest it again: "
                    "{}",
                ),
            ) from fault

    def _batches(self, places: Sequence[RowGroupLocation]) -> Iterator[list[RowGroupLocation]]:
        """Groups row groups into rounds whose chunks fit the memory bound; a larger one has its own round."""

        def sizes_of(place: RowGroupLocation) -> tuple[int, int]:
            names = requested_columns(self.columns, place.file)
            return sum(place.columns[name].size for name in names if name in place.columns), place.rows

        return group_within(places, (_ROUND_BYTES, _ROUND_ROWS), sizes_of)


def _index_pieces(path: str, column: ColumnLocation, rows: int) -> list[Piece]:
    """Returns the parts of a column's page index that a lookup reads: page locations, and bounds if they matter."""
    needs_bounds = column.layout.name == KEY or may_repeat(column, rows)
    positions = (column.offset_index, column.column_index if needs_bounds else None)
    return [Piece(path, *position) for position in positions if position is not None]


def _max_requests(place: RowGroupLocation, columns: Sequence[ColumnLocation]) -> int:
    """Returns the maximum requests: two for a large chunk with a page index (dictionary and pages), and for the others
    as many as there can be gaps between them."""
    path = place.file.path
    large = [column for column in columns if column.offset_index is not None and column.size > GAP]
    small_pieces = [Piece(path, column.offset, column.size) for column in columns if column not in large]
    indexes = [Piece(path, *column.offset_index) for column in columns if column.offset_index is not None]
    splits = sum(max(0, run_end(run) - run[0].offset - 1) // GAP + 1 for run in coalesce(small_pieces))
    return 2 * len(large) + splits + 1 + 2 * len(coalesce(indexes))


def _likely_bytes(place: RowGroupLocation, columns: Sequence[ColumnLocation]) -> int:
    """Returns the likely bytes: two pages and the index of a column with a page index, else the whole column; with the
    gaps between them.

    The locations of the pages are not known yet, so the middle of each chunk is assumed.
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
