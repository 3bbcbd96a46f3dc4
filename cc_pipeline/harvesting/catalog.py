"""The row-group catalog of a lake: the files of its table ``row_groups``, read directly.

The version of a crawl's index, which lookups compare, comes from the same rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.index.catalog.catalog import Catalog
from cc_pipeline.index.catalog.rows import read_view
from cc_pipeline.index.gaps import IndexGaps, find_gaps
from cc_pipeline.lake.content_digests import NOTHING, combine_digests, compute_content_digests
from cc_pipeline.lake.lake import GENERATION, Lake
from cc_pipeline.lake.slice import HARVEST, Slice
from cc_pipeline.lake.slices import current_generations, read_slice_rows
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
    generations = {*current_generations(lake, TABLE).to_pylist()}
    paths: dict[str, list[str]] = {}
    for file in lake.pin(TABLE).stored_files():
        # a file has the rows of one harvest
        if file.bounds[GENERATION.name][0] in generations:
            paths.setdefault(file.crawl, []).append(f"{lake.address(TABLE)}/{file.path}".removeprefix("s3://"))
    return Catalog(paths, lake.file_system())


def read_catalog_table(lake: Lake, table: str, crawl: str) -> pa.Table:
    """Returns ``index_files``, ``row_groups`` or ``coverage`` of a crawl as users see it. Raises
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
    """Returns the version of each harvested (crawl, subset). Reads no rows of the catalog.

    Subsets that no harvest requested are left out. A requested subset without files in the path list is included.
    Raises ``EnvironmentFault`` if the lake cannot be read.
    """
    rows = read_slice_rows(lake, [Slice(crawl) for crawl in crawls], (HARVEST,))
    return {
        (slice_.crawl, subset): version
        for (slice_, _), row in rows.items()
        for subset, version in row.note.get("versions", {}).items()
    }


def versions_of(stored: pa.Table) -> dict[str, str]:
    """Computes the same digests by subset from the stored rows of a crawl, in any order."""
    row_groups, coverage = (read_view(table, stored) for table in (TABLE, "coverage"))
    groups = compute_content_digests(row_groups.select(_ROW_GROUP).to_batches(), "subset", ())
    covered = compute_content_digests(coverage.select(_COVERAGE).to_batches(), "subset", ())
    return {subset: combine_digests([digest, groups.get(subset, NOTHING)]) for subset, digest in covered.items()}


@dataclass(frozen=True, slots=True)
class Harvest:
    """The state of a crawl's catalog: whether it is ``current`` (a repair makes it due), and the digest of the footers
    from which the rows of each subset were made."""

    current: bool
    footers: Mapping[str, str]


def read_harvest(lake: Lake, crawl: str) -> Harvest:
    """Returns the state of a crawl's catalog. Raises ``EnvironmentFault`` if the lake cannot be read."""
    row = read_slice_rows(lake, [Slice(crawl)], (HARVEST,)).get((Slice(crawl), HARVEST.label))
    if row is None or not row.tables:
        return Harvest(False, {})
    return Harvest(bool(row.input), row.note["footers"])


def catalog_gaps(workspace: Workspace, crawls: Sequence[str], subsets: Sequence[str] | None = None) -> list[IndexGaps]:
    """Returns the gaps that the catalog has in the index of each of ``crawls``, in ``subsets`` (default: the
    settings')."""
    with open_catalog(workspace.lake) as catalog:
        selected_subsets = workspace.settings.subsets if subsets is None else subsets
        gaps_by_crawl = [find_gaps(catalog, crawl, selected_subsets) for crawl in crawls]
    return [gaps for gaps in gaps_by_crawl if gaps is not None]
