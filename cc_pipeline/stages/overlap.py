"""Which targets can share captures: those whose key ranges overlap, which their definitions alone decide.

So a partition need not read what every other partition holds, and a publication need not look for repeats among rows
that cannot repeat.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence

from cc_pipeline.commoncrawl.btree_keys import KeyRange
from cc_pipeline.commoncrawl.target import merge_ranges
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import UserInputError
from cc_pipeline.stages.workspace import Workspace


def overlapping(workspace: Workspace, slugs: Collection[str]) -> list[str]:
    """Slugs of all targets that can have captures of ``slugs``: these themselves, and others.

    Targets that nobody defined are not among them. Raises ``EnvironmentFault`` when the lake cannot be read.
    """
    known = _ranges(workspace)
    mine = merge_ranges(one for slug in slugs for one in known.get(slug, ()))
    starts = [one.start for one in mine]
    return sorted(
        {*slugs, *(slug for slug, ranges in known.items() if any(_meets(one, mine, starts) for one in ranges))}
    )


def sharing(workspace: Workspace) -> set[str]:
    """Slugs of all targets that can share captures with another one. Raises ``EnvironmentFault``."""
    known = _ranges(workspace)
    found: set[str] = set()
    last: tuple[bytes | None, str] | None = None
    for one, slug in sorted(_each(known), key=lambda pair: (pair[0].start, pair[1])):
        if last is not None and last[1] != slug and (last[0] is None or one.start < last[0]):
            found |= {slug, last[1]}
        # ranges of one target are disjoint, so what reaches furthest is all that the next can meet
        if last is None or (last[0] is not None and (one.end is None or one.end > last[0])):
            last = (one.end, slug)
    return found


def _each(known: dict[str, tuple[KeyRange, ...]]) -> Iterator[tuple[KeyRange, str]]:
    return ((one, slug) for slug, ranges in known.items() for one in ranges)


def _meets(one: KeyRange, ordered: Sequence[KeyRange], starts: list[bytes]) -> bool:
    """Whether ``one`` overlaps any of the disjoint, sorted ranges ``ordered``, which begin at ``starts``."""
    place = bisect_right(starts, one.start)
    before = ordered[place - 1] if place else None
    if before is not None and (before.end is None or before.end > one.start):
        return True
    return place < len(ordered) and (one.end is None or ordered[place].start < one.end)


def _ranges(workspace: Workspace) -> dict[str, tuple[KeyRange, ...]]:
    """The key ranges of each target; those that were written down, or of older rows what the definition means."""
    rows = workspace.lake.read("targets", columns=["slug", "definition", "ranges"])
    found: dict[str, tuple[KeyRange, ...]] = {}
    for row in rows.to_pylist():
        if row["ranges"] is None:
            found[row["slug"]] = _meant(row["definition"])
        else:
            found[row["slug"]] = tuple(KeyRange(one["start"], one["end"]) for one in row["ranges"])
    return found


def _meant(definition: str) -> tuple[KeyRange, ...]:
    try:
        return parse_target(definition).ranges
    except UserInputError:
        return (KeyRange(b"", None),)  # what nobody can read may be anything
