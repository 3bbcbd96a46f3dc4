"""What a look-up would read, said from the catalog alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.btree_keys import KeyRange
from cc_pipeline.commoncrawl.index_schema import INDEX_COLUMN_NAMES
from cc_pipeline.index.catalog.catalog import Catalog
from cc_pipeline.index.catalog.schemas import KEY_COLUMN
from cc_pipeline.index.locator import LookupPrice

#: Rows in a page as Common Crawl's writer cuts them, and pages a small target touches.
_PAGE_ROWS: Final = 20_000
_LIKELY_PAGES: Final = 2


def plan_lookup(
    catalog: Catalog,
    crawl: str,
    subsets: Sequence[str],
    ranges: Sequence[KeyRange],
    *,
    columns: int = len(INDEX_COLUMN_NAMES),
) -> LookupPrice:
    """Files, row groups, requests and bytes of looking ``ranges`` up, without reading anything of the index.

    Upper bounds: every row group whole and every one of ``columns`` columns by itself, its page index before it.
    ``likely_bytes`` takes two pages of a row group where there is a page index. ``unbounded_row_groups`` counts those
    without key statistics. Notes name what is missing.
    """
    groups = catalog.row_groups_for(crawl, subsets, ranges)
    count = len(groups)
    indexed = pc.is_valid(groups["key_offset_index_offset"])
    with_index = pc.sum(indexed).as_py() or 0
    index_bytes = columns * _total(groups["key_offset_index_length"]) + _total(groups["key_column_index_length"])
    size = _total(groups["compressed_bytes"]) + index_bytes
    pages = pc.min_element_wise(
        groups["compressed_bytes"],
        pc.divide(
            pc.multiply(groups["compressed_bytes"], _LIKELY_PAGES * _PAGE_ROWS), pc.max_element_wise(groups["rows"], 1)
        ),
    )
    likely = _total(pc.if_else(indexed, pages, groups["compressed_bytes"])) + index_bytes
    requests = count * columns + with_index * (columns + 1)
    files = pc.count_distinct(groups["path"]).as_py() or 0
    unbounded = pc.sum(pc.is_null(groups[f"{KEY_COLUMN}_source"])).as_py() or 0
    notes = _notes(catalog, crawl, subsets, unbounded)
    return LookupPrice(files, count, requests, size, notes, likely, unbounded_row_groups=unbounded)


def unbounded_note(row_groups: int) -> str:
    """A note for a person about row groups that must be read because the catalog has no bounds of their keys."""
    return f"{row_groups} row groups have no key statistics, so they may match and are read. Repair them once"


def _notes(catalog: Catalog, crawl: str, subsets: Sequence[str], unbounded: int) -> tuple[str, ...]:
    notes = []
    rows = [row for row in catalog.coverage(crawl).to_pylist() if row["subset"] in subsets]
    if not rows:
        notes.append(f"the catalog knows nothing about {crawl} {', '.join(subsets)}")
    for row in rows:
        if row["reason"]:
            notes.append(f"{crawl} {row['subset']}: {row['reason']}")
        lost = row["failed"] + row["missing"]
        if lost:
            notes.append(f"{lost} of {row['expected']} index files of {crawl} {row['subset']} are not in the catalog")
    if unbounded:
        notes.append(unbounded_note(unbounded))
    return tuple(notes)


def _total(values: pa.ChunkedArray) -> int:
    return int(pc.sum(values).as_py() or 0)
