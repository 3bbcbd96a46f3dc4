"""What one run did: how its partitions stood before and after it, from their digests and the rows that note them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from cc_pipeline.extraction.slice import FETCH, LOCATE, PARSE, Slice
from cc_pipeline.lake.streaming import count_rows
from cc_pipeline.stages.workspace import Workspace

#: ``new``: nothing was there before. ``updated``: looked up, fetched or parsed again. ``undone``: a stage is missing.
Change: TypeAlias = Literal["new", "updated", "same", "undone"]
_STAGES: Final = (LOCATE, FETCH, PARSE)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a partition (a crawl and a whole target) stands. ``made_from`` are the digests of its slices, by stage and
    part; the counts are of captures: found, planned for the fetch, fetched, and still to be asked for."""

    made_from: tuple[str | None, ...] = ()
    captures: int = 0
    planned: int = 0
    fetched: int = 0
    unsettled: int = 0

    @property
    def lost(self) -> int:
        """Captures that the source has damaged, or not at all."""
        return self.planned - self.fetched - self.unsettled


@dataclass(frozen=True, slots=True)
class Done:
    """What a run did with one partition: ``before`` and ``after`` it."""

    before: Standing
    after: Standing

    @property
    def change(self) -> Change:
        """Whether the run changed it."""
        if not self.after.made_from or None in self.after.made_from:
            return "undone"
        if not self.before.made_from or all(digest is None for digest in self.before.made_from):
            return "new"
        return "same" if self.before.made_from == self.after.made_from else "updated"


def standings(workspace: Workspace, crawls: Sequence[str], slugs: Collection[str]) -> dict[Slice, Standing]:
    """How the partitions ``crawls`` × ``slugs`` stand now. Reads logs, and two small tables with a row a slice."""
    lake = workspace.lake
    parts = workspace.parts(list(slugs))
    every = [part for own in parts.values() for part in own]
    found: dict[Slice, Standing] = {}
    for crawl in crawls:
        digests = [stage.made_from(lake, [Slice(crawl, part) for part in every]) for stage in _STAGES]
        counts = _counts(workspace, crawl, every, {one.target for one, digest in digests[0].items() if digest})
        for slug, own in parts.items():
            made_from = tuple(by_slice[Slice(crawl, part)] for by_slice in digests for part in own)
            totals = [sum(figures) for figures in zip(*(counts[part] for part in own), strict=True)]
            found[Slice(crawl, slug)] = Standing(made_from, *totals)
    return found


def done_since(before: Mapping[Slice, Standing], after: Mapping[Slice, Standing]) -> dict[Slice, Done]:
    """What was done between two looks at the partitions of ``after``."""
    return {slice_: Done(before.get(slice_, Standing()), standing) for slice_, standing in after.items()}


def _counts(
    workspace: Workspace, crawl: str, parts: Sequence[str], located: Collection[str]
) -> dict[str, tuple[int, int, int, int]]:
    """Captures of each part: found, planned, fetched, and still to be asked for."""
    lake, where = workspace.lake, {"crawl": crawl, "target": list(parts)}
    counts = dict.fromkeys(parts, (0, 0, 0, 0))
    noted = lake.read("lookups", where, ["target", "captures"]).to_pylist()
    counts |= {row["target"]: (int(row["captures"] or 0), 0, 0, 0) for row in noted}
    fetches = lake.read("fetches", where, ["target", "planned", "fetched", "unsettled"]).to_pylist()
    for row in fetches:
        planned = int(row["planned"])
        counts[row["target"]] = (planned, planned, int(row["fetched"]), int(row["unsettled"] or 0))
    # homes of before have slices without such rows
    silent = sorted(set(located) - {row["target"] for row in (*noted, *fetches)})
    if silent:
        outcomes = count_rows(lake, "records", {"crawl": crawl, "target": silent}, ["target", "outcome"])
        for (target, outcome), count in outcomes.items():
            found, planned, fetched, unsettled = counts[target]
            counts[target] = (found + count, planned + count, fetched + count * (outcome == "fetched"), unsettled)
    return counts
