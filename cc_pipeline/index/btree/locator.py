"""Finds captures in the prefixed B-tree that is the URL index of 2012."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from cc_pipeline.commoncrawl.domains import host_columns
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.commoncrawl.key_ranges import KeyRange, url_of_btree_key
from cc_pipeline.commoncrawl.paths import ArcFile, arc_key
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.errors import UserInputError
from cc_pipeline.index.btree.format import HEADER, unpack_pointer
from cc_pipeline.index.btree.tree import BTree, Item
from cc_pipeline.index.locator import CaptureSink, LookupEstimate, LookupResult, TargetRouter
from cc_pipeline.transport.client import Transport

#: Ranges looked up concurrently.
_SIDE_BY_SIDE = 8
#: Neighbouring ranges that one thread reads, one after the other.
_NEIGHBOURS = 64
#: Items of such neighbours that are read ahead.
_READ_AHEAD_ITEMS = 16_384
#: Rows turned into a table at a time.
_ROWS = 50_000

#: The index published for CC-MAIN-2012, and the crawl it is of.
URL_INDEX_2012 = "projects/url-index/url-index.1356128792"
CRAWL_2012 = "CC-MAIN-2012"
#: The subset of all its captures.
_SUBSET = "warc"


class BTreeLocator:
    """Finds the captures of targets in the B-tree of 2012, the file ``key`` that ``reader`` reads.

    An item has a key and a pointer only, so ``fetch_time``, status and the like are null. ``url:`` and ``prefix:``
    targets are found in the spellings of ``Target.btree_prefixes``. Raises ``DataFault`` and ``EnvironmentFault``.
    """

    name = "btree"

    def __init__(self, reader: Transport, key: str = URL_INDEX_2012) -> None:
        self.tree = BTree(reader, key)

    def price(self, crawl: str, subsets: Sequence[str], targets: Sequence[Target]) -> LookupEstimate:
        """Estimates the data blocks to read from the index blocks, which are read and cached for it."""
        self._check(crawl)
        if _SUBSET not in subsets:
            return LookupEstimate(0, 0, 0, 0, self._notes(subsets))
        blocks = sum(self.tree.blocks_of(keys) for keys in TargetRouter(targets, Target.btree_ranges).ranges)
        size = HEADER.size + blocks * self.tree.layout.block_size
        return LookupEstimate(1, 0, blocks + 3, size, self._notes(subsets))

    def locate(
        self, crawl: str, subsets: Sequence[str], targets: Sequence[Target], sink: CaptureSink | None = None
    ) -> LookupResult:
        """Returns every capture of every target, per slug. Raises ``DataFault`` and ``EnvironmentFault``."""
        started = time.monotonic()
        self._check(crawl)
        source = self.tree.source
        reads, size, drifts = source.reads, source.bytes_read, len(self.tree.drifts)
        router = TargetRouter(targets, Target.btree_ranges, sink)
        if _SUBSET in subsets:
            with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
                self._take(router, self._items(pool, router.ranges))
        notes = self._notes(subsets)
        if len(self.tree.drifts) > drifts:
            notes += (
                f"the B-tree named a wrong block {len(self.tree.drifts) - drifts} times; the right block was found",
            )
        seconds = time.monotonic() - started
        return LookupResult(router.captures(), source.reads - reads, source.bytes_read - size, seconds, notes)

    def _check(self, crawl: str) -> None:
        if crawl != CRAWL_2012:
            raise UserInputError(f"the B-tree is an index of {CRAWL_2012}, not of {crawl}")

    def _notes(self, subsets: Sequence[str]) -> tuple[str, ...]:
        missing = [subset for subset in subsets if subset != _SUBSET]
        return (f"the B-tree index has no captures of the subset {', '.join(missing)}",) if missing else ()

    def _items(self, pool: ThreadPoolExecutor, ranges: Sequence[KeyRange]) -> Iterator[Item]:
        """Yields the items of all ranges in the order of the index, so that neighbours share cached blocks. A few
        groups are read at a time; one thread reads a group of neighbouring ranges."""
        step = max(1, min(_NEIGHBOURS, -(-len(ranges) // _SIDE_BY_SIDE)))
        neighbourhoods = [ranges[first : first + step] for first in range(0, len(ranges), step)]
        for first in range(0, len(neighbourhoods), _SIDE_BY_SIDE):
            scans = [
                pool.submit(self._scan, neighbours) for neighbours in neighbourhoods[first : first + _SIDE_BY_SIDE]
            ]
            for scan in scans:
                yield from scan.result()

    def _scan(self, ranges: Sequence[KeyRange]) -> Iterator[Item]:
        """Yields the items of ``ranges``: the first ones are read now, the others as they are drawn."""
        items = chain.from_iterable(map(self.tree.scan, ranges))
        return chain(list(islice(items, _READ_AHEAD_ITEMS)), items)

    def _take(self, router: TargetRouter, items: Iterable[Item]) -> None:
        rows: list[Mapping[str, Any]] = []
        targets_by_row: list[list[int]] = []
        for row, target_numbers in self._rows(router, items):
            rows.append(row)
            targets_by_row.append(target_numbers)
            if len(rows) == _ROWS:
                router.give(pa.Table.from_pylist(rows, schema=CAPTURE_SCHEMA), targets_by_row)
                rows, targets_by_row = [], []
        router.give(pa.Table.from_pylist(rows, schema=CAPTURE_SCHEMA), targets_by_row)

    def _rows(self, router: TargetRouter, items: Iterable[Item]) -> Iterator[tuple[Mapping[str, Any], list[int]]]:
        for item in items:
            url = url_of_btree_key(item.key)
            columns = host_columns(url)
            host = str(columns["url_host_name"] or "")
            target_numbers = router.matching_targets(item.key, url, host)
            if not target_numbers:
                continue
            pointer = unpack_pointer(item.value)
            file = arc_key(ArcFile(CRAWL_2012, pointer.segment, pointer.date, pointer.partition))
            row = columns | {
                "crawl": CRAWL_2012,
                "subset": _SUBSET,
                "url_surtkey": surt_key(url),
                "url": url,
                "warc_filename": file,
                "warc_record_offset": pointer.offset,
                "warc_record_length": pointer.size,
                "warc_segment": str(pointer.segment),
                "domain": columns["url_host_registered_domain"] or host or None,
                "archive_format": "arc",
                "located_by": self.name,
                "index_file": self.tree.source.key,
                "index_position": item.block,
            }
            yield row, target_numbers
