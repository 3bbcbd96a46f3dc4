"""Which targets can share captures: those whose key ranges overlap, which their definitions alone decide.

So a partition need not read what every other partition holds, and a publication need not look for repeats among rows
that cannot repeat.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow.compute as pc

from cc_pipeline.commoncrawl.btree_keys import KeyRange
from cc_pipeline.commoncrawl.key_ranges import RangeSet
from cc_pipeline.commoncrawl.parts import defined_slug, subset_of, with_subset
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import UserInputError
from cc_pipeline.stages.workspace import Workspace

#: Lowest key, the key behind the highest (``None``: to the end), slug.
_Range = tuple[bytes, bytes | None, str]


def overlapping(workspace: Workspace, slugs: Collection[str]) -> list[str]:
    """Slugs of all targets that can have captures of ``slugs``: these themselves, and others. Parts of sets are
    targets of their own here.

    Targets that nobody defined are not among them. Raises ``EnvironmentFault`` when the lake cannot be read.
    """
    known = _ranges(workspace)
    found = set(slugs)
    for subset in {subset_of(slug) for slug in slugs}:
        # captures of two subsets are never the same
        asked = {defined_slug(slug) for slug in slugs if subset_of(slug) == subset}
        mine = RangeSet(KeyRange(start, end) for start, end, slug in known if slug in asked)
        found |= {with_subset(slug, subset) for start, end, slug in known if mine.touches(start, end)}
    return sorted(found)


def sharing(workspace: Workspace) -> set[str]:
    """Slugs of all targets that can share captures with another one. Raises ``EnvironmentFault``."""
    found: set[str] = set()
    last: tuple[bytes | None, str] | None = None
    for start, end, slug in sorted(_ranges(workspace), key=lambda one: (one[0], one[2])):
        if last is not None and last[1] != slug and (last[0] is None or start < last[0]):
            found |= {slug, last[1]}
        # ranges of one target are disjoint, so what reaches furthest is all that the next can meet
        if last is None or (last[0] is not None and (end is None or end > last[0])):
            last = (end, slug)
    return found


def _ranges(workspace: Workspace) -> list[_Range]:
    """The key ranges of all targets; those that were written down, or of older rows what the definition means."""
    rows = workspace.lake.read("targets", columns=["slug", "ranges"])
    noted = rows.filter(pc.is_valid(rows["ranges"])).combine_chunks()
    ranges = noted["ranges"].combine_chunks()
    slugs = noted["slug"].combine_chunks().take(pc.list_parent_indices(ranges))
    ends = pc.list_flatten(ranges)
    columns = (pc.struct_field(ends, "start"), pc.struct_field(ends, "end"), slugs)
    found: list[_Range] = list(zip(*(column.to_pylist() for column in columns), strict=True))
    if noted.num_rows < rows.num_rows:
        before = workspace.lake.read("targets", columns=["slug", "definition", "ranges"])
        for row in before.filter(pc.is_null(before["ranges"])).to_pylist():
            found += [(one.start, one.end, row["slug"]) for one in _meant(row["definition"])]
    return found


def _meant(definition: str) -> tuple[KeyRange, ...]:
    try:
        return parse_target(definition).ranges
    except UserInputError:
        return (KeyRange(b"", None),)  # what nobody can read may be anything
