"""Builds a URL index, reads it from start to end, and checks its pointers at the source."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cc_pipeline import progress
from cc_pipeline.atomic import write_whole
from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
from cc_pipeline.commoncrawl.key_ranges import KeyRange, url_of_btree_key
from cc_pipeline.commoncrawl.paths import parse_keys, parse_path_list
from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault
from cc_pipeline.harvesting.catalog import open_catalog
from cc_pipeline.index.btree.build import UrlIndexReport, build_from_arcs, build_from_columnar
from cc_pipeline.index.btree.files import TREE, index_folder, open_url_index, read_metadata
from cc_pipeline.index.btree.format import unpack_pointer
from cc_pipeline.index.btree.locator import ArchiveNames
from cc_pipeline.index.btree.tree import Item
from cc_pipeline.index.catalog.catalog import Catalog
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline.index.opening import URL_INDEXES
from cc_pipeline.index.parquet.finder import CatalogFinder
from cc_pipeline.progress import format_count
from cc_pipeline.records.verification import ExpectedRecord, verify_record
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import RangeFault
from cc_pipeline.transport.ranges import ByteRange
from cc_pipeline.workspace.workspace import Workspace


def url_index_root(workspace: Workspace) -> Path:
    """Returns the folder with a folder for each URL index built here."""
    return workspace.settings.home / URL_INDEXES


def arc_list_path(workspace: Workspace, crawl: str) -> Path:
    """Returns the path of the list of ARC files of a crawl without an index: one key per line, as in a path list."""
    return workspace.settings.home / "arc-lists" / f"{crawl}.paths.gz"


def keep_arc_list(workspace: Workspace, crawl: str, text: bytes) -> int:
    """Stores a list of ARC files (plain or gzip, a key or old address per line) for ``crawl``; returns their number.

    Raises ``DataFault`` for a list that cannot be read or has a line that is no key.
    """
    source = "the list of ARC files"
    keys = parse_path_list(text, source) if text[:2] == b"\x1f\x8b" else parse_keys([text], source)
    packed = gzip.compress("\n".join(keys).encode("ascii"), mtime=0)
    write_whole(arc_list_path(workspace, crawl), packed, durable=True)
    return len(keys)


def build_url_index(workspace: Workspace, crawl: str) -> UrlIndexReport:
    """Builds (or replaces) the URL index of ``crawl``: by its columnar index, or by its ARC files.

    Raises ``EnvironmentFault`` for a crawl that has not been harvested, or of the ARC years without a list of files.
    """
    settings = workspace.settings
    root = url_index_root(workspace)
    if crawl in ARC_CRAWLS:
        list_path = arc_list_path(workspace, crawl)
        if not list_path.exists():
            raise EnvironmentFault(
                f"{crawl} has no columnar index, and this home has no list of its ARC files",
                f"Give a list with one key a line: cc-pipeline index build --btree --crawl {crawl} --arcs LIST",
            )
        keys = parse_path_list(list_path.read_bytes(), str(list_path))
        return build_from_arcs(crawl, keys, workspace.transport, root)
    with open_catalog(workspace.lake) as catalog:
        place = workspace.index_place(crawl)
        finder = CatalogFinder(catalog, place, FooterStore(settings.footers_path))
        _check_whole(finder, catalog, crawl, settings.subsets)
        return build_from_columnar(crawl, settings.subsets, place, finder, root)


def _check_whole(finder: CatalogFinder, catalog: Catalog, crawl: str, subsets: Sequence[str]) -> None:
    """Raises ``EnvironmentFault`` if rows are missing: an incomplete index would answer as if it were complete."""
    coverage = [row for row in catalog.coverage(crawl).to_pylist() if row["subset"] in subsets]
    lost = sum(row["failed"] + row["missing"] for row in coverage)
    if lost:
        raise EnvironmentFault(
            f"{crawl} has {format_count(lost, 'index file')} without a harvest",
            f"Harvest them: cc-pipeline index harvest --crawl {crawl}",
        )
    row_count = sum(place.rows for place in finder.find(crawl, subsets, (KeyRange(b"", None),), ("url",)))
    expected = sum(row["rows"] for row in coverage)
    if row_count != expected:
        raise EnvironmentFault(
            f"the catalog lists {format_count(row_count, 'capture')} of {crawl}, but {expected:,} were harvested",
            f"Harvest the crawl again: cc-pipeline index harvest --crawl {crawl}",
        )


_SHOWN_FAULTS = 100
_REPORT_EVERY = 50_000


@dataclass(frozen=True, slots=True)
class IndexedRecord:
    """One item in readable form: ``file``, ``offset`` and ``length`` (bytes) name a gzip member."""

    url: str
    file: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class TreeCheck:
    """The result of reading a whole tree: ``items``, an even random ``sample`` of them, and the first ``faults``.
    Without ``is_complete`` these ended the reading."""

    items: int
    sample: tuple[IndexedRecord, ...]
    faults: tuple[DataFault, ...]
    is_complete: bool


def read_item(item: Item, names: ArchiveNames) -> IndexedRecord:
    """Returns an item with its pointer resolved. Raises ``DataFault`` for a pointer to no archive file."""
    pointer = unpack_pointer(item.value)
    return IndexedRecord(url_of_btree_key(item.key), names.key_of(pointer), pointer.offset, pointer.size)


def check_tree(root: Path, crawl: str, sample: int = 20) -> TreeCheck:
    """Reads every item of the index of ``crawl`` below ``root``; needs no network.

    The reader checks the order within blocks and from block to block. Its faults end the reading and are returned with
    the items before them. Raises ``EnvironmentFault`` if there is no index.
    """
    metadata = read_metadata(index_folder(root, crawl))
    if metadata is None:
        raise EnvironmentFault(
            f"there is no URL index of {crawl} in {root}", f"Build it: cc-pipeline index build --btree --crawl {crawl}"
        )
    chance = random.Random(0)
    sampled_records: list[IndexedRecord] = []
    faults: list[DataFault] = []
    items = 0
    is_complete = False
    last = b""
    try:
        locator = open_url_index(root, crawl)
        assert locator is not None
        for item in locator.tree.scan(KeyRange(b"", None)):
            items += 1
            if item.key < last:
                faults.append(
                    DataFault(
                        DataKind.MALFORMED,
                        TREE,
                        None,
                        f"item {items:,} is not sorted: it belongs before item {items - 1:,}",
                    )
                )
            last = item.key
            try:
                record = read_item(item, locator.names)
            except DataFault as fault:
                faults.append(fault)
                continue
            # reservoir sampling: each item has the same chance, however many follow
            if len(sampled_records) < sample:
                sampled_records.append(record)
            elif (place := chance.randrange(items)) < sample:
                sampled_records[place] = record
            if items % _REPORT_EVERY == 0:
                progress.report("verify", items, metadata.items, crawl)
            if len(faults) >= _SHOWN_FAULTS:
                break
        else:
            is_complete = True
    except DataFault as fault:
        faults.append(fault)
    if not faults and items != metadata.items:
        faults.append(
            DataFault(DataKind.MISMATCH, TREE, None, f"has {items:,} items, but {metadata.items:,} were written")
        )
    return TreeCheck(items, tuple(sampled_records), tuple(faults), is_complete)


def check_records(crawl: str, records: Sequence[IndexedRecord], transport: Transport) -> Iterator[DataFault]:
    """Reads ``records`` at the source and yields a fault for each that is not of its URL. Raises
    ``EnvironmentFault``."""
    ranges = (ByteRange(record.file, record.offset, record.length, None, record) for record in records)
    for checked_count, outcome in enumerate(transport.read_many(ranges), 1):
        progress.report("records", checked_count, len(records))
        record = outcome.tag
        assert isinstance(record, IndexedRecord)
        if isinstance(outcome, RangeFault):
            yield DataFault(
                outcome.kind, record.file, record.offset, f"{record.url} cannot be read ({outcome.kind.value})"
            )
            continue
        kind = "arc" if ".arc.gz" in record.file else "warc"
        expected = ExpectedRecord(crawl, kind, record.file, record.offset, record.length, record.url, None, None)
        verdict = verify_record(outcome.data, expected)
        if verdict.reason is not None:
            yield DataFault(
                DataKind.MISMATCH, record.file, record.offset, f"{record.url}: {verdict.reason} ({verdict.detail})"
            )
