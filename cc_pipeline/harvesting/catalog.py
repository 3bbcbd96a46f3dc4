"""The row-group catalog of a lake: the files of its table ``row_groups``, asked as they are.

The version of a crawl's index, by which look-ups tell whether it has changed, comes from the same rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.duck import connect
from cc_pipeline.index.catalog.catalog import Catalog
from cc_pipeline.index.catalog.rows import show
from cc_pipeline.index.gaps import IndexGaps, find_gaps
from cc_pipeline.lake.digests.digest import NOTHING, content_versions, together
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import GONE, HARVEST, Slice
from cc_pipeline.lake.streaming import crawls_of, files_of_crawl
from cc_pipeline.workspace.workspace import Workspace

TABLE: Final = "row_groups"
#: What identifies a file's bytes. Bounds are not among them: a repair reads them later, and answers stay as they are.
_ROW_GROUP: Final = (
    "subset", "path", "row_group", "rows", "total_bytes", "compressed_bytes", "data_offset", "data_end",
    "fetch_time_min", "fetch_time_max",
)  # fmt: skip
#: How many files there are, and how many of them were read: what lacks is no part of an answer.
_COVERAGE: Final = ("subset", "expected", "harvested")

#: What the ``reason`` of coverage begins with where rows came from a file, whose sha256 follows.
IMPORTED: Final = "imported:"


def open_catalog(lake: Lake) -> Catalog:
    """The catalog of all crawls that were harvested into ``lake``, by any home. Raises ``EnvironmentFault``."""
    pinned = lake.pin(TABLE)
    files = {crawl: files_of_crawl(pinned, crawl) for crawl in crawls_of(pinned)}
    paths = {crawl: [address.removeprefix("s3://") for address in addresses] for crawl, addresses in files.items()}
    return Catalog(paths, lake.file_system())


def read_catalog_table(lake: Lake, table: str, crawl: str) -> pa.Table:
    """``index_files``, ``row_groups``, ``column_chunks`` or ``coverage`` of a crawl as people see it. Raises
    ``EnvironmentFault`` when the lake cannot be read."""
    with connect() as connection:
        return show(connection, table, lake.read(TABLE, {"crawl": crawl}))


@dataclass(frozen=True, slots=True)
class HarvestedSubset:
    """A subset that was harvested or imported; ``expected`` are the files that its path list names."""

    crawl: str
    subset: str
    expected: int


def read_subsets(lake: Lake, crawl: str | None = None) -> list[HarvestedSubset]:
    """The harvested subsets of a crawl, or of all crawls. Raises ``EnvironmentFault`` when the lake cannot be read."""
    where = {} if crawl is None else {"crawl": crawl}
    rows = lake.read(TABLE, where, ["crawl", "subset", "coverage"])
    rows = rows.filter(pc.is_valid(rows["coverage"]))
    return [HarvestedSubset(row["crawl"], row["subset"], row["coverage"]["expected"]) for row in rows.to_pylist()]


def columnar_versions(lake: Lake, crawls: Collection[str]) -> dict[tuple[str, str], str]:
    """The version of each (crawl, subset) that was harvested. One reading of the log, and no rows.

    Subsets that no harvest asked for are not in it; one that the path list names no file of is, once it was asked for.
    Raises ``EnvironmentFault`` when the lake cannot be read.
    """
    names = {version_name(crawl, subset): (crawl, subset) for crawl in crawls for subset in SUBSETS}
    return {names[name]: digest for name, digest in _noted(lake, names).items()}


def versions_of(stored: pa.Table) -> dict[str, str]:
    """The same digests by subset, from the stored rows of a crawl, in any order."""
    with connect() as connection:
        row_groups, coverage = (show(connection, table, stored) for table in (TABLE, "coverage"))
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


def imported_subsets(lake: Lake, crawl: str, subsets: Collection[str]) -> set[str]:
    """Those of ``subsets`` whose rows were imported and not harvested."""
    names = {_imported_name(crawl, subset): subset for subset in subsets}
    return {names[name] for name in _noted(lake, names)}


def notes_beside(
    crawl: str, versions: Mapping[str, str], footers: Mapping[str, str], *, imported: bool = False
) -> dict[str, str]:
    """The digests to commit with the rows of ``row_groups``: ``versions`` of all subsets that the crawl has there then,
    ``footers`` of those that were made now, or were ``imported``: then digests of the file. Subsets that are in neither
    are taken as never harvested."""
    version_digests = {version_name(crawl, subset): versions.get(subset, GONE) for subset in {*SUBSETS, *versions}}
    replaced_subsets = {*SUBSETS, *footers} - (versions.keys() - footers.keys())
    import_digests = {
        _imported_name(crawl, subset): footers.get(subset, GONE) if imported else GONE for subset in replaced_subsets
    }
    return (
        version_digests
        | import_digests
        | {_footers_name(crawl, subset): footers.get(subset, GONE) for subset in replaced_subsets}
    )


def harvest_digest(footers: Mapping[str, str]) -> str:
    """The input digest of a crawl: of all its subsets, of which footers or which file they were made."""
    return HARVEST.digest(footers=dict(sorted(footers.items())))


def is_whole(lake: Lake, crawl: str) -> bool:
    """Whether the crawl was harvested, and nobody had it made again since."""
    input_version = HARVEST.made_from(lake, [Slice(crawl)])[Slice(crawl)]
    return input_version == harvest_digest(footers_made_from(lake, crawl, SUBSETS))


def _imported_name(crawl: str, subset: str) -> str:
    return f"imported:{crawl}:{subset}"


def _footers_name(crawl: str, subset: str) -> str:
    return f"footers:{crawl}:{subset}"


def _noted(lake: Lake, names: Collection[str]) -> dict[str, str]:
    digests = lake.digests(TABLE, list(names))
    return {name: digest for name, digest in digests.items() if digest is not None and digest != GONE}


def catalog_gaps(workspace: Workspace, crawls: Sequence[str], subsets: Sequence[str] | None = None) -> list[IndexGaps]:
    """The holes in the index of each of ``crawls``, in the ``subsets`` (default: the settings'), as the catalog knows
    them."""
    with open_catalog(workspace.lake) as catalog:
        selected_subsets = workspace.settings.subsets if subsets is None else subsets
        gaps_by_crawl = [find_gaps(catalog, crawl, selected_subsets) for crawl in crawls]
    return [gaps for gaps in gaps_by_crawl if gaps is not None]
