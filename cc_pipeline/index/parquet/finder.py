"""Finds the row groups that a lookup has to read in the catalog, and their columns in footers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from cc_pipeline.advice import advise
from cc_pipeline.commoncrawl.key_ranges import KeyRange
from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault
from cc_pipeline.index.catalog.schemas import DECODED
from cc_pipeline.index.footers.decode import MAX_FOOTER_BYTES, TRAILER_BYTES, RowGroup, decode_footer, place
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline.index.gaps import find_gaps, missing_harvest, name_subsets, unharvested
from cc_pipeline.index.parquet.chunk_locations import (
    KEY,
    IndexFile,
    RowGroupLocation,
    check_row_group,
    locate_column,
    requested_columns,
    split_columns,
)
from cc_pipeline.index.parquet.fetch import Cost
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.ranges import RangeBytes

if TYPE_CHECKING:
    from cc_pipeline.index.catalog.catalog import Catalog

#: Enough for the footer of nearly every index file.
_SUFFIX = 128 << 10


class Footers:
    """Finds places of columns in the footers of the files themselves, each read once.

    ``stored`` returns the end of a file with the given ETag if it is stored already: footer and trailer.
    """

    def __init__(
        self, reader: Transport, stored: Callable[[str, str | None], bytes | None] = lambda path, etag: None
    ) -> None:
        self.cost = Cost()
        self._reader = reader
        self._stored = stored
        self._files: dict[str, tuple[IndexFile, tuple[RowGroup, ...]]] = {}

    def file(self, path: str, harvested: Mapping[str, Any] | None = None) -> tuple[IndexFile, tuple[RowGroup, ...]]:
        """Returns the file's place and its row groups with every column.

        Sends one request, or two for a very long footer. Sends none if the footer is stored for the ETag of
        ``harvested``, the file's row of ``index_files`` in the catalog.
        """
        if path not in self._files:
            tail = None if harvested is None else self._stored(path, harvested["etag"])
            if tail is not None and harvested is not None:
                self._files[path] = decoded_file(path, tail, harvested["file_size"], harvested["etag"])
            else:
                self._files[path] = self._read(
                    path, _SUFFIX if harvested is None else harvested["footer_bytes"] + TRAILER_BYTES
                )
        return self._files[path]

    def row_group(self, path: str, number: int, columns: Sequence[str] | None) -> RowGroupLocation:
        """Returns one row group with those requested columns that it has."""
        file, groups = self.file(path)
        if number >= len(groups):
            raise DataFault(DataKind.MISMATCH, path, None, f"row group {number} is not among the file's {len(groups)}")
        group = groups[number]
        names = group.chunks.keys() & requested_columns(columns, file)
        places = {name: locate_column(file, group.chunks[name]) for name in names}
        return check_row_group(file, number, group.rows, places)

    def _read(self, path: str, length: int) -> tuple[IndexFile, tuple[RowGroup, ...]]:
        tail = self._suffix(path, length)
        metadata = int.from_bytes(tail.data[-8:-4], "little")
        if tail.data[-4:] == b"PAR1" and len(tail.data) < metadata + TRAILER_BYTES <= min(tail.size, MAX_FOOTER_BYTES):
            tail = self._suffix(path, metadata + TRAILER_BYTES)
        return decoded_file(path, tail.data, tail.size, tail.etag)

    def _suffix(self, path: str, length: int) -> RangeBytes:
        answer = self._reader.read_suffix(path, length)
        self.cost.requests += 1
        self.cost.bytes += len(answer.data)
        return answer


def decoded_file(path: str, tail: bytes, size: int, etag: str | None) -> tuple[IndexFile, tuple[RowGroup, ...]]:
    """Returns a file's place and row groups with every column, from its footer. Raises ``DataFault``."""
    rows = decode_footer(tail, size, path, columns=(KEY,))
    flat, unread = split_columns(
        {column.name: (column.physical, column.repetition, column.meaning) for column in rows.schema.columns}
    )
    crawl, subset, _ = place(path)
    return IndexFile(crawl or "", subset or "", path, size, etag, rows.footer_bytes, flat, unread), rows.row_groups


class CatalogFinder:
    """Finds row groups in a catalog. The places of their columns come from the file's footer, which is read once.

    ``footers`` has the harvested footers; without it, or for a missing file, the footer is requested.
    """

    def __init__(self, catalog: Catalog, reader: Transport, footers: FooterStore | None = None) -> None:
        self._catalog = catalog
        self._crawl_footers = lru_cache(maxsize=8)(lambda crawl: None if footers is None else footers.read(crawl))
        self._footers = Footers(reader, self._stored)
        self._files = lru_cache(maxsize=64)(self._read_files)

    @property
    def cost(self) -> Cost:
        """The cost of footers that were read."""
        return self._footers.cost

    def find(
        self, crawl: str, subsets: Sequence[str], ranges: Sequence[KeyRange], columns: Sequence[str] | None
    ) -> list[RowGroupLocation]:
        """Finds row groups. Raises ``EnvironmentFault`` if the catalog has no rows of a subset, ``DataFault`` for
        impossible places."""
        self._check(crawl, subsets)
        groups = self._catalog.row_groups_for(crawl, list(subsets), ranges)
        groups = groups.filter(pc.not_equal(groups["rows"], 0))
        if not groups.num_rows:
            return []
        files = self._files(crawl)
        row_groups = []
        places = groups.select(["path", "row_group"]).sort_by([("path", "ascending"), ("row_group", "ascending")])
        for row in places.to_pylist():
            self._footers.file(row["path"], files[row["path"]])
            row_groups.append(self._footers.row_group(row["path"], row["row_group"], columns))
        return row_groups

    def gaps(self, crawl: str, subsets: Sequence[str]) -> tuple[str, ...]:
        """Returns a sentence about files that are missing from the catalog, if there are any."""
        gaps = find_gaps(self._catalog, crawl, subsets)
        return () if gaps is None else (gaps.note,)

    def _check(self, crawl: str, subsets: Sequence[str]) -> None:
        missing_subsets = unharvested(self._catalog, crawl, subsets)
        if missing_subsets:
            raise missing_harvest(crawl, missing_subsets)
        for row in self._catalog.coverage(crawl).to_pylist():
            if row["subset"] in subsets and row["expected"] and not row["harvested"]:
                raise EnvironmentFault(
                    f"none of the {row['expected']:,} index files of {crawl} ({row['subset']}) could be read when the "
                    "crawl was harvested, so nothing can be searched",
                    advise(
                        "index harvest",
                        crawl=crawl,
                        subset=name_subsets([row["subset"]]),
                        sentence="Harvest it again: {}",
                    ),
                )

    def _stored(self, path: str, etag: str | None) -> bytes | None:
        crawl, _, _ = place(path)
        footers = self._crawl_footers(crawl) if crawl is not None else None
        # without an ETag it is not certain that the stored footer is of the catalog's file
        if footers is None or path not in footers or etag is None or footers.entries[path].etag != etag:
            return None
        return footers.footer(path)

    def _read_files(self, crawl: str) -> dict[str, Mapping[str, Any]]:
        files = self._catalog.index_files(crawl).select(["path", "outcome", "file_size", "etag", "footer_bytes"])
        return {row["path"]: row for row in files.to_pylist() if row["outcome"] == DECODED}
