"""Finds and opens the indexes of a crawl, in a home and at the source, for each kind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, index_is_built
from cc_pipeline.commoncrawl.key_ranges import KeyRange
from cc_pipeline.commoncrawl.paths import cluster_key
from cc_pipeline.index.btree.locator import CRAWL_2012, URL_INDEX_2012, BTreeLocator
from cc_pipeline.index.catalog.catalog import Catalog
from cc_pipeline.index.catalog.schemas import KEY_COLUMN
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline.index.gaps import unharvested
from cc_pipeline.index.locator import Locator
from cc_pipeline.index.locators import BTREE, PARQUET, ZIPNUM
from cc_pipeline.index.parquet.fetch import PageIndexes
from cc_pipeline.index.parquet.finder import CatalogFinder
from cc_pipeline.index.parquet.locator import ParquetLocator
from cc_pipeline.index.zipnum.cluster import Mark
from cc_pipeline.index.zipnum.cluster_cache import OpenCluster
from cc_pipeline.index.zipnum.locator import ZipNumLocator
from cc_pipeline.transport.faults import ENVIRONMENT_KINDS, FaultKind, RangeFault

if TYPE_CHECKING:
    from cc_pipeline.index.lookup import IndexSources


@dataclass(frozen=True, slots=True)
class OpenIndex:
    """An existing index of a crawl. ``open`` returns its locator. ``version`` identifies it if only a request can
    tell."""

    open: Callable[[], Locator]
    version: str = ""


@dataclass
class IndexSearch:
    """The state of a search for the indexes of one crawl. ``via`` is the requested kind. ``closing`` closes opened
    objects when the lookup ends. ``open_indexes`` are the indexes found so far, by kind. ``catalog`` is open if the
    columnar index may be used, and ``missing_subsets`` are subsets that it was not harvested for (empty if none was
    harvested). ``notes`` are for the user."""

    crawl: str
    subsets: tuple[str, ...]
    sources: IndexSources
    via: str
    closing: ExitStack
    open_indexes: dict[str, OpenIndex] = field(default_factory=dict)
    catalog: Catalog | None = None
    missing_subsets: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    @property
    def available(self) -> dict[str, Callable[[], Locator]]:
        """The functions that open the locators, by kind."""
        return {name: index.open for name, index in self.open_indexes.items()}

    @cached_property
    def has_tree(self) -> bool:
        """Whether the B-tree of 2012 is to be used, and the source has it."""
        is_needed = self.crawl == CRAWL_2012 and self.via != ZIPNUM
        return is_needed and self.sources.transport.exists(URL_INDEX_2012)


def find_columnar(sought: IndexSearch) -> OpenIndex | None:
    """Finds the columnar index, if all requested subsets were harvested."""
    sources, crawl, subsets = sought.sources, sought.crawl, sought.subsets
    if crawl in ARC_CRAWLS or sources.catalog is None:
        return None
    catalog = sought.catalog = sought.closing.enter_context(sources.catalog())
    covered = catalog.coverage(crawl).to_pylist()
    sought.missing_subsets = unharvested(catalog, crawl, subsets) if covered else ()
    requested_rows = [row for row in covered if row["subset"] in subsets]
    if sought.missing_subsets or not any(row["harvested"] or not row["expected"] for row in requested_rows):
        return None
    transport = sources.transport
    footers = FooterStore(sources.footers) if sources.footers else None
    finder = CatalogFinder(catalog, transport, footers)
    indexes = PageIndexes(sources.cache)
    return OpenIndex(
        lambda: ParquetLocator(transport, finder, columns=sources.columns, indexes=indexes),
    )


def find_zipnum(sought: IndexSearch) -> OpenIndex | None:
    """Finds ZipNum, if the source has it. In the ARC years it is skipped if a B-tree was requested."""
    sources, crawl = sought.sources, sought.crawl
    if crawl in ARC_CRAWLS:
        open_cluster = None if sought.via == BTREE else _cluster_of_arc_years(sought)
    else:
        needed = PARQUET not in sought.open_indexes or sought.via == ZIPNUM
        open_cluster = None if index_is_built(crawl) else _find_cluster(crawl, sources, needed=needed)
    if open_cluster is None:
        return None
    sought.closing.callback(sources.clusters.keep)
    return OpenIndex(
        lambda: ZipNumLocator(sources.transport, crawl, open_cluster.cluster, sources.clusters.members),
        open_cluster.version,
    )


def find_btree(sought: IndexSearch) -> OpenIndex | None:
    """Finds the B-tree of 2012."""
    return OpenIndex(lambda: BTreeLocator(sought.sources.transport)) if sought.has_tree else None


def _find_cluster(crawl: str, sources: IndexSources, *, needed: bool) -> OpenCluster | None:
    """Opens the crawl's ``cluster.idx``. If the source does not answer, that is an error only if it is
    ``needed``."""
    try:
        return sources.clusters.find(sources.transport, crawl, lambda: _marks(sources.catalog))
    except RangeFault as fault:
        if needed or fault.kind not in {*ENVIRONMENT_KINDS, FaultKind.WHOLE_OBJECT}:
            raise
        return None


def _cluster_of_arc_years(sought: IndexSearch) -> OpenCluster | None:
    """Opens the same for a crawl whose tree alone would look complete. It counts as absent only after a 404 or, if the
    source gives the tree, after a refusal of this object: buckets without listing answer 403 for missing
    objects."""
    crawl = sought.crawl
    # before the cluster is asked for: a refusal keeps all objects of the source from being asked for
    has_tree = sought.has_tree
    try:
        return _find_cluster(crawl, sought.sources, needed=True)
    except RangeFault as fault:
        if fault.kind is not FaultKind.FORBIDDEN or not has_tree:
            raise
    sought.notes.append(
        f"the source refuses {cluster_key(crawl)}, as it does for missing files: only the B-tree index is searched"
    )
    return None


def _marks(opened: Callable[[], Catalog] | None) -> list[Mark]:
    """Returns key positions in the newest crawl of the catalog: the first key of each row group, and the share of rows
    before it."""
    if opened is None:
        return []
    with opened() as catalog:
        for crawl in reversed([name for name in catalog.crawls() if not index_is_built(name)]):
            groups = catalog.row_groups_for(crawl, None, [KeyRange(b"", None)])
            groups = groups.filter(pc.is_valid(groups[f"{KEY_COLUMN}_min"])).sort_by(f"{KEY_COLUMN}_min")
            if groups.num_rows:
                rows_through = pc.cumulative_sum(groups["rows"])
                shares_before = pc.divide(
                    pc.cast(pc.subtract(rows_through, groups["rows"]), pa.float64()), rows_through[-1]
                )
                return list(zip(groups[f"{KEY_COLUMN}_min"].to_pylist(), shares_before.to_pylist(), strict=True))
    return []
