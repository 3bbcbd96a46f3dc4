"""Replaying: fetches quarantined and missing records again, so that their pages can be parsed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cc_pipeline.commoncrawl.parts import whole_slug
from cc_pipeline.errors import EnvironmentFault, Incomplete
from cc_pipeline.extraction.expanding import part_slices
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.slice import FETCH, slices_of
from cc_pipeline.lake.streaming import count_rows
from cc_pipeline.records.schema import OUTCOMES
from cc_pipeline.stages.workspace import Workspace

Counts = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Replay:
    """Records by outcome and target, before and after. ``again`` are the targets whose pages must be parsed again.

    ``trouble`` says what the source did not give, where that was more than the settings allow.
    """

    before: Counts
    after: Counts
    again: tuple[str, ...]
    trouble: Incomplete | None = None

    @property
    def recovered(self) -> int:
        """Records that are fetched now and were not before."""
        return sum(max(0, self.after[slug]["fetched"] - self.before[slug]["fetched"]) for slug in self.before)


def replay_records(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> Replay:
    """Fetches every record of ``slugs`` in ``crawl`` again that is quarantined or missing.

    Raises ``EnvironmentFault`` for a target that has not been fetched, and when the disk fails; records fetched
    until then are kept.
    """
    trouble: Incomplete | None = None
    before = _counts(workspace, crawl, slugs)
    lost = [slug for slug in slugs if before[slug]["quarantined"] or before[slug]["missing"]]
    if lost:
        try:
            fetch_captures(workspace, crawl, lost, replay=True)
        except Incomplete as error:
            trouble = error
    return Replay(before, _counts(workspace, crawl, slugs), tuple(lost), trouble)


def _counts(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> Counts:
    lake = workspace.lake
    every = part_slices(workspace, slices_of(crawl, slugs))
    for slice_, digest in FETCH.made_from(lake, every).items():
        if digest is None:
            raise EnvironmentFault(
                f"{slice_.whole.target} in {crawl} has not been fetched yet",
                f"Fetch it: cc-pipeline run --crawl {crawl} --domain …",
            )
    counts: Counts = {slug: dict.fromkeys(OUTCOMES, 0) for slug in slugs}
    where = {"crawl": crawl, "target": [slice_.target for slice_ in every]}
    for (target, outcome), count in count_rows(lake, "records", where, ["target", "outcome"]).items():
        counts[whole_slug(target)][outcome] += count
    return counts
