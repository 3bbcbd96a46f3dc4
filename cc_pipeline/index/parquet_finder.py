"""Which row groups a look-up has to read: said by the catalog, or by footers read on the spot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from cc_pipeline.commoncrawl.keyrange import KeyRange
from cc_pipeline.errors import DataFault
from cc_pipeline.index.footers import RowGroup, decode_footer, place
from cc_pipeline.index.parquet_fetch import Cost
from cc_pipeline.index.parquet_places import KEY, FilePlace, RowGroupPlace, checked_row_group, column_place
from cc_pipeline.transport.ranges import RangeBytes

#: Enough for the footer of nearly every index file.
_SUFFIX = 128 << 10


class SuffixReader(Protocol):
    """What of a ``Transport`` is needed to read a footer."""

    def read_suffix(self, key: str, length: int, etag: str | None = None) -> RangeBytes: ...


class RowGroupFinder(Protocol):
    """Gives the row groups that may hold keys of ``ranges``, with the places of the columns asked for.

    ``columns`` of ``None`` means all columns the file has. A row group without statistics may hold any key.
    ``cost`` is what it had to read itself; ``gaps`` says in words what of the index it knows nothing about.
    """

    @property
    def cost(self) -> Cost: ...

    def gaps(self, crawl: str, subsets: Sequence[str]) -> tuple[str, ...]: ...

    def find(
        self, crawl: str, subsets: Sequence[str], ranges: Sequence[KeyRange], columns: Sequence[str] | None
    ) -> list[RowGroupPlace]: ...


class Footers:
    """Footers read from the files themselves, each once; the finder for a few files without a catalog."""

    def __init__(self, reader: SuffixReader, paths: Iterable[str] = ()) -> None:
        self.paths = tuple(paths)
        self.cost = Cost()
        self._reader = reader
        self._files: dict[str, tuple[FilePlace, tuple[RowGroup, ...]]] = {}

    def find(
        self, crawl: str, subsets: Sequence[str], ranges: Sequence[KeyRange], columns: Sequence[str] | None
    ) -> list[RowGroupPlace]:
        found = []
        for path in self.paths:
            named = place(path)
            if named[0] == crawl and named[1] in subsets:
                for group in self.file(path)[1]:
                    bounds = group.statistics[KEY]
                    low, high = _as_bytes(bounds.minimum), _as_bytes(bounds.maximum)
                    if any(each.may_overlap(low, high) for each in ranges):
                        found.append(self.row_group(path, group.row_group, columns))
        return found

    def gaps(self, crawl: str, subsets: Sequence[str]) -> tuple[str, ...]:
        """None: a file that cannot be read raises."""
        return ()

    def file(self, path: str, footer_bytes: int | None = None) -> tuple[FilePlace, tuple[RowGroup, ...]]:
        """The file's place and row groups with every flat column; one request, two for a very long footer."""
        if path not in self._files:
            self._files[path] = self._read(path, _SUFFIX if footer_bytes is None else footer_bytes + 8)
        return self._files[path]

    def row_group(self, path: str, number: int, columns: Sequence[str] | None) -> RowGroupPlace:
        """One row group with the columns asked for that it has."""
        file, groups = self.file(path)
        if number >= len(groups):
            raise DataFault(path, None, f"row group {number} is not among the file's {len(groups)}")
        group = groups[number]
        names = group.chunks.keys() if columns is None else {KEY, *columns} & group.chunks.keys()
        places = {name: column_place(file, group.chunks[name]) for name in names}
        return checked_row_group(file, number, group.rows, places)

    def _read(self, path: str, length: int) -> tuple[FilePlace, tuple[RowGroup, ...]]:
        tail = self._suffix(path, length)
        metadata = int.from_bytes(tail.data[-8:-4], "little")
        if tail.data[-4:] == b"PAR1" and len(tail.data) < metadata + 8 <= min(tail.total, 16 << 20):
            tail = self._suffix(path, metadata + 8)
        first = decode_footer(tail.data, tail.total, path)
        flat = {
            column.name: (column.physical, column.repetition, column.meaning)
            for column in first.schema.columns
            if column.repetition != "repeated" and "." not in column.name
        }
        rows = decode_footer(tail.data, tail.total, path, columns=(KEY,), lookup_columns=tuple(flat))
        crawl, subset, _ = place(path)
        file = FilePlace(crawl or "", subset or "", path, tail.total, tail.etag, rows.footer_bytes, flat)
        return file, rows.row_groups

    def _suffix(self, path: str, length: int) -> RangeBytes:
        answer = self._reader.read_suffix(path, length)
        self.cost.requests += 1
        self.cost.bytes += len(answer.data)
        return answer


def _as_bytes(bound: object) -> bytes | None:
    return bound if isinstance(bound, bytes) else None
