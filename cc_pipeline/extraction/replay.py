"""Replaying: fetches quarantined and missing records again, so that their pages can be parsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cc_pipeline.commoncrawl.parts import whole_slug
from cc_pipeline.errors import EnvironmentFault, Incomplete
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.slice import FETCH, PARSE, slices_of
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
    parts = workspace.parts(slugs)
    before = _counts(workspace, crawl, parts)
    lost = [slug for slug in slugs if before[slug]["quarantined"] or before[slug]["missing"]]
    if lost:
        # before the fetch, which may change their records
        PARSE.forget(workspace.lake, slices_of(crawl, [part for slug in lost for part in parts[slug]]))
        try:
            fetch_captures(workspace, crawl, lost, replay=True)
        except Incomplete as error:
            trouble = error
    return Replay(before, _counts(workspace, crawl, parts), tuple(lost), trouble)


def _counts(workspace: Workspace, crawl: str, parts: Mapping[str, Sequence[str]]) -> Counts:
    lake = workspace.lake
    every = [part for own in parts.values() for part in own]
    for slice_, digest in FETCH.made_from(lake, slices_of(crawl, every)).items():
        if digest is None:
            raise EnvironmentFault(
                f"{whole_slug(slice_.target)} in {crawl} has not been fetched yet",
                f"Fetch it: cc-pipeline run --crawl {crawl} --domain …",
            )
    counts: Counts = {slug: dict.fromkeys(OUTCOMES, 0) for slug in parts}
    rows = lake.read("records", {"crawl": crawl, "target": every}, ["target", "outcome"])
    for row in rows.group_by(["target", "outcome"]).aggregate([([], "count_all")]).to_pylist():
        counts[whole_slug(row["target"])][row["outcome"]] += row["count_all"]
    return counts
