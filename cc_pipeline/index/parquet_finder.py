"""Which row groups a look-up has to read: said by the catalog, or by footers read on the spot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from cc_pipeline.commoncrawl.keyrange import KeyRange
from cc_pipeline.errors import DataFault
from cc_pipeline.index.footers import TRAILER_BYTES, RowGroup, decode_footer, place
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
    """Footers read from the files themselves, each once; the finder for a few files without a catalog.

    ``stored`` gives the end of a file of the given size and ETag where that is kept here already: footer and trailer.
    """

    def __init__(
        self,
        reader: SuffixReader,
        paths: Iterable[str] = (),
        stored: Callable[[str, str | None], bytes | None] | None = None,
    ) -> None:
        self.paths = tuple(paths)
        self.cost = Cost()
        self._reader = reader
        self._stored = stored
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

    def file(self, path: str, known: FilePlace | None = None) -> tuple[FilePlace, tuple[RowGroup, ...]]:
        """The file's place and row groups with every flat column.

        One request, two for a very long footer; none where the footer is stored and ``known`` tells what of.
        """
        if path not in self._files:
            tail = self._stored(path, known.etag) if self._stored is not None and known is not None else None
            if tail is not None and known is not None:
                self._files[path] = _decoded(path, tail, known.size, known.etag)
            else:
                self._files[path] = self._read(path, _SUFFIX if known is None else known.footer_bytes + TRAILER_BYTES)
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
        return _decoded(path, tail.data, tail.total, tail.etag)

    def _suffix(self, path: str, length: int) -> RangeBytes:
        answer = self._reader.read_suffix(path, length)
        self.cost.requests += 1
        self.cost.bytes += len(answer.data)
        return answer


def _as_bytes(bound: object) -> bytes | None:
    return bound if isinstance(bound, bytes) else None


def _decoded(path: str, tail: bytes, size: int, etag: str | None) -> tuple[FilePlace, tuple[RowGroup, ...]]:
    first = decode_footer(tail, size, path)
    flat = {
        column.name: (column.physical, column.repetition, column.meaning)
        for column in first.schema.columns
        if column.repetition != "repeated" and "." not in column.name
    }
    rows = decode_footer(tail, size, path, columns=(KEY,), lookup_columns=tuple(flat))
    crawl, subset, _ = place(path)
    return FilePlace(crawl or "", subset or "", path, size, etag, rows.footer_bytes, flat), rows.row_groups
