"""Finds captures in a prefixed B-tree: the 2012 URL index, or one built for any other crawl.

A pointer names its archive file by the 2012 layout, or by its line in a list of files beside the index.
"""

from __future__ import annotations

import gzip
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, Protocol

import pyarrow as pa

from cc_pipeline.commoncrawl.domains import host_columns
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.commoncrawl.key_ranges import KeyRange, url_of_btree_key
from cc_pipeline.commoncrawl.paths import ArcFile, arc_key, todays_key
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.errors import DataFault, DataKind, UserInputError
from cc_pipeline.index.btree.format import HEADER, Pointer, unpack_pointer
from cc_pipeline.index.btree.source import RangeReader
from cc_pipeline.index.btree.tree import BTree, Item
from cc_pipeline.index.locator import CaptureSink, LookupEstimate, LookupResult, TargetRouter

#: Maximum bytes of an unpacked list of files; 90,000 names of a crawl are about 13 MB.
_MAX_LIST_BYTES = 512 << 20


class ArchiveNames(Protocol):
    """Resolves pointers: ``key_of`` returns the key of the archive file; ``archive_format`` is ``arc`` or ``warc``."""

    archive_format: str

    def key_of(self, pointer: Pointer) -> str: ...


class ArcNames:
    """The layouts of the ARC years, for the crawl that a pointer is of (see ``commoncrawl.arc_paths``)."""

    archive_format = "arc"

    def __init__(self, crawl: str) -> None:
        self.crawl = crawl

    def key_of(self, pointer: Pointer) -> str:
        """Raises ``DataFault`` for a date that no ARC file of the crawl can have."""
        return arc_key(ArcFile(self.crawl, pointer.segment, pointer.date, pointer.partition))


class ListedNames:
    """A list of archive files in which a pointer's ``partition`` is the line number, counted from 0."""

    archive_format = "warc"

    def __init__(self, files: Iterable[str], source: str) -> None:
        self.files = tuple(map(todays_key, files))
        self.source = source

    def key_of(self, pointer: Pointer) -> str:
        """Raises ``DataFault`` for a number that is not in the list."""
        if pointer.partition >= len(self.files):
            raise DataFault(
                DataKind.MISMATCH,
                self.source,
                None,
                f"a pointer names archive file {pointer.partition}, but only {len(self.files)} are listed; build the "
                "index again",
            )
        return self.files[pointer.partition]


def pack_names(files: Iterable[str]) -> bytes:
    """Returns a list of files as stored: UTF-8 lines, gzip, the same bytes for the same list."""
    return gzip.compress("".join(f"{name}\n" for name in files).encode(), mtime=0)


def unpack_names(data: bytes, source: str) -> tuple[str, ...]:
    """Returns the files of a stored list. Raises ``DataFault`` for anything else."""
    try:
        inflater = zlib.decompressobj(wbits=31)
        text = inflater.decompress(data, _MAX_LIST_BYTES)
        if not inflater.eof:
            raise DataFault(
                DataKind.MALFORMED,
                source,
                None,
                "the list of archive files is cut off or too long; build the index again",
            )
        lines = text.decode().split("\n")
    except (zlib.error, UnicodeDecodeError) as error:
        raise DataFault(
            DataKind.MALFORMED,
            source,
            None,
            f"the list of archive files cannot be read ({error}); build the index again",
        ) from error
    if lines.pop():
        raise DataFault(
            DataKind.TRUNCATED, source, None, "the list of archive files ends inside a line; build the index again"
        )
    return tuple(lines)


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


