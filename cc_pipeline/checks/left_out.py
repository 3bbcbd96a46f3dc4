"""What a person did not get: captures in subsets that were not asked for, and in index files nobody could read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, SUBSETS, index_is_built
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.extraction.locate import index_sources
from cc_pipeline.extraction.lookup_notes import gap_notes
from cc_pipeline.extraction.standing import stand
from cc_pipeline.extraction.target_slices import expand
from cc_pipeline.index.gaps import NotHarvested
from cc_pipeline.index.lookup import look_up
from cc_pipeline.lake.slice import LOCATE
from cc_pipeline.workspace.workspace import Workspace

#: (crawl, target) pairs that one command counts, and sentences about one crawl.
_MOST_PAIRS: Final = 100
_SAID: Final = 5
#: Members of a set up to which what was not asked for is counted.
_MOST_MEMBERS: Final = 64
#: Bytes that counting may read of an index: this is a courtesy, not what was asked for.
_MOST_BYTES: Final = 256 << 20
#: Enough to tell whether a capture belongs to a target; the index's own key is always read.
_COLUMNS: Final = ("url",)


def what_is_not_there(workspace: Workspace, crawls: Sequence[str], targets: Sequence[Target]) -> list[str]:
    """Sentences for a person about ``targets``, located in ``crawls`` before: unread index files, other subsets."""
    # another look-up of thousands of members is no courtesy any more
    few = [target for target in targets if len(target.members) <= _MOST_MEMBERS]
    # a set that has lost members may still be divided
    slugs = [target.slug for target in few[:_MOST_PAIRS]]
    found: dict[str, Counter[str]] = {}
    held: dict[tuple[str, str], set[str]] = {}
    for crawl in crawls[:_MOST_PAIRS]:
        asked = expand(workspace, crawl, slugs)
        stands = stand(workspace, asked.every, (LOCATE,))
        found[crawl] = Counter()
        for slice_, one in stands.items():
            found[crawl][slice_.whole.target] += one.lookup.captures if one.lookup else 0
            held.setdefault((crawl, slice_.whole.target), set()).add(slice_.subset)
    return [*gap_notes(workspace, crawls, targets), *(left_out(workspace, few, found, held) if few else ())]


def left_out(
    workspace: Workspace,
    targets: Sequence[Target],
    found: Mapping[str, Mapping[str, int]],
    held: Mapping[tuple[str, str], Collection[str]] = MappingProxyType({}),
) -> list[str]:
    """Sentences about captures of ``targets`` in the subsets that the settings leave out and the home has not.

    ``found`` has for each crawl the captures of the wanted subsets by slug, ``held`` the subsets that the home has of a
    crawl and slug, which are counted in ``found``. At most 100 (crawl, target) pairs are
    counted, with one look-up a crawl. A look-up that fails, or that would read much, is a sentence too, never an error.
    Crawls of the ARC years, and those whose index is built here, have no subsets.
    """
    others = tuple(subset for subset in SUBSETS if subset not in workspace.settings.subsets)
    crawls = [crawl for crawl in found if crawl not in ARC_CRAWLS and not index_is_built(crawl)]
    if not crawls or not others:
        return []
    counted = targets[: max(1, _MOST_PAIRS // len(crawls))]
    said = [
        one
        for crawl in crawls[:_MOST_PAIRS]
        for one in _of_crawl(workspace, crawl, counted, others, found[crawl], held)
    ]
    if len(counted) * min(len(crawls), _MOST_PAIRS) < len(targets) * len(crawls):
        said.append(
            f"what {_listed(others)} hold was counted for the first {_MOST_PAIRS} pairs of crawl and target only"
        )
    return said


def _of_crawl(
    workspace: Workspace,
    crawl: str,
    targets: Sequence[Target],
    others: Sequence[str],
    found: Mapping[str, int],
    held: Mapping[tuple[str, str], Collection[str]],
) -> list[str]:
    # the holes of what was not asked for are no reason to say nothing of it
    sources = replace(index_sources(workspace, crawl), columns=_COLUMNS, max_gaps=1.0)
    try:
        answer = look_up(crawl, others, targets, sources, most_bytes=_MOST_BYTES)
    except NotHarvested:
        # nobody asked for them, and no other index tells
        return []
    except CcPipelineError as error:
        return [f"what {_listed(others)} hold in {crawl} was not counted: {error}"]
    said = []
    for target in targets:
        by_subset = _counts(answer.captures[target.slug]["subset"])
        there = [
            subset for subset in others if subset in by_subset and subset not in held.get((crawl, target.slug), ())
        ]
        if not there:
            continue
        count = sum(by_subset[subset] for subset in there)
        flags = " ".join(f"--subset {subset}" for subset in (*workspace.settings.subsets, *there))
        said.append(
            f"{'at least ' if answer.gaps else ''}{count:,} of {count + found.get(target.slug, 0):,} captures of "
            f"{target.definition} in {crawl} are in {_listed(there)}, which {'was' if len(there) == 1 else 'were'} "
            f"not asked for: add {flags}"
        )
    more = len(said) - _SAID
    return said if more <= 0 else [*said[:_SAID], f"the same holds for {more:,} more targets in {crawl}"]


def _counts(values: pa.ChunkedArray) -> dict[str, int]:
    return {found["values"]: found["counts"] for found in pc.value_counts(values).to_pylist()}


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names)
