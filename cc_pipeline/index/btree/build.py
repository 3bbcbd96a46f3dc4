"""Builds a URL index of a crawl from its columnar index or its ARC files; items are sorted on disk."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from cc_pipeline import progress
from cc_pipeline.archive.arc import iter_located
from cc_pipeline.atomic import folder_written_whole, parse_leftover_name
from cc_pipeline.commoncrawl.key_ranges import KeyRange, btree_key
from cc_pipeline.commoncrawl.paths import WarcFile, parse_arc_key
from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault
from cc_pipeline.index.btree.files import (
    FILES,
    FORMAT,
    SORT_PREFIX,
    TREE,
    UrlIndexMetadata,
    index_folder,
    write_metadata,
)
from cc_pipeline.index.btree.format import BLOCK_SIZE, POINTER, UnfitItem, pack_pointer
from cc_pipeline.index.btree.locator import pack_names
from cc_pipeline.index.btree.writer import write_btree
from cc_pipeline.index.parquet.fetch import Cost, ManyReader
from cc_pipeline.index.parquet.finder import RowGroupFinder
from cc_pipeline.index.parquet.read import scan_columns
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.processes import has_ended, this_process
from cc_pipeline.transport.client import Transport

_COLUMNS = ("url", "warc_filename", "warc_record_offset", "warc_record_length")
_EVERYTHING = (KeyRange(b"", None),)
#: URLs of the common kind, whose key only needs the host reversed; ``btree_key`` gives the same.
_PLAIN = re.compile(r"(https?)://([a-z0-9.-]+)(/[^#\0]*)")
_SHOWN_FAULTS = 20
#: The items to sort, the most of them in a batch, and bytes of them in a batch and in memory (merging takes up to
#: 160 MB).
_ITEMS = pa.schema([("item", pa.binary())])
_ITEMS_AT_ONCE = 4_096
_SORT_MEMORY = 8 << 20
#: Bytes of an ARC file read at a time.
_WINDOW = 8 << 20


@dataclass(frozen=True, slots=True)
class UrlIndexReport:
    """The result of a build. ``metadata`` counts the captures that fit no item (``faults`` has the first reasons).
    ``requests`` and ``bytes`` were spent."""

    folder: Path
    metadata: UrlIndexMetadata
    faults: tuple[str, ...]
    requests: int
    bytes: int
    seconds: float


@dataclass(slots=True)
class _Faults:
    count: int = 0
    messages: list[str] = field(default_factory=list)

    def add(self, fault: DataFault) -> None:
        self.count += 1
        if len(self.messages) < _SHOWN_FAULTS:
            self.messages.append(str(fault))


def build_from_columnar(
    crawl: str,
    subsets: Sequence[str],
    reader: ManyReader,
    finder: RowGroupFinder,
    root: Path,
    *,
    block_size: int = BLOCK_SIZE,
) -> UrlIndexReport:
    """Builds the index of ``crawl`` below ``root`` from the rows of its columnar index.

    Row groups are read one after another and items are sorted on disk, so memory stays below 400 MB whatever the
    crawl. A capture that no item can hold (a key above the block size) is counted and left out. The new index replaces
    an older one when it is complete. Raises ``DataFault`` and ``EnvironmentFault`` from reading and writing.
    """
    started = time.monotonic()
    cost, faults = Cost(), _Faults()
    #: Segment, date and number of each archive file, in the order in which they were seen.
    files: dict[str, tuple[int, int, int]] = {}

    def items() -> Iterator[bytes]:
        places = finder.find(crawl, subsets, _EVERYTHING, _COLUMNS)
        for group_number, place in enumerate(places):
            progress.report("url_index", group_number, len(places), crawl)
            for batch in scan_columns(reader, place, _COLUMNS, cost):
                for url, raw_file, offset, length in zip(*(values.to_pylist() for values in batch), strict=True):
                    try:
                        file = raw_file.decode()
                        if file not in files:
                            files[file] = (*_segment_and_date(file), len(files))
                        pointer = pack_pointer(*files[file], offset, length)
                        yield _item(url.decode("utf-8", "surrogateescape"), pointer, block_size)
                    except UnfitItem as fault:
                        faults.add(fault)
                    except (AttributeError, UnicodeDecodeError):
                        reason = f"a row without URL or file: {url!r}, {raw_file!r}"
                        faults.add(DataFault(DataKind.MALFORMED, place.file.path, None, reason))
        progress.report("url_index", len(places), len(places), crawl)

    metadata = _sort_and_write(root, crawl, subsets, items(), files, "listed", block_size, faults)
    seconds = time.monotonic() - started
    messages = tuple(faults.messages)
    return UrlIndexReport(index_folder(root, crawl), metadata, messages, cost.requests, cost.bytes, seconds)


def build_from_arcs(
    crawl: str, keys: Sequence[str], transport: Transport, root: Path, *, block_size: int = BLOCK_SIZE
) -> UrlIndexReport:
    """Builds the index of a crawl of the ARC years from its ARC files: such a crawl has no columnar index.

    Pointers are as in the published index of 2012. Damaged stretches are counted, and reading goes on behind them.
    Raises ``DataFault`` for a key that names no ARC file of the crawl, ``EnvironmentFault`` from reading and writing.
    """
    started = time.monotonic()
    stats = transport.stats
    requests, size = stats.requests, stats.bytes
    faults = _Faults()

    def items() -> Iterator[bytes]:
        for file_number, key in enumerate(keys):
            progress.report("url_index", file_number, len(keys), key)
            arc = parse_arc_key(key)
            if arc.crawl != crawl:
                raise DataFault(
                    DataKind.MISMATCH, key, None, f"this ARC file is of {arc.crawl}, but the index is built for {crawl}"
                )
            for stored in iter_located(_Stream(transport, key), key):
                if isinstance(stored, DataFault):
                    faults.add(stored)
                elif stored.record.record_type == "arc" and (stored.length is None or stored.inner_offset):
                    reason = f"the record of {stored.record.url} has no gzip member of its own"
                    faults.add(DataFault(DataKind.UNSUPPORTED, key, stored.offset, reason))
                elif stored.record.record_type == "arc" and stored.length is not None:
                    location = (arc.segment_id, arc.file_date_ms, arc.partition, stored.offset, stored.length)
                    try:
                        yield _item(stored.record.url, pack_pointer(*location), block_size)
                    except UnfitItem as fault:
                        faults.add(fault)
        progress.report("url_index", len(keys), len(keys), crawl)

    metadata = _sort_and_write(root, crawl, ("warc",), items(), keys, "arc", block_size, faults)
    return UrlIndexReport(
        index_folder(root, crawl),
        metadata,
        tuple(faults.messages),
        stats.requests - requests,
        stats.bytes - size,
        time.monotonic() - started,
    )


def _item(url: str, pointer: bytes, block_size: int) -> bytes:
    """Key, NUL and pointer in one: sorted as bytes they are sorted by key, because no key has a NUL."""
    plain = _PLAIN.fullmatch(url)
    if plain is not None and url.isascii():
        scheme, host, tail = plain.groups()
        key = f"{'.'.join(host.split('.')[::-1])}{tail}:{scheme}".encode("ascii")
    else:
        key = btree_key(url)
    if len(key) + 1 + POINTER.size > block_size:
        raise UnfitItem(
            DataKind.TOO_LARGE, "url index", None, f"the key of {url[:100]!r}… is too long: {len(key)} bytes"
        )
    return key + b"\0" + pointer


def _segment_and_date(file: str) -> tuple[int, int]:
    """Returns, for old readers, the segment's digits before its point, and the start time of the file in ms."""
    try:
        warc = WarcFile.from_path(file)
    except DataFault:
        return 0, 0
    digits = warc.segment.partition(".")[0]
    segment = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0
    return segment, int(warc.started.timestamp() * 1000) if warc.started is not None else 0


