"""Makes the catalog's tables from stored footers, without the network."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.duck import connect
from cc_pipeline.errors import DataFault
from cc_pipeline.index.catalog.rows import pack_rows
from cc_pipeline.index.catalog.schemas import (
    COLUMN_CHUNKS_SCHEMA,
    COVERAGE_SCHEMA,
    DECODED,
    INDEX_FILES_SCHEMA,
    KEY_COLUMN,
    ROW_GROUPS_SCHEMA,
    bound_type,
)
from cc_pipeline.index.footers.decode import (
    DEFAULT_LOOKUP_COLUMNS,
    DEFAULT_STAT_COLUMNS,
    Cells,
    FooterRows,
    codec_name,
    column_statistics,
    decode_footer,
    encoding_names,
    place,
)
from cc_pipeline.index.footers.store import CrawlFooters, FooterEntry, FooterStore, footer_digest
from cc_pipeline.index.footers.thrift import FooterSchema
from cc_pipeline.index.footers.walk import CHUNK_FIELDS, ENCRYPTED, OTHER_FILE, PRESENT, ROW_GROUP_FIELDS
from cc_pipeline.index.repair import apply_bounds, known_bounds

#: The columns with which footers are decoded.
_NAMES: Final = tuple(dict.fromkeys((*DEFAULT_STAT_COLUMNS, *DEFAULT_LOOKUP_COLUMNS)))
_FLAGS, _CODEC, _ENCODINGS, _UNCOMPRESSED, _COMPRESSED, _DATA, _DICTIONARY, _NULLS = 0, 2, 3, 5, 6, 7, 8, 15
_POSITIONS: Final = {
    "offset_index_offset": 9, "offset_index_length": 10, "column_index_offset": 11, "column_index_length": 12,
    "bloom_filter_offset": 13, "bloom_filter_length": 14,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FooterTables:
    """The rows of ``index_files``, ``row_groups`` and ``column_chunks`` of one crawl."""

    index_files: pa.Table
    row_groups: pa.Table
    column_chunks: pa.Table


class FooterTableBuilder:
    """Collects decoded footers and failures of ``crawl`` one by one; ``tables`` returns the rows of all of them."""

    def __init__(self, crawl: str) -> None:
        self.crawl = crawl
        self._files: list[dict[str, Any]] = []
        self._schemas: list[FooterSchema | None] = []
        self._rows: list[FooterRows] = []

    def add(self, rows: FooterRows, entry: FooterEntry) -> None:
        """Adds a footer that was decoded with the default columns."""
        decoded = {
            "outcome": DECODED,
            "rows": rows.rows,
            "row_groups": _group_count(rows),
            "created_by": rows.created_by,
            "schema_digest": rows.schema.digest,
        }
        self._files.append(_file(self.crawl, entry) | decoded)
        self._schemas.append(rows.schema)
        self._rows.append(rows)

    def add_failure(self, entry: FooterEntry) -> None:
        """Adds a file without a usable footer."""
        failed = {"outcome": "failed", "reason": entry.reason, "fault_offset": entry.fault_offset}
        self._files.append(_file(self.crawl, entry) | failed)
        self._schemas.append(None)

    def tables(self) -> FooterTables:
        """Returns the tables of all footers added so far."""
        cells = _matrix([rows.walk.chunks for rows in self._rows], len(_NAMES) * len(CHUNK_FIELDS))
        chunks = cells.reshape(-1, len(_NAMES), len(CHUNK_FIELDS))
        return FooterTables(self._index_files(), self._row_groups(chunks), self._column_chunks(chunks))

    def _index_files(self) -> pa.Table:
        files = pa.Table.from_pylist(self._files, schema=INDEX_FILES_SCHEMA)
        distinct = list({schema.digest: schema for schema in self._schemas if schema is not None}.values())
        number = {schema.digest: index for index, schema in enumerate(distinct)}
        described = pa.array([[str(column) for column in schema.columns] for schema in distinct], pa.list_(pa.string()))
        schema_numbers = [None if schema is None else number[schema.digest] for schema in self._schemas]
        column = files.schema.get_field_index("columns")
        return files.set_column(
            column, files.schema.field(column), described.take(pa.array(schema_numbers, pa.int64()))
        )

    def _row_groups(self, chunks: Cells) -> pa.Table:
        groups = _matrix([rows.walk.row_groups for rows in self._rows], len(ROW_GROUP_FIELDS))
        counts = [_group_count(rows) for rows in self._rows]
        file_of = np.repeat(np.arange(len(counts)), counts)
        columns: dict[str, pa.Array] = {
            "crawl": pa.repeat(pa.scalar(self.crawl), len(groups)),
            **self._place_columns(file_of),
            "row_group": pa.array(_numbered(counts), pa.int32()),
            "rows": pa.array(groups[:, 0]),
            "total_bytes": _null_negatives(groups[:, 1]),
            "compressed_bytes": pa.array(groups[:, 2]),
            "data_offset": _null_negatives(groups[:, 5]),
            "data_end": _null_negatives(groups[:, 6]),
        }
        for index, column in enumerate(DEFAULT_STAT_COLUMNS):
            statistics = column_statistics(self._rows, index)
            kind = bound_type(column)
            columns[f"{column}_min"] = pa.array(statistics.minimums, kind)
            columns[f"{column}_max"] = pa.array(statistics.maximums, kind)
            columns[f"{column}_source"] = pa.array(statistics.sources, pa.string())
            columns[f"{column}_min_truncated"] = pa.array(statistics.min_truncated, pa.bool_())
            columns[f"{column}_max_truncated"] = pa.array(statistics.max_truncated, pa.bool_())
            columns[f"{column}_nulls"] = _null_negatives(chunks[:, index, _NULLS])
        return pa.table([columns[name] for name in ROW_GROUPS_SCHEMA.names], schema=ROW_GROUPS_SCHEMA)

    def _column_chunks(self, chunks: Cells) -> pa.Table:
        column_numbers = [_NAMES.index(name) for name in DEFAULT_LOOKUP_COLUMNS]
        counts = [_group_count(rows) for rows in self._rows]
        file_of = np.repeat(np.arange(len(counts)), counts)
        readable = (chunks[:, column_numbers, _FLAGS] & (PRESENT | OTHER_FILE | ENCRYPTED)) == PRESENT
        row, column = np.nonzero(readable)
        cells = chunks[:, column_numbers][row, column]
        places = self._place_columns(file_of[row])
        columns: dict[str, pa.Array] = {
            "crawl": pa.repeat(pa.scalar(self.crawl), len(row)),
            "path": places["path"],
            "row_group": pa.array(_numbered(counts)[row], pa.int32()),
            "column": pa.array(DEFAULT_LOOKUP_COLUMNS, pa.string()).take(pa.array(column)),
            "codec": _name_values(cells[:, _CODEC], codec_name),
            "encodings": _name_values(cells[:, _ENCODINGS], lambda bits: " ".join(encoding_names(bits))),
            "chunk_offset": pa.array(_starts(cells)),
            "compressed_bytes": pa.array(cells[:, _COMPRESSED]),
            "uncompressed_bytes": _null_negatives(cells[:, _UNCOMPRESSED]),
        }
        columns |= {name: _null_negatives(cells[:, index]) for name, index in _POSITIONS.items()}
        return pa.table([columns[name] for name in COLUMN_CHUNKS_SCHEMA.names], schema=COLUMN_CHUNKS_SCHEMA)

    def _place_columns(self, file_of: Cells) -> dict[str, pa.Array]:
        file_numbers = pa.array(file_of)
        paths = pa.array([rows.path for rows in self._rows], pa.string())
        subsets = pa.array([rows.subset or "" for rows in self._rows], pa.string())
        parts = pa.array([rows.part for rows in self._rows], pa.int32())
        return {
            "path": paths.take(file_numbers),
            "subset": subsets.take(file_numbers),
            "part": parts.take(file_numbers),
        }


def _file(crawl: str, entry: FooterEntry) -> dict[str, datetime | str | int | None]:
    _, subset, part = place(entry.path)
    return {
        "crawl": crawl,
        "subset": subset or "",
        "path": entry.path,
        "part": part,
        "file_size": entry.file_size,
        "etag": entry.etag,
        "footer_bytes": entry.footer_bytes or None,
        "harvested_at": entry.harvested_at,
    }


def _starts(chunk: Cells) -> Cells:
    data, dictionary = chunk[..., _DATA], chunk[..., _DICTIONARY]
    return np.where((dictionary > 0) & (dictionary < data), dictionary, data)


def _null_negatives(values: Cells) -> pa.Array:
    return pa.array(values, mask=values < 0)


def _name_values(values: Cells, name: Any) -> pa.Array:
    distinct, index = np.unique(values, return_inverse=True)
    return pa.array([name(int(value)) for value in distinct], pa.string()).take(pa.array(index.ravel()))


def _group_count(rows: FooterRows) -> int:
    return len(rows.walk.row_groups) // (8 * len(ROW_GROUP_FIELDS))


def _matrix(parts: Sequence[bytes], width: int) -> Cells:
    return np.frombuffer(b"".join(parts), dtype=np.int64).reshape(-1, width)


def _numbered(counts: Sequence[int]) -> Cells:
    return np.concatenate([np.arange(count) for count in counts]) if counts else np.empty(0, np.int64)


_FILES_A_BATCH = 500
#: The memory limit of packing; real crawls need less.
_PACKING_MEMORY = "256MB"


@dataclass(frozen=True, slots=True)
class CrawlTables:
    """The four tables of one crawl, schemas in ``index/catalog/schemas``."""

    index_files: pa.Table
    row_groups: pa.Table
    column_chunks: pa.Table
    coverage: pa.Table

    def packed(self) -> pa.Table:
        """Returns the rows to store (``CATALOG_SCHEMA``)."""
        with connect(memory_limit=_PACKING_MEMORY, threads="1") as connection:
            return pack_rows(
                connection,
                index_files=self.index_files,
                row_groups=self.row_groups,
                column_chunks=self.column_chunks,
                coverage=self.coverage,
            )


def crawl_tables(
    crawl: str,
    index_files: Sequence[str],
    store: FooterStore,
    *,
    subsets: Sequence[str] = (),
    reason: str | None = None,
) -> CrawlTables:
    """Decodes the stored footers of ``index_files`` (of the crawl's path list).

    Key bounds from a repair are added. ``reason`` says why some of the ``subsets`` have no files. A stored footer that
    cannot be decoded gives a ``failed`` row.
    """
    footers = store.read(crawl)
    paths = list(dict.fromkeys(index_files))
    parts = list(_decode_stored(crawl, [path for path in paths if path in footers.entries], footers))
    index_files_table = pa.concat_tables([INDEX_FILES_SCHEMA.empty_table(), *(part.index_files for part in parts)])
    row_groups = pa.concat_tables([ROW_GROUPS_SCHEMA.empty_table(), *(part.row_groups for part in parts)])
    chunks = pa.concat_tables([COLUMN_CHUNKS_SCHEMA.empty_table(), *(part.column_chunks for part in parts)])
    row_groups = apply_bounds(row_groups, known_bounds(footers))
    coverage = coverage_table(crawl, paths, index_files_table, row_groups, subsets, reason)
    return CrawlTables(index_files_table, row_groups, chunks, coverage)


def _decode_stored(crawl: str, paths: Sequence[str], footers: CrawlFooters) -> Iterator[FooterTables]:
    """Yields the tables of the stored footers of ``paths``, some hundred files at a time."""
    for first in range(0, len(paths), _FILES_A_BATCH):
        builder = FooterTableBuilder(crawl)
        for path in paths[first : first + _FILES_A_BATCH]:
            entry = footers.entries[path]
            if entry.failed:
                builder.add_failure(entry)
                continue
            try:
                footer = footers.footer(path)
            except DataFault as fault:
                # the file of the store is damaged, not the index file of the source
                builder.add_failure(replace(entry, reason=fault.reason))
                continue
            try:
                builder.add(decode_footer(footer, entry.file_size or 0, path), entry)
            except DataFault as fault:
                builder.add_failure(replace(entry, reason=fault.reason, fault_offset=fault.offset))
        yield builder.tables()


#: Increased when the same footers give other tables.
DECODER = "1"


def footers_digest(crawl: str, index_files: Sequence[str], store: FooterStore) -> str:
    """Returns a digest of the input of ``crawl_tables``, without decoding it.

    It covers only content: each file's path, length and footer (or the reason why there is none), and its key bounds
    from a repair. A copied bucket has the same digest if nothing was repaired.
    """
    footers = store.read(crawl)
    repaired = known_bounds(footers)
    digest = hashlib.sha256(DECODER.encode())
    paths = dict.fromkeys(index_files)
    for path in paths:
        entry = footers.entries.get(path)
        digest.update(repr((path, None if entry is None else _identity(footers, entry))).encode())
    for (path, row_group), bounds in sorted(repaired.items()):
        if path in paths:
            digest.update(repr((path, row_group, bounds.minimum, bounds.maximum)).encode())
    return digest.hexdigest()


def _identity(footers: CrawlFooters, entry: FooterEntry) -> tuple[object, ...]:
    if entry.failed:
        return entry.file_size, entry.reason, entry.fault_offset
    try:
        return entry.file_size, footer_digest(footers.footer(entry.path))
    except DataFault as fault:
        return entry.file_size, fault.reason, fault.offset


def coverage_table(
    crawl: str,
    paths: Sequence[str],
    index_files: pa.Table,
    row_groups: pa.Table,
    subsets: Sequence[str] = (),
    reason: str | None = None,
) -> pa.Table:
    """Counts the files expected, harvested, failed and missing, for each of ``subsets`` and of the subsets in
    ``paths``; with the reason if none are expected."""
    expected = Counter(place(path)[1] or "" for path in paths)
    rows = []
    ranks = {subset: rank for rank, subset in enumerate(SUBSETS)}
    named_subsets = {*subsets, *expected} or SUBSETS[:1]
    for subset in sorted(named_subsets, key=lambda name: (ranks.get(name, len(ranks)), name)):
        files = index_files.filter(pc.equal(index_files["subset"], subset))
        groups = row_groups.filter(pc.equal(row_groups["subset"], subset))
        harvested = pc.sum(pc.equal(files["outcome"], DECODED)).as_py() or 0
        is_unbounded = pc.or_(pc.is_null(groups[f"{KEY_COLUMN}_min"]), pc.is_null(groups[f"{KEY_COLUMN}_max"]))
        rows.append(
            {
                "crawl": crawl,
                "subset": subset,
                "expected": expected[subset],
                "harvested": harvested,
                "failed": len(files) - harvested,
                "missing": expected[subset] - len(files),
                "row_groups": len(groups),
                "rows": pc.sum(groups["rows"]).as_py() or 0,
                "without_statistics": pc.sum(is_unbounded).as_py() or 0,
                "reason": None if expected[subset] else reason or "the crawl has no columnar index",
            }
        )
    return pa.Table.from_pylist(rows, schema=COVERAGE_SCHEMA)
