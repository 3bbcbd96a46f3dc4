"""Replaying: fetches quarantined and missing records again, so that their pages can be parsed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cc_pipeline.errors import EnvironmentFault, Incomplete
from cc_pipeline.records.schema import OUTCOMES
from cc_pipeline.stages.fetch import fetch_captures
from cc_pipeline.stages.slice import FETCH, PARSE, slices_of
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
        # before the fetch, which may change their records
        PARSE.forget(workspace.lake, slices_of(crawl, lost))
        try:
            fetch_captures(workspace, crawl, lost, replay=True)
        except Incomplete as error:
            trouble = error
    return Replay(before, _counts(workspace, crawl, slugs), tuple(lost), trouble)


def _counts(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> Counts:
    lake = workspace.lake
    for slice_, digest in FETCH.made_from(lake, slices_of(crawl, slugs)).items():
        if digest is None:
            raise EnvironmentFault(
                f"{slice_.target} in {crawl} has not been fetched yet",
                f"Fetch it: cc-pipeline run --crawl {crawl} --domain …",
            )
    counts: Counts = {slug: dict.fromkeys(OUTCOMES, 0) for slug in slugs}
    rows = lake.read("records", {"crawl": crawl, "target": list(slugs)}, ["target", "outcome"])
    for row in rows.group_by(["target", "outcome"]).aggregate([([], "count_all")]).to_pylist():
        counts[row["target"]][row["outcome"]] = row["count_all"]
    return counts