def _sort_and_write(
    root: Path,
    crawl: str,
    subsets: Sequence[str],
    items: Iterator[bytes],
    files: Collection[str],
    pointers: str,
    block_size: int,
    faults: _Faults,
) -> UrlIndexMetadata:
    """Sorts ``items``, writes the three files to a new folder, and replaces the previous index with it. ``files`` and
    ``faults`` are complete once all items were drawn."""
    folder = index_folder(root, crawl)
    split = -POINTER.size
    with _write_trouble(folder):
        root.mkdir(parents=True, exist_ok=True)
        _delete_leftovers(root)
        scratch_folder = TemporaryDirectory(
            prefix=f"{SORT_PREFIX}{this_process()}.", dir=root, ignore_cleanup_errors=True
        )
    with scratch_folder as scratch:
        ordered = OrderedRows(_ITEMS, _ITEMS.names, Path(scratch), _SORT_MEMORY)
        for rows in _batches(items):
            ordered.add(rows)
        sorted_items = (item for rows in ordered.drain() for item in rows.column(0).to_pylist())
        # the new folder exists only while it is written: reading the source takes hours
        with _write_trouble(folder), folder_written_whole(folder) as partial_folder:
            with (partial_folder / TREE).open("wb") as out:
                pairs = ((item[: split - 1], item[split:]) for item in sorted_items)
                summary = write_btree(pairs, out, block_size, name=TREE, scratch=scratch)
            (partial_folder / FILES).write_bytes(pack_names(files))
            metadata = UrlIndexMetadata(
                FORMAT,
                crawl,
                tuple(subsets),
                pointers,
                block_size,
                summary.items,
                len(files),
                summary.size,
                faults.count,
            )
            write_metadata(partial_folder, metadata)
    return metadata


