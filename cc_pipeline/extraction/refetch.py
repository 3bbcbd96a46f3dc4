"""Fetches records again because a person asks: records that are lost, damaged, or other than indexed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cc_pipeline.commoncrawl.slice_slugs import whole_slug
from cc_pipeline.errors import EnvironmentFault, Incomplete
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.slice_selection import find_part_slices
from cc_pipeline.lake.slice import FETCH, slices_of
from cc_pipeline.lake.slices import read_slice_rows
from cc_pipeline.lake.streaming import count_rows
from cc_pipeline.records.schema import OUTCOMES
from cc_pipeline.workspace.workspace import Workspace

Counts = dict[str, dict[str, int]]
#: Of the fetched records, those that have another payload than the index names.
_MISMATCHED: Final = "mismatched"


@dataclass(frozen=True, slots=True)
class Replay:
    """The numbers of records by outcome and target before and after, and of fetched records with another payload than
    indexed. ``refetched`` are the targets whose pages must be parsed again.

    ``trouble`` is the error if the source gave less than the settings allow.
    """

    before: Counts
    after: Counts
    refetched: tuple[str, ...]
    trouble: Incomplete | None = None

    @property
    def recovered(self) -> int:
        """The number of records that became correct."""
        return sum(max(0, _count_correct(self.after[slug]) - _count_correct(self.before[slug])) for slug in self.before)


def replay_records(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> Replay:
    """Fetches every record of ``slugs`` in ``crawl`` again that is quarantined or missing, or has another payload than
    the index names.

    Raises ``EnvironmentFault`` for a target that has not been fetched, and when the disk fails; records fetched until
    then are kept.
    """
    trouble: Incomplete | None = None
    counts_before = _count_outcomes(workspace, crawl, slugs)
    lost = [
        slug for slug in slugs if any(counts_before[slug][name] for name in ("quarantined", "missing", _MISMATCHED))
    ]
    if lost:
        try:
            fetch_captures(workspace, crawl, lost, replay=True)
        except Incomplete as error:
            trouble = error
    return Replay(counts_before, _count_outcomes(workspace, crawl, slugs), tuple(lost), trouble)


def _count_outcomes(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> Counts:
    lake = workspace.lake
    slices = find_part_slices(workspace, slices_of(crawl, slugs))
    rows = read_slice_rows(lake, slices, (FETCH,))
    for slice_ in slices:
        if (slice_, FETCH.label) not in rows:
            raise EnvironmentFault(
                f"{slice_.partition.target} in {crawl} has not been fetched yet",
                f"Fetch it: cc-pipeline run … --crawl {crawl}",
            )
    counts: Counts = {slug: dict.fromkeys((*OUTCOMES, _MISMATCHED), 0) for slug in slugs}
    where = {"crawl": crawl, "target": [slice_.target for slice_ in slices]}
    columns = ["target", "outcome", "digest_check"]
    for (target, outcome, check), count in count_rows(lake, "records", where, columns).items():
        counts[whole_slug(target)][outcome] += count
        counts[whole_slug(target)][_MISMATCHED] += count if (outcome, check) == ("fetched", "mismatch") else 0
    return counts


def _count_correct(counts: Mapping[str, int]) -> int:
    return counts["fetched"] - counts[_MISMATCHED]
