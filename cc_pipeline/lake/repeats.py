"""Finds captures that a slice has more than once in a table. Each table about captures has each capture once: a slice
with a repeated one would be counted and shown twice."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.lake import row_counts
from cc_pipeline.lake.digests.digest import hash_texts, mix_bits
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import PAGE_TABLES, Slice, group_targets_by_crawl
from cc_pipeline.lake.streaming import list_crawls, stream_rows

#: The tables about captures, in the order in which they are made.
PER_CAPTURE: Final = ("captures", "records", *PAGE_TABLES)
#: Of tables with several rows a page, the column that numbers them: the first of each stands for its page.
_NUMBER_COLUMNS: Final = {"page_links": "link_index", "feed_items": "item_index"}


def find_slices_with_repeats(lake: Lake, table: str, slices: Collection[Slice] | None = None) -> set[Slice]:
    """The slices of ``table`` (default: of all) that have a capture more than once. Pages of files that were read whole
    are passed over.

    Memory grows by 12 bytes a capture of one crawl: locations are compared as numbers of 64 bits. Raises
    ``EnvironmentFault`` when the lake cannot be read.
    """
    repeating_slices: set[Slice] = set()
    if slices is None:
        conditions: Iterator[dict[str, str | list[str]]] = ({"crawl": crawl} for crawl in list_crawls(lake.pin(table)))
    else:
        conditions = ({"crawl": crawl, "target": targets} for crawl, targets in group_targets_by_crawl(slices).items())
    for where in conditions:
        repeating_slices |= {
            Slice(str(where["crawl"]), target) for target in _find_repeating_targets(lake, table, where)
        }
    return repeating_slices


def find_changed_slices(lake: Lake, table: str, old_version: int, commit_id: str) -> set[Slice] | None:
    """The slices of a table whose rows were committed after the version ``old_version``, which was the commit
    ``commit_id``; ``None`` if that is not known, also because the log is another. Raises ``EnvironmentFault``."""
    new_version = lake.version(table)
    if old_version > new_version or lake.commit_id(table, old_version) != commit_id:
        return None
    keys = row_counts.find_changed_keys(lake, table, old_version, new_version)
    return None if keys is None else {Slice(*key) for key in keys}


def _find_repeating_targets(lake: Lake, table: str, where: dict[str, str | list[str]]) -> set[str]:
    """The slugs of slices that have a location twice; ``where`` selects rows of one crawl."""
    slugs: dict[str, int] = {}
    targets, places = [np.zeros(0, np.int32)], [np.zeros(0, np.uint64)]
    for batch in _read_captures(lake, table, where):
        names = pc.dictionary_encode(batch.column("target"))
        codes = np.array([slugs.setdefault(slug, len(slugs)) for slug in names.dictionary.to_pylist()], np.int32)
        targets.append(codes[names.indices.to_numpy(zero_copy_only=False)])
        offsets = batch.column("warc_record_offset").to_numpy(zero_copy_only=False).view(np.uint64)
        places.append(mix_bits(hash_texts(batch.column("warc_filename")) ^ mix_bits(offsets)))
    target, place = np.concatenate(targets), np.concatenate(places)
    order = np.lexsort((place, target))
    target, place = target[order], place[order]
    is_repeated = (target[1:] == target[:-1]) & (place[1:] == place[:-1])
    repeated_codes = {*np.unique(target[1:][is_repeated]).tolist()}
    return {slug for slug, code in slugs.items() if code in repeated_codes}


def _read_captures(lake: Lake, table: str, where: dict[str, str | list[str]]) -> Iterator[pa.RecordBatch]:
    """A row for each capture of a table, with its target and location."""
    number, kind = _NUMBER_COLUMNS.get(table), "source_kind" if table in PAGE_TABLES else None
    columns = ["target", "warc_filename", "warc_record_offset", *filter(None, (number, kind))]
    for batch in stream_rows(lake, table, where, columns):
        is_capture = pc.and_(
            pc.is_valid(batch.column("warc_filename")), pc.is_valid(batch.column("warc_record_offset"))
        )
        if number is not None:
            is_capture = pc.and_(is_capture, pc.equal(batch.column(number), 0))
        if kind is not None:
            is_capture = pc.and_(is_capture, pc.equal(batch.column(kind), "records"))
        yield batch.filter(is_capture)
