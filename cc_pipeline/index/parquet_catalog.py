"""Row groups as the catalog knows them, with their column chunks: no read of the index before its first page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa

from cc_pipeline.commoncrawl.keyrange import KeyRange
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.index.footer_store import CrawlFooters, FooterStore
from cc_pipeline.index.footers import place
from cc_pipeline.index.parquet_fetch import Cost
from cc_pipeline.index.parquet_finder import Footers, SuffixReader
from cc_pipeline.index.parquet_places import (
    KEY,
    ColumnPlace,
    FilePlace,
    RowGroupPlace,
    checked_place,
    checked_row_group,
    described_columns,
    wanted_columns,
)

_ADVICE = "Harvest the crawl (the row_groups asset), then look up again"


class CatalogTables(Protocol):
    """What of an open ``catalog.Catalog`` is needed."""

    def row_groups_for(self, crawls: str, subsets: Sequence[str], ranges: Sequence[KeyRange]) -> pa.Table: ...

    def column_chunks(self, row_groups: pa.Table, columns: Sequence[str] | None = None) -> pa.Table: ...

    def index_files(self, crawl: str | None = None) -> pa.Table: ...

    def coverage(self, crawl: str | None = None) -> pa.Table: ...


class CatalogFinder:
    """Finds row groups in a catalog. Columns whose places it does not hold come from the file's footer, read once.

    ``footers`` is where harvested footers are kept; without it, or for a file that is not there, it is requested.
    """

    def __init__(self, catalog: CatalogTables, reader: SuffixReader, footers: FooterStore | None = None) -> None:
        self._catalog = catalog
        self._store = footers
        self._crawl_footers = lru_cache(maxsize=8)(self._read_store)
        self._footers = Footers(reader, stored=self._stored)
        self._files = lru_cache(maxsize=64)(self._read_files)

    @property
    def cost(self) -> Cost:
        """What footers had to be read for columns the catalog does not keep."""
        return self._footers.cost

    def find(
        self, crawl: str, subsets: Sequence[str], ranges: Sequence[KeyRange], columns: Sequence[str] | None
    ) -> list[RowGroupPlace]:
        """Raises ``EnvironmentFault`` where the catalog holds nothing of a subset, ``DataFault`` for bad places."""
        self._check(crawl, subsets)
        groups = self._catalog.row_groups_for(crawl, list(subsets), list(ranges))
        if not groups.num_rows:
            return []
        chunks: dict[tuple[str, int], dict[str, Mapping[str, Any]]] = {}
        for chunk in self._catalog.column_chunks(groups, columns and sorted({KEY, *columns})).to_pylist():
            chunks.setdefault((chunk["path"], chunk["row_group"]), {})[chunk["column"]] = chunk
        found = []
        for row in groups.sort_by([("path", "ascending"), ("row_group", "ascending")]).to_pylist():
            path, number = row["path"], row["row_group"]
            file = self._files(crawl)[path]
            known = chunks.get((path, number), {})
            names = wanted_columns(columns, file)
            if known.keys() >= set(names):
                places = {name: _place(file, name, known[name]) for name in names}
                found.append(checked_row_group(file, number, row["rows"], places))
            else:
                self._footers.file(path, file)
                found.append(self._footers.row_group(path, number, names))
        return found

    def gaps(self, crawl: str, subsets: Sequence[str]) -> tuple[str, ...]:
        """A sentence for each subset of which files are missing from the catalog: their captures are in no answer."""
        notes = []
        for row in self._catalog.coverage(crawl).to_pylist():
            if row["subset"] in subsets and (row["failed"] or row["missing"]):
                lost = row["failed"] + row["missing"]
                what = f"{lost} of {row['expected']} index files of {crawl} {row['subset']}"
                notes.append(f"{what} are not in the catalog: their captures are not in this answer")
        return tuple(notes)

    def _check(self, crawl: str, subsets: Sequence[str]) -> None:
        rows = {row["subset"]: row for row in self._catalog.coverage(crawl).to_pylist()}
        if not any(row["harvested"] for row in rows.values()):
            raise EnvironmentFault(f"the catalog has no row groups of {crawl}", _ADVICE)
        for subset in subsets:
            row = rows.get(subset)
            if row is not None and row["expected"] and not row["harvested"]:
                raise EnvironmentFault(f"the catalog has no row groups of {crawl} {subset}", _ADVICE)

    def _read_store(self, crawl: str) -> CrawlFooters | None:
        return None if self._store is None else self._store.read(crawl)

    def _stored(self, path: str, etag: str | None) -> bytes | None:
        crawl, _, _ = place(path)
        kept = self._crawl_footers(crawl) if crawl is not None else None
        if kept is None or path not in kept or kept.entries[path].etag != etag:
            return None
        return kept.footer(path)

    def _read_files(self, crawl: str) -> dict[str, FilePlace]:
        files = {}
        for row in self._catalog.index_files(crawl).to_pylist():
            if row["outcome"] == "decoded":
                columns = {
                    name: column
                    for name, column in described_columns(row["columns"]).items()
                    if column[1] != "repeated" and "." not in name
                }
                files[row["path"]] = FilePlace(
                    crawl, row["subset"], row["path"], row["file_size"], row["etag"], row["footer_bytes"], columns
                )
        return files


def _place(file: FilePlace, name: str, chunk: Mapping[str, Any]) -> ColumnPlace:
    return checked_place(
        file,
        name,
        chunk["codec"],
        (chunk["chunk_offset"], chunk["compressed_bytes"]),
        _position(chunk["offset_index_offset"], chunk["offset_index_length"]),
        _position(chunk["column_index_offset"], chunk["column_index_length"]),
        chunk["encodings"].split(" "),
    )


def _position(offset: int | None, length: int | None) -> tuple[int, int] | None:
    return None if offset is None or length is None else (offset, length)
