"""Stored footers in the place of a suffix request, for readers that would fetch them again."""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from cc_pipeline.index.footer_store import CrawlFooters, FooterStore
from cc_pipeline.index.footers import place
from cc_pipeline.transport.ranges import RangeBytes


class SuffixReader(Protocol):
    """What of a ``Transport`` is stood in for."""

    def read_suffix(self, key: str, length: int, etag: str | None = None) -> RangeBytes: ...


class StoredSuffixes:
    """Answers for harvested files with their whole footer, whatever length is asked; asks ``source`` for others."""

    def __init__(self, store: FooterStore, source: SuffixReader) -> None:
        self._source = source
        self._crawl = lru_cache(maxsize=4)(store.read)

    def read_suffix(self, key: str, length: int, etag: str | None = None) -> RangeBytes:
        """The end of a file: its footer, or the last ``length`` bytes from the source. Raises as the source does."""
        crawl = place(key)[0]
        footers: CrawlFooters | None = self._crawl(crawl) if crawl is not None else None
        if footers is not None and key in footers:
            entry = footers.entries[key]
            if entry.file_size is not None and etag in (None, entry.etag):
                footer = footers.footer(key)
                return RangeBytes(key, entry.file_size - len(footer), footer, entry.file_size, entry.etag, 0)
        return self._source.read_suffix(key, length, etag)
