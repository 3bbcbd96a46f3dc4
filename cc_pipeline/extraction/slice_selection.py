"""Maps targets to slices before a stage, and reports of slices to reports of targets after it.

A large set is many slices, and each subset of a crawl is another. No stage needs to know.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from cc_pipeline.commoncrawl.conditions import parse_condition
from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.commoncrawl.slice_slugs import PLAIN, is_named_captures, named_captures_slug, subsets_in, with_subset
from cc_pipeline.commoncrawl.target import WHERE_SLUG
from cc_pipeline.commoncrawl.target_text import SET_SLUG
from cc_pipeline.extraction.blocklist import Blocklist
from cc_pipeline.extraction.plan import SliceRequest
from cc_pipeline.lake import target_definitions as definitions
from cc_pipeline.lake.content_digests import combine_digests
from cc_pipeline.lake.predicates import Prefix
from cc_pipeline.lake.slice import (
    FETCH,
    LOCATE,
    NAMED_CAPTURES,
    VERSION,
    Metrics,
    Slice,
    Stage,
    StageReport,
    group_targets_by_crawl,
)
from cc_pipeline.lake.slices import empty_slices, list_slices, read_slice_rows
from cc_pipeline.records.sweep import note
from cc_pipeline.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class TargetSlices:
    """The slices of targets in one crawl, by the target's slug: the requested ones, and, in ``additional``, stored ones
    of other subsets."""

    crawl: str
    requested: Mapping[str, tuple[Slice, ...]]
    additional: Mapping[str, tuple[Slice, ...]]

    @property
    def requested_slices(self) -> list[Slice]:
        """The requested slices."""
        return [slice_ for slices in self.requested.values() for slice_ in slices]

    @property
    def all_slices(self) -> list[Slice]:
        """All slices of the targets."""
        return [*self.requested_slices, *(slice_ for slices in self.additional.values() for slice_ in slices)]

    def keep_additional(self, located: Collection[Slice]) -> TargetSlices:
        """These without additional slices that were not ``located``."""
        additional = {
            slug: tuple(slice_ for slice_ in slices if slice_ in located) for slug, slices in self.additional.items()
        }
        return replace(self, additional=additional)

    def fold_by_target(
        self, report: StageReport, target_metrics: Mapping[str, Metrics] = MappingProxyType({})
    ) -> StageReport:
        """A report of slices as one of targets. The metrics of a target are the sums over its slices, except those in
        ``target_metrics``."""
        metrics_by_target = {
            slug: sum_metrics(
                [
                    report.per_target[slice_.target]
                    for slice_ in (*slices, *self.additional[slug])
                    if slice_.target in report.per_target
                ]
            )
            | target_metrics.get(slug, {})
            for slug, slices in self.requested.items()
        }
        return replace(report, per_target=metrics_by_target)


def expand_targets(
    workspace: Workspace, crawl: str, slugs: Sequence[str], subsets: Iterable[str] | None = None
) -> TargetSlices:
    """The slices of ``slugs`` in ``crawl`` and the ``subsets`` (default: those that its condition names, else the
    settings'). Raises ``EnvironmentFault`` when the lake cannot be read."""
    candidates = list_candidates(workspace, crawl, slugs, subsets)
    return candidates.keep_additional(_find_located(workspace, candidates.all_slices))


def list_candidates(
    workspace: Workspace,
    crawl: str,
    slugs: Sequence[str],
    subsets: Iterable[str] | None = None,
    parts: Mapping[str, Sequence[str]] | None = None,
    where: Mapping[str, str] | None = None,
) -> TargetSlices:
    """The same with all other subsets, whether they were located or not. ``parts`` are the slugs that define each
    target, ``where`` their conditions (default: as they are registered)."""
    requested_subsets = dict.fromkeys(
        slugs, subsets_in(crawl, workspace.settings.subsets if subsets is None else subsets)
    )
    if where is None:
        texts = definitions.read_definitions(workspace.lake, [slug for slug in slugs if WHERE_SLUG in slug])
        where = {slug: text.partition(" where ")[2] for slug, text in texts.items()}
    for slug, text in where.items():
        if subsets is None and text and (condition_subsets := parse_condition(text).subsets):
            requested_subsets[slug] = subsets_in(crawl, condition_subsets)
    if subsets is None:
        requested_subsets |= _read_named_subsets(workspace, crawl, [slug for slug in slugs if is_named_captures(slug)])
    parts = definitions.find_part_slugs(workspace.lake, slugs) if parts is None else parts

    def build_slices(subsets_of: Callable[[str], Iterable[str]]) -> dict[str, tuple[Slice, ...]]:
        return {
            slug: tuple(Slice(crawl, with_subset(part, subset)) for subset in subsets_of(slug) for part in part_slugs)
            for slug, part_slugs in parts.items()
        }

    additional = build_slices(
        lambda slug: [subset for subset in subsets_in(crawl, SUBSETS) if subset not in requested_subsets[slug]]
    )
    return TargetSlices(crawl, build_slices(lambda slug: requested_subsets[slug]), additional)


def _find_located(workspace: Workspace, slices: Collection[Slice], stage: Stage = LOCATE) -> set[Slice]:
    """The slices that were located, or made by another ``stage``."""
    return {slice_ for (slice_, _), row in read_slice_rows(workspace.lake, slices, (stage,)).items() if row.tables}


def _read_named_subsets(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The subsets in which captures of each target were named one by one in a crawl."""
    slices = {
        (slug, subset): Slice(crawl, named_captures_slug(with_subset(slug, subset)))
        for slug in slugs
        for subset in SUBSETS
    }
    named_slices = _find_located(workspace, [*slices.values()], NAMED_CAPTURES)
    subsets_by_slug = {
        slug: tuple(subset for subset in SUBSETS if slices[slug, subset] in named_slices) for slug in slugs
    }
    return {slug: subsets or (PLAIN,) for slug, subsets in subsets_by_slug.items()}


def find_part_slices(workspace: Workspace, partitions: Collection[Slice]) -> list[Slice]:
    """The slices of whole targets: of a divided set's parts, and of all stored subsets. A target that was never located
    has ``warc``."""
    all_slices: list[Slice] = []
    for crawl, slugs in group_targets_by_crawl(dict.fromkeys(partitions)).items():
        target_slices = expand_targets(workspace, crawl, slugs, (PLAIN,))
        additional_slugs = {
            slice_.definition_slug for slug_slices in target_slices.additional.values() for slice_ in slug_slices
        }
        # a target may have been located in other subsets alone
        additional_slices = {slice_ for slice_ in target_slices.requested_slices if slice_.target in additional_slugs}
        missing_slices = additional_slices - _find_located(workspace, additional_slices)
        all_slices += [slice_ for slice_ in target_slices.all_slices if slice_ not in missing_slices]
    return all_slices


def build_slice_requests(
    workspace: Workspace, slices: Iterable[Slice], versions: Mapping[str, str], blocklist: Blocklist
) -> dict[Slice, SliceRequest]:
    """Builds the request of each slice, by the ``versions`` of the definitions and the blocks of ``blocklist``."""
    slices = list(slices)
    own_versions = {slice_.definition_slug: versions[slice_.definition_slug] for slice_ in slices}
    own_versions = blocklist.qualify_versions(own_versions, workspace.targets)
    return {
        slice_: SliceRequest(own_versions[slice_.definition_slug], slice_.target.startswith(SET_SLUG))
        for slice_ in slices
    }


def empty_obsolete_slices(workspace: Workspace, stage: Stage, target_slices: TargetSlices) -> None:
    """Empties slices of ``stage`` that belong to an earlier division of a set, in the requested subsets. Call it after
    the current slices are committed. Raises ``EnvironmentFault``."""
    for slug, current_slices in target_slices.requested.items():
        obsolete_slices = find_obsolete_slices(workspace, stage, slug, current_slices)
        if not obsolete_slices:
            continue
        if stage is FETCH:
            _note_unreferenced_files(workspace, target_slices.crawl, obsolete_slices, current_slices)
        empty_slices(workspace.lake, stage, obsolete_slices)


def find_obsolete_slices(workspace: Workspace, stage: Stage, slug: str, current_slices: Sequence[Slice]) -> list[Slice]:
    """The slices of ``stage`` that the set ``slug`` had before, no longer has, and that still have rows.
    ``current_slices`` are its current slices of the requested subsets. Empty for other targets."""
    if not slug.startswith(SET_SLUG) or not current_slices:
        return []
    subsets, crawl = {slice_.subset for slice_ in current_slices}, current_slices[0].crawl
    return [
        slice_
        for slice_ in list_slices(workspace.lake, stage, {"crawl": crawl, "target": Prefix(slug)})
        if slice_.partition.target == slug and slice_ not in current_slices and slice_.subset in subsets
    ]


def _note_unreferenced_files(
    workspace: Workspace, crawl: str, obsolete_slices: Sequence[Slice], current_slices: Sequence[Slice]
) -> None:
    """Notes the stored files that only obsolete slices name."""
    stored_files = []
    for slices in (obsolete_slices, current_slices):
        where = {"crawl": crawl, "target": [slice_.target for slice_ in slices]}
        rows = workspace.lake.read("records", where, ["stored_file"])
        stored_files.append(set(rows.column("stored_file").unique().to_pylist()))
    note(workspace.storage, crawl, stored_files[0] - stored_files[1] - {None}, time.time())


def sum_metrics(parts: Sequence[Metrics]) -> Metrics:
    """Sums the metrics of slices. Content digests are combined if every slice has one. Of other texts the longest is
    kept."""
    digest_names = {name for part in parts for name in part if name.startswith(VERSION)}
    totals: Metrics = {
        name: combine_digests(str(part[name]) for part in parts)
        for name in digest_names
        if all(name in part for part in parts)
    }
    for part in parts:
        for name, value in part.items():
            if name in digest_names:
                continue
            total = totals.get(name)
            if isinstance(value, str):
                totals[name] = value if total is None or len(value) > len(str(total)) else total
            else:
                totals[name] = value if total is None or isinstance(total, str) else total + value
    return totals
