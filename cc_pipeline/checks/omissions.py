"""Describes the captures that a run left out: those in subsets that were not selected, and in unreadable index
files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import pyarrow.compute as pc

from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, SUBSETS, index_is_built
from cc_pipeline.commoncrawl.target import GIVEN_KIND, Target
from cc_pipeline.commoncrawl.target_text import SET_SLUG
from cc_pipeline.errors import CcPipelineError
from cc_pipeline.extraction.lookup_notes import describe_gaps
from cc_pipeline.extraction.slice_selection import expand_targets
from cc_pipeline.harvesting.index_sources import index_sources
from cc_pipeline.index.gaps import MissingHarvest
from cc_pipeline.index.lookup import look_up
from cc_pipeline.progress import format_count, list_first
from cc_pipeline.workspace.workspace import Workspace

#: The most (crawl, target) pairs that one command counts.
_MAX_PAIRS: Final = 100
#: The most targets, and crawls, that a sentence names.
_MAX_NAMES: Final = 3
#: The most captures whose targets are determined.
_MAX_MATCHED_URLS: Final = 10_000
#: The name of all targets of a lookup as one: so a capture of several targets counts once.
_UNION: Final = "together"
#: The most members of a set for which captures in other subsets are counted.
_MAX_MEMBERS: Final = 64
#: The most bytes of an index that counting may read, since it was not requested.
_MAX_BYTES: Final = 256 << 20
#: These decide whether a capture belongs to a target; the index's own key is always read.
_COLUMNS: Final = ("url",)


def describe_omissions(workspace: Workspace, crawls: Sequence[str], targets: Sequence[Target]) -> list[str]:
    """Returns sentences for a person about ``targets``, located in ``crawls`` before: unread index files, and captures
    in other subsets, which are counted with a lookup of their own."""
    # A lookup of thousands of members would cost too much. Conditions and listed captures select subsets themselves.
    small_targets = [
        plain_target
        for plain_target in targets
        if len(plain_target.members) <= _MAX_MEMBERS and not plain_target.where and plain_target.kind != GIVEN_KIND
    ]
    # a set that has lost members may still be divided into parts
    slugs = [target.slug for target in small_targets[:_MAX_PAIRS]]
    stored_subsets: dict[tuple[str, str], set[str]] = {}
    for crawl in crawls[:_MAX_PAIRS]:
        for slug, slices in expand_targets(workspace, crawl, slugs).additional.items():
            stored_subsets[crawl, slug] = {slice_.subset for slice_ in slices}
    return [
        *describe_gaps(workspace, crawls, targets),
        *(describe_omitted_captures(workspace, small_targets, crawls, stored_subsets) if small_targets else ()),
    ]


def describe_omitted_subsets(
    workspace: Workspace, crawls: Sequence[str], targets: Sequence[Target], stored_subsets: Collection[str]
) -> list[str]:
    """Returns a sentence with the subsets that a run left out and the home has nothing of, and the command that counts
    their captures. ``stored_subsets`` are the subsets that the home has. Looks nothing up."""
    omitted_subsets = [subset for subset in _find_omitted_subsets(workspace) if subset not in stored_subsets]
    plain = any(not target.where and target.kind != GIVEN_KIND for target in targets)
    if not omitted_subsets or not plain or not _select_crawls_with_subsets(crawls):
        return []
    verb = "was" if len(omitted_subsets) == 1 else "were"
    return [
        f"the subsets {' and '.join(omitted_subsets)} {verb} not requested; to count their captures: "
        "cc-pipeline lookup … --crawl … --count"
    ]


def describe_omitted_captures(
    workspace: Workspace,
    targets: Sequence[Target],
    crawls: Sequence[str],
    stored_subsets: Mapping[tuple[str, str], Collection[str]] = MappingProxyType({}),
) -> list[str]:
    """Returns a sentence about captures of ``targets`` in the subsets that neither the settings nor the home have
    (``stored_subsets``: the subsets of the home by crawl and slug). A capture of several targets counts once.

    At most 100 (crawl, target) pairs are counted, with one lookup per crawl. A lookup that fails, or would read too
    many bytes, becomes a sentence and never an error. Crawls of the ARC years, and those whose index is built in this
    home, have no subsets.
    """
    omitted_subsets, crawls = _find_omitted_subsets(workspace), _select_crawls_with_subsets(crawls)
    if not crawls or not omitted_subsets:
        return []
    counted_targets = targets[: max(1, _MAX_PAIRS // len(crawls))]
    omissions = _Omissions()
    for crawl in crawls[:_MAX_PAIRS]:
        for missing_subsets, group in _group_by_missing_subsets(
            counted_targets, crawl, omitted_subsets, stored_subsets
        ).items():
            _count_captures(workspace, crawl, group, missing_subsets, omissions)
    sentences = []
    if omissions.by_subset:
        present_subsets = [subset for subset in omitted_subsets if subset in omissions.by_subset]
        flags = " ".join(f"--subset {subset}" for subset in (*workspace.settings.subsets, *present_subsets))
        at_least, count = "at least " if omissions.gaps else "", omissions.by_subset.total()
        verb = "was" if len(present_subsets) == 1 else "were"
        targets_and_crawls = " in ".join(
            list_first([*names], _MAX_NAMES) for names in (omissions.targets, omissions.crawls)
        )
        sentences.append(
            f"{at_least}{format_count(count, 'capture')} of {targets_and_crawls} {'is' if count == 1 else 'are'} in "
            f"{' and '.join(present_subsets)}, which {verb} not requested: add {flags}"
        )
    if omissions.errors:
        crawl, error = next(iter(omissions.errors.items()))
        more_crawls = (
            f" (and in {format_count(len(omissions.errors) - 1, 'more crawl')})" if len(omissions.errors) > 1 else ""
        )
        sentences.append(
            f"captures of {' and '.join(omitted_subsets)} in {crawl}{more_crawls} were not counted: {error}"
        )
    if len(counted_targets) * min(len(crawls), _MAX_PAIRS) < len(targets) * len(crawls):
        sentences.append(
            f"captures of {' and '.join(omitted_subsets)} were counted only for the first {_MAX_PAIRS} pairs of crawl "
            "and target"
        )
    return sentences


def _find_omitted_subsets(workspace: Workspace) -> tuple[str, ...]:
    return tuple(subset for subset in SUBSETS if subset not in workspace.settings.subsets)


def _select_crawls_with_subsets(crawls: Sequence[str]) -> list[str]:
    return [crawl for crawl in crawls if crawl not in ARC_CRAWLS and not index_is_built(crawl)]


@dataclass(slots=True)
class _Omissions:
    """The counts so far: captures by subset, and the names of the targets and crawls that have them."""

    by_subset: Counter[str] = field(default_factory=Counter)
    targets: dict[str, None] = field(default_factory=dict)
    crawls: dict[str, None] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    gaps: bool = False


def _group_by_missing_subsets(
    targets: Sequence[Target],
    crawl: str,
    omitted_subsets: Sequence[str],
    stored_subsets: Mapping[tuple[str, str], Collection[str]],
) -> dict[tuple[str, ...], list[Target]]:
    groups: dict[tuple[str, ...], list[Target]] = {}
    for target in targets:
        target_subsets = stored_subsets.get((crawl, target.slug), ())
        if missing_subsets := tuple(subset for subset in omitted_subsets if subset not in target_subsets):
            groups.setdefault(missing_subsets, []).append(target)
    return groups


def _count_captures(
    workspace: Workspace, crawl: str, targets: Sequence[Target], subsets: Sequence[str], omissions: _Omissions
) -> None:
    # index gaps in other subsets are no reason to report nothing about them
    sources = replace(index_sources(workspace, crawl), columns=_COLUMNS, max_gaps=1.0)
    members = {member.slug: member for target in targets for member in (target.members or (target,))}
    union = Target("set", _UNION, _UNION, tuple(members.values()))
    try:
        answer = look_up(crawl, subsets, [union], sources, max_bytes=_MAX_BYTES)
    except MissingHarvest:
        # these subsets were not harvested, and no other index has them
        return
    except CcPipelineError as error:
        omissions.errors[crawl] = str(error)
        return
    captures = answer.captures[_UNION]
    if not captures.num_rows:
        return
    for value_count in pc.value_counts(captures["subset"]).to_pylist():
        omissions.by_subset[value_count["values"]] += value_count["counts"]
    omissions.gaps |= bool(answer.gaps)
    omissions.crawls[crawl] = None
    urls = captures["url"].slice(0, _MAX_MATCHED_URLS).to_pylist()
    omissions.targets |= {
        _format_name(matched_target): None for matched_target in targets if any(map(matched_target.matches, urls))
    }


def _format_name(target: Target) -> str:
    return f"set:{target.value}" if target.kind == "set" and target.slug.startswith(SET_SLUG) else target.definition
