"""Makes the catalog's tables from stored footers, without the network."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.duck import connect
from cc_pipeline.errors import DataFault
from cc_pipeline.index.catalog.rows import pack_rows
from cc_pipeline.index.catalog.schemas import (
    COVERAGE_SCHEMA,
    DECODED,
    INDEX_FILES_SCHEMA,
    KEY_COLUMN,
    ROW_GROUPS_SCHEMA,
)
from cc_pipeline.index.footers.decode import (
    FooterRows,
    RowGroup,
    decode_footer,
    place,
)
from cc_pipeline.index.footers.store import CrawlFooters, FooterEntry, FooterStore, footer_digest
from cc_pipeline.index.repair import apply_bounds, known_bounds


@dataclass(frozen=True, slots=True)
class FooterTables:
    """The rows of ``index_files`` and ``row_groups`` of one crawl."""

    index_files: pa.Table
    row_groups: pa.Table


class FooterTableBuilder:
    """Collects decoded footers and failures of ``crawl`` one by one; ``tables`` returns the rows of all of them."""

    def __init__(self, crawl: str) -> None:
        self.crawl = crawl
        self._files: list[dict[str, Any]] = []
        self._groups: list[dict[str, Any]] = []

    def add(self, rows: FooterRows, entry: FooterEntry) -> None:
        """Adds a footer that was decoded with the default columns."""
        decoded = {
            "outcome": DECODED,
            "rows": rows.rows,
            "row_groups": len(rows.row_groups),
            "created_by": rows.created_by,
            "schema_digest": rows.schema.digest,
            "columns": list(map(str, rows.schema.columns)),
        }
        self._files.append(_file(self.crawl, entry) | decoded)
        for group in rows.row_groups:
            location = {"crawl": self.crawl, "subset": rows.subset or "", "path": rows.path, "part": rows.part}
            self._groups.append(location | _group_columns(group))

    def add_failure(self, entry: FooterEntry) -> None:
        """Adds a file without a usable footer."""
        failed = {"outcome": "failed", "reason": entry.reason, "fault_offset": entry.fault_offset}
        self._files.append(_file(self.crawl, entry) | failed)

    def tables(self) -> FooterTables:
        """Returns the tables of all footers added so far."""
        return FooterTables(
            pa.Table.from_pylist(self._files, INDEX_FILES_SCHEMA),
            pa.Table.from_pylist(self._groups, ROW_GROUPS_SCHEMA),
        )


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


def _group_columns(group: RowGroup) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "row_group": group.row_group,
        "rows": group.rows,
        "total_bytes": group.total_bytes,
        "compressed_bytes": group.compressed_bytes,
        "data_offset": group.data_offset,
        "data_end": group.data_end,
    }
    for name, statistics in group.statistics.items():
        columns[f"{name}_min"], columns[f"{name}_max"] = statistics.minimum, statistics.maximum
        columns[f"{name}_source"] = statistics.source
    return columns


_FILES_A_BATCH = 100
#: The memory limit of packing; real crawls need less.
_PACKING_MEMORY = "256MB"


@dataclass(frozen=True, slots=True)
class CrawlTables:
    """The three tables of one crawl, schemas in ``index/catalog/schemas``."""

    index_files: pa.Table
    row_groups: pa.Table
    coverage: pa.Table

    def packed(self) -> pa.Table:
        """Returns the rows to store (``CATALOG_SCHEMA``)."""
        with connect(memory_limit=_PACKING_MEMORY, threads="1") as connection:
            return pack_rows(
                connection,
                index_files=self.index_files,
                row_groups=self.row_groups,
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
    row_groups = apply_bounds(row_groups, known_bounds(footers))
    coverage = coverage_table(crawl, paths, index_files_table, row_groups, subsets, reason)
    return CrawlTables(index_files_table, row_groups, coverage)


def _decode_stored(crawl: str, paths: Sequence[str], footers: CrawlFooters) -> Iterator[FooterTables]:
    """Yields the tables of the stored footers of ``paths``, a hundred files at a time."""
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
                builder.add(decode_footer(footer, entry.file_size or 0, path, lookup_columns=()), entry)
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