def _delete_leftovers(root: Path) -> None:
    """Deletes the folders of killed builds below ``root``. A folder of a process that may still run is kept."""
    for folder in list(root.iterdir()):
        leftover = parse_leftover_name(folder.name)
        is_sort_folder = folder.name.startswith(SORT_PREFIX)
        mark = folder.name.removeprefix(SORT_PREFIX).rpartition(".")[0] if is_sort_folder else leftover and leftover[1]
        if mark and has_ended(mark) is True:
            shutil.rmtree(folder, ignore_errors=True)


def _batches(items: Iterator[bytes]) -> Iterator[pa.RecordBatch]:
    """Yields ``items`` in batches that are bounded in number and in bytes: a key may have 64 KiB."""
    # a plain loop: it runs once for each of three billion URLs
    batch: list[bytes] = []
    size = 0
    for item in items:
        batch.append(item)
        size += len(item)
        if len(batch) >= _ITEMS_AT_ONCE or size >= _SORT_MEMORY:
            yield pa.record_batch([pa.array(batch, pa.binary())], schema=_ITEMS)
            batch, size = [], 0
    if batch:
        yield pa.record_batch([pa.array(batch, pa.binary())], schema=_ITEMS)


@contextmanager
def _write_trouble(folder: Path) -> Iterator[None]:
    """Turns an ``OSError`` of writing the index in ``folder`` into an ``EnvironmentFault``. Nothing of the source is
    read inside: its faults are not about this folder."""
    try:
        yield
    except OSError as error:
        advice = "Check the disk's free space and the folder's rights"
        raise EnvironmentFault(f"cannot write the URL index {folder}: {error.strerror}", advice) from error


class _Stream:
    """A remote file as a stream of large verified ranges."""

    def __init__(self, transport: Transport, key: str) -> None:
        self._transport = transport
        self._key = key
        self._offset = 0
        self._total: int | None = None
        self._buffer = b""

    def read(self, size: int = -1, /) -> bytes:
        """Returns up to ``size`` bytes, none at the end."""
        if not self._buffer and (self._total is None or self._offset < self._total):
            if self._total is None:
                object_info = self._transport.head(self._key)
                if object_info is None:
                    raise EnvironmentFault(f"the source has no file {self._key}", "Check the list of ARC files")
                if object_info.size is None:
                    raise EnvironmentFault(
                        f"the size of {self._key} is not known",
                        "Use a source whose responses give the size of a file",
                    )
                self._total = object_info.size
            length = min(_WINDOW, self._total - self._offset)
            self._buffer = self._transport.read(self._key, self._offset, length).data if length else b""
            self._offset += len(self._buffer)
        chunk, self._buffer = (self._buffer, b"") if size < 0 else (self._buffer[:size], self._buffer[size:])
        return chunk