class BTreeLocator:
    """Finds the captures of targets in a B-tree file: the one published for 2012, or one that was built in this home.

    ``reader`` reads the file ``key`` of ``crawl``. ``names`` gives the archive file of a pointer. An item has a key and
    a pointer only, so ``fetch_time``, status and the like are null. ``url:`` and ``prefix:`` targets are found in the
    spellings of ``Target.btree_prefixes``. ``trusted=False`` is for a file whose pointers may be wrong: the block to
    the left is read too if the index does not prove itself right. Raises ``DataFault`` and ``EnvironmentFault``.
    """

    name = "btree"

    def __init__(
        self,
        reader: RangeReader,
        key: str,
        crawl: str,
        *,
        names: ArchiveNames | None = None,
        subsets: Sequence[str] = ("warc",),
        trusted: bool = True,
    ) -> None:
        self.crawl = crawl
        self.subsets = tuple(subsets)
        self.tree = BTree(reader, key, trusted=trusted)
        self.names = names or ArcNames(crawl)

    def price(self, crawl: str, subsets: Sequence[str], targets: Sequence[Target]) -> LookupEstimate:
        """Estimates the data blocks to read from the index blocks, which are read and cached for it."""
        self._check(crawl)
        if not set(subsets) & set(self.subsets):
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
        if set(subsets) & set(self.subsets):
            with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
                self._take(router, self._items(pool, router.ranges), subsets)
        notes = self._notes(subsets)
        if len(self.tree.drifts) > drifts:
            notes += (
                f"the B-tree named a wrong block {len(self.tree.drifts) - drifts} times; the right block was found",
            )
        seconds = time.monotonic() - started
        return LookupResult(router.captures(), source.reads - reads, source.bytes_read - size, seconds, notes)

    def _check(self, crawl: str) -> None:
        if crawl != self.crawl:
            raise UserInputError(f"this B-tree is an index of {self.crawl}, not of {crawl}")

    def _notes(self, subsets: Sequence[str]) -> tuple[str, ...]:
        missing = [subset for subset in subsets if subset not in self.subsets]
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

    def _take(self, router: TargetRouter, items: Iterable[Item], subsets: Sequence[str]) -> None:
        rows: list[Mapping[str, Any]] = []
        targets_by_row: list[list[int]] = []
        for row, target_numbers in self._rows(router, items, subsets):
            rows.append(row)
            targets_by_row.append(target_numbers)
            if len(rows) == _ROWS:
                router.give(pa.Table.from_pylist(rows, schema=CAPTURE_SCHEMA), targets_by_row)
                rows, targets_by_row = [], []
        router.give(pa.Table.from_pylist(rows, schema=CAPTURE_SCHEMA), targets_by_row)

    def _rows(
        self, router: TargetRouter, items: Iterable[Item], subsets: Sequence[str]
    ) -> Iterator[tuple[Mapping[str, Any], list[int]]]:
        for item in items:
            url = url_of_btree_key(item.key)
            columns = host_columns(url)
            host = str(columns["url_host_name"] or "")
            target_numbers = router.matching_targets(item.key, url, host)
            if not target_numbers:
                continue
            pointer = unpack_pointer(item.value)
            file = self.names.key_of(pointer)
            subset = subset_of(file)
            if subset not in subsets:
                continue
            row = columns | {
                "crawl": self.crawl,
                "subset": subset,
                "url_surtkey": surt_key(url),
                "url": url,
                "warc_filename": file,
                "warc_record_offset": pointer.offset,
                "warc_record_length": pointer.size,
                "warc_segment": segment_of(file),
                "domain": columns["url_host_registered_domain"] or host or None,
                "archive_format": self.names.archive_format,
                "located_by": self.name,
                "index_file": self.tree.source.key,
                "index_position": item.block,
            }
            yield row, target_numbers


def subset_of(file: str) -> str:
    """Returns ``crawldiagnostics`` or ``robotstxt`` for archive files below such folders, ``warc`` for all others."""
    folder = file.rpartition("/")[0].rpartition("/")[2]
    return folder if folder in ("crawldiagnostics", "robotstxt") else "warc"


def segment_of(file: str) -> str | None:
    """Returns the segment in the path of an archive file of any year, if it has one."""
    parts = file.split("/")
    for name in ("segments", "segment"):
        if name in parts[:-2]:
            return parts[parts.index(name) + 1]
    return None
