"""Which columnar index a crawl's subset has, as a digest of what its footers name: files, row groups, and where they
lie. It is the same whoever harvested it, from which mirror, and when; harvesting another subset does not change it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import pyarrow as pa

from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.extraction.slice import GONE
from cc_pipeline.lake.contents import NOTHING, content_versions, together
from cc_pipeline.lake.lake import Lake

#: What identifies a file's bytes. Bounds are not among them: a repair reads them later, and answers stay as they are.
_ROW_GROUP: Final = (
    "subset", "path", "row_group", "rows", "total_bytes", "compressed_bytes", "data_offset", "data_end",
    "fetch_time_min", "fetch_time_max",
)  # fmt: skip
#: How many files there are, and how many of them were read: what lacks is no part of an answer.
_COVERAGE: Final = ("subset", "expected", "harvested")


def columnar_versions(lake: Lake, crawls: Collection[str]) -> dict[tuple[str, str], str]:
    """The version of each (crawl, subset) that was harvested. One reading of the log, and no rows.

    Subsets that no harvest asked for are not in it; one that the path list names no file of is, once it was asked for.
    Homes of layouts up to 3 have none. Raises ``EnvironmentFault`` when the lake cannot be read.
    """
    names = {version_name(crawl, subset): (crawl, subset) for crawl in crawls for subset in SUBSETS}
    return {names[name]: digest for name, digest in _noted(lake, names).items()}


def versions_of_rows(lake: Lake, crawl: str) -> dict[str, str]:
    """The same digests by subset, from the rows that the lake has of ``crawl``. Raises ``EnvironmentFault``."""
    row_groups = lake.read("row_groups", {"crawl": crawl}, _ROW_GROUP)
    return versions_of(row_groups, lake.read("coverage", {"crawl": crawl}, _COVERAGE))


def versions_of(row_groups: pa.Table, coverage: pa.Table) -> dict[str, str]:
    """The same digests by subset, from the rows of a crawl in these two tables, in any order."""
    groups = content_versions(row_groups.select(_ROW_GROUP).to_batches(), "subset", ())
    covered = content_versions(coverage.select(_COVERAGE).to_batches(), "subset", ())
    return {subset: together([digest, groups.get(subset, NOTHING)]) for subset, digest in covered.items()}


def version_name(crawl: str, subset: str) -> str:
    """The name under which a version is committed, with the rows of ``row_groups``."""
    return f"index:{crawl}:{subset}"


def footers_made_from(lake: Lake, crawl: str, subsets: Collection[str]) -> dict[str, str]:
    """Of which footers the rows of each subset were made, where that was written down."""
    names = {_footers_name(crawl, subset): subset for subset in subsets}
    return {names[name]: digest for name, digest in _noted(lake, names).items()}


def notes_beside(crawl: str, versions: Mapping[str, str], footers: Mapping[str, str]) -> dict[str, str]:
    """The digests to commit with the rows of ``row_groups``: ``versions`` of all subsets that the crawl has there then,
    ``footers`` of those that were made now. Subsets that are in neither are taken as never harvested."""
    noted = {version_name(crawl, subset): versions.get(subset, GONE) for subset in {*SUBSETS, *versions}}
    made_now = {*SUBSETS, *footers} - (versions.keys() - footers.keys())
    return noted | {_footers_name(crawl, subset): footers.get(subset, GONE) for subset in made_now}


def _footers_name(crawl: str, subset: str) -> str:
    return f"footers:{crawl}:{subset}"


def _noted(lake: Lake, names: Collection[str]) -> dict[str, str]:
    found = lake.digests("row_groups", list(names))
    return {name: digest for name, digest in found.items() if digest is not None and digest != GONE}
