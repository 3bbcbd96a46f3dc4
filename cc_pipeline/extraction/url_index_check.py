"""Reading a URL index built here from end to end, and asking the source whether its pointers lead where they say."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cc_pipeline.commoncrawl.btree_keys import url_of_btree_key
from cc_pipeline.commoncrawl.keyrange import KeyRange
from cc_pipeline.errors import DataFault, EnvironmentFault
from cc_pipeline.extraction import progress
from cc_pipeline.extraction.record_check import Promise, examine
from cc_pipeline.extraction.url_index_files import FILES, TREE, index_folder, open_url_index, read_about
from cc_pipeline.index.btree import Item
from cc_pipeline.index.btree_format import unpack_pointer
from cc_pipeline.index.btree_names import ArchiveNames, ArcNames, ListedNames, unpack_names
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import RangeFault
from cc_pipeline.transport.ranges import ByteRange

_SHOWN_FAULTS = 100
_REPORT_EVERY = 50_000


@dataclass(frozen=True, slots=True)
class IndexedRecord:
    """One item as a person reads it: ``file``, ``offset`` and ``length`` (bytes) name a gzip member."""

    url: str
    file: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class TreeCheck:
    """What a whole reading found: ``items``, an even random ``sample`` of them, and the first ``faults``."""

    items: int
    sample: tuple[IndexedRecord, ...]
    faults: tuple[DataFault, ...]


def archive_names(root: Path, crawl: str) -> ArchiveNames:
    """What the pointers of a crawl's B-tree mean: the list of the one built below ``root``, else the 2012 layout.

    Raises ``DataFault`` for a list that cannot be read.
    """
    folder = index_folder(root, crawl)
    about = read_about(folder)
    if about is None or about.pointers != "listed":
        return ArcNames(crawl)
    try:
        return ListedNames(unpack_names((folder / FILES).read_bytes(), FILES), FILES)
    except OSError as error:
        raise DataFault(str(folder / FILES), None, f"cannot be read: {error.strerror}") from error


def read_item(item: Item, names: ArchiveNames) -> IndexedRecord:
    """An item with its pointer resolved. Raises ``DataFault`` for a pointer to no archive file."""
    pointer = unpack_pointer(item.value)
    return IndexedRecord(url_of_btree_key(item.key), names.key_of(pointer), pointer.offset, pointer.size)


def check_tree(root: Path, crawl: str, sample: int = 20) -> TreeCheck:
    """Reads every item of the index of ``crawl`` below ``root``; needs no network.

    Order within blocks and from block to block is checked by the reader, whose faults end the reading and are given
    with what was found before. Raises ``EnvironmentFault`` where there is no index.
    """
    about = read_about(index_folder(root, crawl))
    if about is None:
        raise EnvironmentFault(
            f"there is no URL index of {crawl} in {root}", f"Build it: cc-pipeline url-index build --crawl {crawl}"
        )
    chance = random.Random(0)
    kept: list[IndexedRecord] = []
    faults: list[DataFault] = []
    items = 0
    last = b""
    try:
        locator = open_url_index(root, crawl)
        names = archive_names(root, crawl)
        assert locator is not None
        for item in locator.tree.scan(KeyRange(b"", None)):
            items += 1
            if item.key < last:
                faults.append(DataFault(TREE, None, f"item {items:,} sorts before the one in front of it"))
            last = item.key
            try:
                record = read_item(item, names)
            except DataFault as fault:
                faults.append(fault)
                continue
            # each item has the same chance to be among the sample, however many there will be
            if len(kept) < sample:
                kept.append(record)
            elif (place := chance.randrange(items)) < sample:
                kept[place] = record
            if items % _REPORT_EVERY == 0:
                progress.report("verify", items, about.items, crawl)
            if len(faults) >= _SHOWN_FAULTS:
                break
    except DataFault as fault:
        faults.append(fault)
    if not faults and items != about.items:
        faults.append(DataFault(TREE, None, f"has {items:,} items where {about.items:,} were written"))
    return TreeCheck(items, tuple(kept), tuple(faults))


def check_records(crawl: str, records: Sequence[IndexedRecord], transport: Transport) -> tuple[DataFault, ...]:
    """Reads ``records`` at the source and says which are not records of their URLs. Raises ``EnvironmentFault``."""
    return tuple(_wrong(crawl, records, transport))


def _wrong(crawl: str, records: Sequence[IndexedRecord], transport: Transport) -> Iterator[DataFault]:
    wanted = (ByteRange(record.file, record.offset, record.length, None, record) for record in records)
    for done, outcome in enumerate(transport.read_many(wanted), 1):
        progress.report("records", done, len(records))
        record = outcome.tag
        assert isinstance(record, IndexedRecord)
        if isinstance(outcome, RangeFault):
            yield DataFault(record.file, record.offset, f"{record.url} cannot be read ({outcome.kind.value})")
            continue
        kind = "arc" if ".arc.gz" in record.file else "warc"
        promise = Promise(crawl, kind, record.file, record.offset, record.length, record.url, None, None)
        verdict = examine(outcome.data, promise)
        if verdict.reason is not None:
            yield DataFault(record.file, record.offset, f"{record.url}: {verdict.reason} ({verdict.detail})")
