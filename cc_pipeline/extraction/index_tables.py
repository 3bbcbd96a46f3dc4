"""From stored footers to the catalog's tables, with no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.index_schema import SUBSETS
from cc_pipeline.errors import DataFault
from cc_pipeline.index.catalog_tables import COVERAGE_SCHEMA, KEY_COLUMN
from cc_pipeline.index.footer_store import CrawlFooters, FooterEntry, FooterStore
from cc_pipeline.index.footer_tables import FooterTableBuilder, FooterTables, join_tables
from cc_pipeline.index.footers import DEFAULT_LOOKUP_COLUMNS, DEFAULT_STAT_COLUMNS, decode_footer, place
from cc_pipeline.index.statistics_repair import RepairLog, apply_bounds

_FILES_A_BATCH = 500


@dataclass(frozen=True, slots=True)
class CrawlTables:
    """The four tables of one crawl, schemas in ``index.catalog_tables``."""

    index_files: pa.Table
    row_groups: pa.Table
    column_chunks: pa.Table
    coverage: pa.Table


def crawl_tables(
    crawl: str,
    index_files: Sequence[str],
    store: FooterStore,
    *,
    columns: Sequence[str] = DEFAULT_STAT_COLUMNS,
    lookup_columns: Sequence[str] = DEFAULT_LOOKUP_COLUMNS,
    reason: str | None = None,
) -> CrawlTables:
    """Decodes the stored footers of ``index_files`` (the crawl's path list).

    ``columns`` get bounds besides those the catalog always has (``DEFAULT_STAT_COLUMNS``).
    Key bounds that a repair has read are put in. ``reason`` says why there is no columnar index when the list is
    empty. A stored footer that cannot be
    decoded gives a ``failed`` row.
    """
    footers = store.read(crawl)
    columns = tuple(dict.fromkeys((*DEFAULT_STAT_COLUMNS, *columns)))
    paths = list(dict.fromkeys(index_files))
    tables = join_tables(_batches(crawl, paths, footers, columns, lookup_columns), columns)
    etags = {path: entry.etag for path, entry in footers.entries.items()}
    row_groups = apply_bounds(tables.row_groups, etags, RepairLog(footers.folder).read())
    covered = coverage_table(crawl, paths, tables.index_files, row_groups, reason)
    return CrawlTables(tables.index_files, row_groups, tables.column_chunks, covered)


def coverage_table(
    crawl: str, paths: Sequence[str], index_files: pa.Table, row_groups: pa.Table, reason: str | None = None
) -> pa.Table:
    """Files expected, harvested, failed and missing for each subset; one row with the reason if none are expected."""
    expected = [place(path)[1] or "" for path in paths]
    subsets = sorted(set(expected), key=lambda name: (SUBSETS.index(name) if name in SUBSETS else len(SUBSETS), name))
    if not subsets:
        nothing = dict.fromkeys(COVERAGE_SCHEMA.names[2:-1], 0)
        row = {"crawl": crawl, "subset": SUBSETS[0], **nothing, "reason": reason or "the crawl has no columnar index"}
        return pa.Table.from_pylist([row], schema=COVERAGE_SCHEMA)
    rows = []
    for subset in subsets:
        files = index_files.filter(pc.equal(index_files["subset"], subset))
        groups = row_groups.filter(pc.equal(row_groups["subset"], subset))
        failed = pc.sum(pc.equal(files["outcome"], "failed")).as_py() or 0
        unknown = pc.or_(pc.is_null(groups[f"{KEY_COLUMN}_min"]), pc.is_null(groups[f"{KEY_COLUMN}_max"]))
        rows.append(
            {
                "crawl": crawl,
                "subset": subset,
                "expected": expected.count(subset),
                "harvested": len(files) - failed,
                "failed": failed,
                "missing": expected.count(subset) - len(files),
                "row_groups": len(groups),
                "rows": pc.sum(groups["rows"]).as_py() or 0,
                "without_statistics": pc.sum(unknown).as_py() or 0,
                "reason": reason,
            }
        )
    return pa.Table.from_pylist(rows, schema=COVERAGE_SCHEMA)


def _batches(
    crawl: str, paths: Sequence[str], footers: CrawlFooters, columns: Sequence[str], lookup_columns: Sequence[str]
) -> Iterator[FooterTables]:
    stored = [path for path in paths if path in footers.entries]
    for first in range(0, len(stored), _FILES_A_BATCH):
        builder = FooterTableBuilder(crawl, columns, lookup_columns)
        for path in stored[first : first + _FILES_A_BATCH]:
            _add(builder, footers, footers.entries[path])
        yield builder.tables()


def _add(builder: FooterTableBuilder, footers: CrawlFooters, entry: FooterEntry) -> None:
    if entry.failed:
        builder.add_failure(entry)
        return
    try:
        footer = footers.footer(entry.path)
        rows = decode_footer(footer, entry.file_size or 0, entry.path, builder.columns, builder.lookup_columns)
    except DataFault as fault:
        failure = FooterEntry(
            entry.path, entry.file_size, entry.etag, entry.footer_bytes, entry.harvested_at, fault.reason, fault.offset
        )
        builder.add_failure(failure)
        return
    builder.add(rows, entry)
