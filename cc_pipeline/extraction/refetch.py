"""Fetches lost and pending records again because a person asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cc_pipeline.advice import advise
from cc_pipeline.commoncrawl.target_text import text_of_key
from cc_pipeline.errors import EnvironmentFault, Incomplete
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.slice_selection import find_part_slices
from cc_pipeline.extraction.slice_state import read_slice_states
from cc_pipeline.lake.slice import FETCH, slices_of
from cc_pipeline.records.schema import OUTCOMES
from cc_pipeline.workspace.workspace import Workspace

Counts = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Refetch:
    """The numbers of records by outcome and target before and after. ``refetched`` are the targets whose pages must be
    parsed again.

    ``trouble`` is the error if the source gave less than the settings allow.
    """

    before: Counts
    after: Counts
    refetched: tuple[str, ...]
    trouble: Incomplete | None = None

    @property
    def recovered(self) -> int:
        """The number of records that were fetched."""
        return sum(max(0, self.after[slug]["fetched"] - self.before[slug]["fetched"]) for slug in self.before)


def refetch_records(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> Refetch:
    """Fetches every record of ``slugs`` in ``crawl`` again that is pending or lost.

    Raises ``EnvironmentFault`` for a target that has not been fetched, and when the disk fails; records fetched until
    then are kept.
    """
    trouble: Incomplete | None = None
    counts_before = _count_outcomes(workspace, crawl, slugs)
    unfetched = [slug for slug in slugs if counts_before[slug]["pending"] or counts_before[slug]["lost"]]
    if unfetched:
        try:
            fetch_captures(workspace, crawl, unfetched, refetch=True)
        except Incomplete as error:
            trouble = error
    return Refetch(counts_before, _count_outcomes(workspace, crawl, slugs), tuple(unfetched), trouble)


def _count_outcomes(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> Counts:
    counts: Counts = {slug: dict.fromkeys(OUTCOMES, 0) for slug in slugs}
    slices = find_part_slices(workspace, slices_of(crawl, slugs))
    for slice_, state in read_slice_states(workspace, slices, (FETCH,), check_stored_files=False).items():
        if state.fetch is None:
            raise EnvironmentFault(
                f"{slice_.partition.target} in {crawl} has not been fetched yet",
                advise("run", text_of_key(slice_.partition.target), crawl=crawl, sentence="Fetch it: {}"),
            )
        for outcome in OUTCOMES:
            counts[slice_.partition.target][outcome] += getattr(state.fetch, outcome)
    return counts
