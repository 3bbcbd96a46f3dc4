"""The row-group catalog of a lake: the files of its table ``row_groups``, read directly.

The version of a crawl's index, which lookups compare, comes from the same rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.index.catalog.catalog import Catalog
from cc_pipeline.index.catalog.rows import read_view
from cc_pipeline.index.gaps import IndexGaps, find_gaps
from cc_pipeline.lake.content_digests import NOTHING, combine_digests, compute_content_digests
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import EMPTIED_DIGEST, HARVEST, Slice
from cc_pipeline.lake.streaming import list_crawl_files, list_crawls
from cc_pipeline.workspace.workspace import Workspace

TABLE: Final = "row_groups"
#: The columns that identify a file's bytes. Bounds are not among them: a repair adds them later and changes no answer.
_ROW_GROUP: Final = (
    "subset", "path", "row_group", "rows", "total_bytes", "compressed_bytes", "data_offset", "data_end",
    "fetch_time_min", "fetch_time_max",
)  # fmt: skip
#: The number of files, and of those that were read: captures of unread files are in no answer.
_COVERAGE: Final = ("subset", "expected", "harvested")


def open_catalog(lake: Lake) -> Catalog:
    """Opens the catalog of all crawls that any home harvested into ``lake``. Raises ``EnvironmentFault``."""
    pinned = lake.pin(TABLE)
    files = {crawl: list_crawl_files(pinned, crawl) for crawl in list_crawls(pinned)}
    paths = {crawl: [address.removeprefix("s3://") for address in addresses] for crawl, addresses in files.items()}
    return Catalog(paths, lake.file_system())


def read_catalog_table(lake: Lake, table: str, crawl: str) -> pa.Table:
    """Returns ``index_files``, ``row_groups``, ``column_chunks`` or ``coverage`` of a crawl as users see it. Raises
    ``EnvironmentFault`` if the lake cannot be read."""
    [view] = read_catalog_tables(lake, [table], crawl)
    return view


def read_catalog_tables(lake: Lake, tables: Sequence[str], crawl: str) -> list[pa.Table]:
    """Does the same as :func:`read_catalog_table` for several tables, from one version of the crawl's rows."""
    stored = lake.read(TABLE, {"crawl": crawl})
    return [read_view(table, stored) for table in tables]


@dataclass(frozen=True, slots=True)
class HarvestedSubset:
    """A harvested subset; ``expected`` are the files that its path list names."""

    crawl: str
    subset: str
    expected: int


def read_subsets(lake: Lake) -> list[HarvestedSubset]:
    """Returns the harvested subsets of all crawls. Raises ``EnvironmentFault`` if the lake cannot be read."""
    return list_subsets(lake.read(TABLE, {}, ["crawl", "subset", "coverage"]))


def list_subsets(stored: pa.Table) -> list[HarvestedSubset]:
    """Returns the harvested subsets that stored rows have."""
    rows = stored.filter(pc.is_valid(stored["coverage"])).select(["crawl", "subset", "coverage"])
    return [HarvestedSubset(row["crawl"], row["subset"], row["coverage"]["expected"]) for row in rows.to_pylist()]


def columnar_versions(lake: Lake, crawls: Collection[str]) -> dict[tuple[str, str], str]:
    """Returns the version of each harvested (crawl, subset). Reads the log once, and no rows.

    Subsets that no harvest requested are left out. A requested subset without files in the path list is included.
    Raises ``EnvironmentFault`` if the lake cannot be read.
    """
    names = {version_name(crawl, subset): (crawl, subset) for crawl in crawls for subset in SUBSETS}
    return {names[name]: digest for name, digest in _committed_digests(lake, names).items()}


def versions_of(stored: pa.Table) -> dict[str, str]:
    """Computes the same digests by subset from the stored rows of a crawl, in any order."""
    row_groups, coverage = (read_view(table, stored) for table in (TABLE, "coverage"))
    groups = compute_content_digests(row_groups.select(_ROW_GROUP).to_batches(), "subset", ())
    covered = compute_content_digests(coverage.select(_COVERAGE).to_batches(), "subset", ())
    return {subset: combine_digests([digest, groups.get(subset, NOTHING)]) for subset, digest in covered.items()}


def version_name(crawl: str, subset: str) -> str:
    """Returns the name under which a version is committed with the rows of ``row_groups``."""
    return f"index:{crawl}:{subset}"


def footers_made_from(lake: Lake, crawl: str, subsets: Collection[str]) -> dict[str, str]:
    """Returns the digest of the footers from which the rows of each subset were made, if it was stored."""
    names = {_footers_name(crawl, subset): subset for subset in subsets}
    return {names[name]: digest for name, digest in _committed_digests(lake, names).items()}


def digests_to_commit(crawl: str, versions: Mapping[str, str], footers: Mapping[str, str]) -> dict[str, str]:
    """Returns the digests to commit with the rows of ``row_groups``: ``versions`` of all subsets that the crawl will
    have, and ``footers`` of those that were replaced. Subsets in neither count as never harvested."""
    version_digests = {
        version_name(crawl, subset): versions.get(subset, EMPTIED_DIGEST) for subset in {*SUBSETS, *versions}
    }
    replaced_subsets = {*SUBSETS, *footers} - (versions.keys() - footers.keys())
    return version_digests | {
        _footers_name(crawl, subset): footers.get(subset, EMPTIED_DIGEST) for subset in replaced_subsets
    }


def harvest_digest(footers: Mapping[str, str]) -> str:
    """Returns the input digest of a crawl: of the footers of each subset."""
    return HARVEST.digest(footers=dict(sorted(footers.items())))


def is_harvest_current(lake: Lake, crawl: str) -> bool:
    """Whether the crawl was harvested, and no refetch was requested since."""
    input_version = HARVEST.read_input_digests(lake, [Slice(crawl)])[Slice(crawl)]
    return input_version == harvest_digest(footers_made_from(lake, crawl, SUBSETS))


def _footers_name(crawl: str, subset: str) -> str:
    return f"footers:{crawl}:{subset}"


def _committed_digests(lake: Lake, names: Collection[str]) -> dict[str, str]:
    digests = lake.digests(TABLE, list(names))
    return {name: digest for name, digest in digests.items() if digest is not None and digest != EMPTIED_DIGEST}


def catalog_gaps(workspace: Workspace, crawls: Sequence[str], subsets: Sequence[str] | None = None) -> list[IndexGaps]:
    """Returns the gaps that the catalog has in the index of each of ``crawls``, in ``subsets`` (default: the
    settings')."""
    with open_catalog(workspace.lake) as catalog:
        selected_subsets = workspace.settings.subsets if subsets is None else subsets
        gaps_by_crawl = [find_gaps(catalog, crawl, selected_subsets) for crawl in crawls]
    return [gaps for gaps in gaps_by_crawl if gaps is not None]
