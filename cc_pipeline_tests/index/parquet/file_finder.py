"""A finder of row groups for a few files without a catalog."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cc_pipeline.commoncrawl.key_ranges import KeyRange, range_set
from cc_pipeline.index.footers.decode import place
from cc_pipeline.index.parquet.chunk_locations import KEY, RowGroupLocation
from cc_pipeline.index.parquet.finder import Footers
from cc_pipeline.transport.client import Transport


class FileFinder(Footers):
    """Reads the footers of ``paths`` from the files themselves, each once."""

    def __init__(self, reader: Transport, paths: Iterable[str]) -> None:
        super().__init__(reader)
        self.paths = tuple(paths)

    def find(
        self, crawl: str, subsets: Sequence[str], ranges: Sequence[KeyRange], columns: Sequence[str] | None
    ) -> list[RowGroupLocation]:
        row_groups = []
        requested_ranges = range_set(ranges)
        for path in self.paths:
            path_parts = place(path)
            if path_parts[0] == crawl and path_parts[1] in subsets:
                for group in self.file(path)[1]:
                    bounds = group.statistics[KEY]
                    low, high = (
                        bound if isinstance(bound, bytes) else None for bound in (bounds.minimum, bounds.maximum)
                    )
                    # an empty row group often has no place in the file
                    if group.rows and requested_ranges.meets(low, high):
                        row_groups.append(self.row_group(path, group.row_group, columns))
        return row_groups

    def gaps(self, crawl: str, subsets: Sequence[str]) -> tuple[str, ...]:
        """No gaps: a file that cannot be read raises an error."""
        return ()
