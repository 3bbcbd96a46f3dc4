"""Gaps in a crawl's columnar index: files of harvested subsets that the catalog does not have, and how many are
allowed. Subsets that were never harvested are no gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cc_pipeline.advice import Advice, advise, option
from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, SUBSETS, index_is_built
from cc_pipeline.errors import EnvironmentFault, IndexIncomplete
from cc_pipeline.index.catalog.schemas import DECODED
from cc_pipeline.index.locators import PARQUET

if TYPE_CHECKING:
    from cc_pipeline.index.catalog.catalog import Catalog

#: Unread files that are stored by name, and those that a message names.
_MAX_KEPT: Final = 20
_MAX_SHOWN: Final = 5
_INDEX_FILES: Final = "index files"


@dataclass(frozen=True, slots=True)
class IndexGaps:
    """Index gaps: ``unread`` of the ``expected`` index files of the requested subsets of ``crawl`` are not in the
    catalog.

    ``by_subset`` has (subset, unread, expected) of each incomplete subset. ``files`` has the path and the reason of at
    most 20 files that a harvest could not read; files that no harvest has requested yet are not named. ``unit`` is the
    unit: a lookup may count members of a ZipNum index."""

    crawl: str
    expected: int
    unread: int
    by_subset: tuple[tuple[str, int, int], ...]
    files: tuple[tuple[str, str], ...]
    unit: str = _INDEX_FILES

    @property
    def summary(self) -> str:
        """The number of unread files by subset, in words."""
        parts = (
            f"{unread:,} of {expected:,} {self.unit} of {self.crawl} {subset}"
            for subset, unread, expected in self.by_subset
        )
        return " and ".join(parts)

    @property
    def file_summary(self) -> str:
        """The first few files with the reason of each, in words."""
        descriptions = [f"{path} ({reason})" for path, reason in self.files[:_MAX_SHOWN]]
        unshown_count = self.unread - len(descriptions)
        remainder = (
            [f"{unshown_count:,} more" if descriptions else f"{unshown_count:,} not harvested yet"]
            if unshown_count
            else []
        )
        return "; ".join([*descriptions, *remainder])

    @property
    def note(self) -> str:
        """A sentence for the user about the captures that an answer with these gaps misses."""
        return f"{self.summary} could not be read, so their captures are not in this answer: {self.file_summary}"

    def allowed(self, max_share: float) -> bool:
        """Whether no subset misses more than ``max_share`` of its files (0 to 1), and none misses all."""
        return all(unread / expected <= max_share and unread < expected for _, unread, expected in self.by_subset)


def find_gaps(catalog: Catalog, crawl: str, subsets: Sequence[str]) -> IndexGaps | None:
    """Returns the gaps of ``crawl`` in those ``subsets`` that were harvested; ``None`` if all their files were read."""
    rows = [row for row in catalog.coverage(crawl).to_pylist() if row["subset"] in subsets]
    incomplete = tuple(
        (row["subset"], row["failed"] + row["missing"], row["expected"])
        for row in rows
        if row["failed"] + row["missing"]
    )
    if not incomplete:
        return None
    names = {subset for subset, _, _ in incomplete}
    files = catalog.index_files(crawl).select(["subset", "path", "outcome", "reason"]).to_pylist()
    failed = sorted(
        (row["path"], row["reason"] or row["outcome"])
        for row in files
        if row["outcome"] != DECODED and row["subset"] in names
    )
    expected, unread = sum(row["expected"] for row in rows), sum(count for _, count, _ in incomplete)
    return IndexGaps(crawl, expected, unread, incomplete, tuple(failed[:_MAX_KEPT]))


def index_incomplete(gaps: Sequence[IndexGaps]) -> IndexIncomplete:
    """Returns the error that names these gaps, with advice."""
    affected_subsets = dict.fromkeys(subset for gap in gaps for subset, _, _ in gap.by_subset)
    published = [gap.crawl for gap in gaps if not index_is_built(gap.crawl) and gap.crawl not in ARC_CRAWLS]
    built = [gap.crawl for gap in gaps if index_is_built(gap.crawl)]
    ways = []
    if published:
        harvest = advise("index harvest", crawl=published, subset=name_subsets([*affected_subsets]))
        is_columnar = all(gap.unit == _INDEX_FILES for gap in gaps)
        aim = "To read the missing files" if is_columnar else f"To search {option(index=PARQUET)}, once harvested"
        ways.append(f"{aim}: {harvest}. ")
    if built:
        build = advise("index build", crawl=built)
        ways.append(f"To index the missing archive files, at a cost shown first: {build}. ")
    return IndexIncomplete(
        "; ".join(f"{gap.summary} could not be read: {gap.file_summary}" for gap in gaps),
        f"Files that were read are kept. {''.join(ways)}To continue without the missing files: "
        f"{option(allow_gaps=True)} (or CC_PIPELINE_MAX_INDEX_GAPS, the share of a subset's files that may be "
        "missing); then their captures are missing, and partitions are marked incomplete.",
    )


def unharvested(catalog: Catalog, crawl: str, subsets: Sequence[str]) -> tuple[str, ...]:
    """Returns the ``subsets`` that are not in the catalog, since no harvest of ``crawl`` requested them."""
    harvested_subsets = catalog.coverage(crawl)["subset"].to_pylist()
    return tuple(subset for subset in subsets if subset not in harvested_subsets)


class MissingHarvest(EnvironmentFault):
    """The columnar index was not harvested for the requested subsets, and there is no other index."""


def missing_harvest(crawl: str, subsets: Sequence[str]) -> MissingHarvest:
    """Returns the error for subsets that were not harvested, with advice."""
    return MissingHarvest(
        f"the index of {crawl} has not been harvested for {' and '.join(subsets)}",
        advise(
            "index harvest",
            crawl=crawl,
            subset=name_subsets(subsets),
            sentence="Harvest it (reads the metadata of its files once): {}",
        ),
    )


def index_advice(crawl: str, subsets: Sequence[str] = SUBSETS[:1]) -> Advice:
    """Returns how an index of a crawl is made in a home, as a sentence for the user."""
    if crawl in ARC_CRAWLS:
        return advise("files add", "KEY", kind="warc", sentence="To index ARC files of it: {}")
    if index_is_built(crawl):
        return advise("index build", crawl=crawl, sentence="Make one, at a cost shown first: {}")
    return advise("index harvest", crawl=crawl, subset=name_subsets(subsets), sentence="Make one: {}")


def name_subsets(subsets: Sequence[str]) -> tuple[str, ...]:
    """Returns the subsets that a call has to name: none for the default subset."""
    return () if tuple(subsets) == SUBSETS[:1] else tuple(subsets)
