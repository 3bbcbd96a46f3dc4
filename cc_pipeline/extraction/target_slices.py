"""Maps targets to slices before a stage, and reports of slices to reports of targets after it.

A large set is many slices, and each subset of a crawl is another. No stage needs to know.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.commoncrawl.filters import parse_condition
from cc_pipeline.commoncrawl.slice_slugs import PLAIN, given_slug, is_given, subsets_in, with_subset
from cc_pipeline.commoncrawl.target import WHERE_SLUG
from cc_pipeline.commoncrawl.target_text import SET_SLUG
from cc_pipeline.extraction.blocked import Blocked, blocked
from cc_pipeline.extraction.plan import Wanted
from cc_pipeline.lake import target_definitions as definitions
from cc_pipeline.lake.digests.digest import together
from cc_pipeline.lake.slice import (
    FETCH,
    GIVEN,
    GONE,
    LOCATE,
    VERSION,
    Figures,
    Slice,
    Stage,
    StageReport,
    empty_slices,
    targets_by_crawl,
)
from cc_pipeline.records.sweep import note
from cc_pipeline.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Asked:
    """The slices of targets in one crawl, by the target's slug: the requested ones, and, in ``beside``, stored ones of
    other subsets."""

    crawl: str
    for_: Mapping[str, tuple[Slice, ...]]
    beside: Mapping[str, tuple[Slice, ...]]

    @property
    def slices(self) -> list[Slice]:
        """The requested slices."""
        return [slice_ for own in self.for_.values() for slice_ in own]

    @property
    def every(self) -> list[Slice]:
        """All slices of the targets."""
        return [*self.slices, *(slice_ for own in self.beside.values() for slice_ in own)]

    def folded(self, report: StageReport, whole: Mapping[str, Figures] = MappingProxyType({})) -> StageReport:
        """A report of slices as one of targets. The metrics of a target are the sums over its slices, except those in
        ``whole``."""
        own = {
            slug: summed(
                [
                    report.per_target[one.target]
                    for one in (*slices, *self.beside[slug])
                    if one.target in report.per_target
                ]
            )
            | whole.get(slug, {})
            for slug, slices in self.for_.items()
        }
        return replace(report, per_target=own)


def expand(
    workspace: Workspace,
    crawl: str,
    slugs: Sequence[str],
    subsets: Iterable[str] | None = None,
    parts: Mapping[str, Sequence[str]] | None = None,
    where: Mapping[str, str] | None = None,
) -> Asked:
    """The slices of ``slugs`` in ``crawl`` and the ``subsets`` (default: those that its condition names, else the
    settings'). ``parts`` are the slugs that define each, ``where`` their conditions (default: as they are registered).

    Raises ``EnvironmentFault`` when the lake cannot be read.
    """
    asked = dict.fromkeys(slugs, subsets_in(crawl, workspace.settings.subsets if subsets is None else subsets))
    if where is None:
        texts = definitions.definitions(workspace.lake, [slug for slug in slugs if WHERE_SLUG in slug])
        where = {slug: text.partition(" where ")[2] for slug, text in texts.items()}
    for slug, text in where.items():
        if subsets is None and text and (named := parse_condition(text).subsets):
            asked[slug] = subsets_in(crawl, named)
    if subsets is None:
        asked |= _given(workspace, crawl, [slug for slug in slugs if is_given(slug)])
    parts = definitions.parts_of(workspace.lake, slugs) if parts is None else parts

    def slices(of: Callable[[str], Iterable[str]]) -> dict[str, tuple[Slice, ...]]:
        return {
            slug: tuple(Slice(crawl, with_subset(p, s)) for s in of(slug) for p in own) for slug, own in parts.items()
        }

    beside = slices(lambda slug: [subset for subset in subsets_in(crawl, SUBSETS) if subset not in asked[slug]])
    here = LOCATE.made_from(workspace.lake, [one for own in beside.values() for one in own])
    there = {slug: tuple(one for one in own if here[one] not in (None, GONE)) for slug, own in beside.items()}
    return Asked(crawl, slices(lambda slug: asked[slug]), there)


def _given(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The subsets in which captures of each target were named one by one in a crawl."""
    slices = {(slug, one): Slice(crawl, given_slug(with_subset(slug, one))) for slug in slugs for one in SUBSETS}
    here = GIVEN.made_from(workspace.lake, slices.values()) if slices else {}
    found = {slug: tuple(one for one in SUBSETS if here[slices[slug, one]] not in (None, GONE)) for slug in slugs}
    return {slug: subsets or (PLAIN,) for slug, subsets in found.items()}


def part_slices(workspace: Workspace, partitions: Collection[Slice]) -> list[Slice]:
    """The slices of whole targets: of a divided set's parts, and of all stored subsets. A target that was never located
    has ``warc``."""
    found: list[Slice] = []
    for crawl, slugs in targets_by_crawl(dict.fromkeys(partitions)).items():
        asked = expand(workspace, crawl, slugs, (PLAIN,))
        elsewhere = {slice_.defined for own in asked.beside.values() for slice_ in own}
        here = LOCATE.made_from(workspace.lake, [one for one in asked.slices if one.target in elsewhere])
        found += [one for one in asked.every if here.get(one, "") not in (None, GONE)]
    return found


def wishes(workspace: Workspace, slices: Iterable[Slice], block: Blocked | None = None) -> dict[Slice, Wanted]:
    """Builds the request of each slice, with the blocks of ``block`` (default: the current blocklist). Keys without a
    definition are defined; raises ``UserInputError`` for keys that cannot be."""
    slices = list(slices)
    versions = definitions.versions(workspace.lake, list(dict.fromkeys(slice_.defined for slice_ in slices)))
    versions = (blocked(workspace) if block is None else block).versions(versions, workspace.targets)
    return {slice_: Wanted(versions[slice_.defined], slice_.target.startswith(SET_SLUG)) for slice_ in slices}


def retire_others(
    workspace: Workspace, stage: Stage, asked: Asked, beside: str = "", only: Collection[str] | None = None
) -> None:
    """Empties slices of ``stage`` that belong to an earlier division of a set, in the requested subsets, and their rows
    in the table ``beside``. ``only`` limits it to these sets. Call it after the current slices are committed. Raises
    ``EnvironmentFault``."""
    lake = workspace.lake
    for slug, own in asked.for_.items():
        left = left_over(workspace, stage, slug, own) if only is None or slug in only else []
        if not left:
            continue
        if stage is FETCH:
            _note_files(workspace, asked.crawl, left, own)
        if beside:
            empty_slices(lake, beside, left)
        empty = {table: lake.specs[table].schema.empty_table() for table in stage.tables}
        stage.commit(lake, dict.fromkeys(left, GONE), empty)


def left_over(workspace: Workspace, stage: Stage, slug: str, own: Sequence[Slice]) -> list[Slice]:
    """The slices of ``stage`` that the set ``slug`` had before, no longer has, and that still have rows. ``own`` are
    its current slices of the requested subsets. Empty for other targets."""
    if not slug.startswith(SET_SLUG) or not own:
        return []
    subsets = {slice_.subset for slice_ in own}
    found = stage.beginning_with(workspace.lake, Slice(own[0].crawl, slug))
    others = [one for one in found if one.whole.target == slug and one not in own and one.subset in subsets]
    here = stage.made_from(workspace.lake, others)
    return [slice_ for slice_ in others if here[slice_] != GONE]


def _note_files(workspace: Workspace, crawl: str, left: Sequence[Slice], own: Sequence[Slice]) -> None:
    """Notes the stored files that only obsolete slices name."""
    named = []
    for slices in (left, own):
        where = {"crawl": crawl, "target": [slice_.target for slice_ in slices]}
        rows = workspace.lake.read("records", where, ["stored_file"])
        named.append(set(rows.column("stored_file").unique().to_pylist()))
    note(workspace.storage, crawl, named[0] - named[1] - {None}, time.time())


def summed(several: Sequence[Figures]) -> Figures:
    """Sums the metrics of slices. Content digests are combined if every slice has one. Of other texts the longest is
    kept."""
    named = {name for own in several for name in own if name.startswith(VERSION)}
    found: Figures = {
        name: together(str(own[name]) for own in several) for name in named if all(name in own for own in several)
    }
    for own in several:
        for name, value in own.items():
            if name in named:
                continue
            known = found.get(name)
            if isinstance(value, str):
                found[name] = value if known is None or len(value) > len(str(known)) else known
            else:
                found[name] = value if known is None or isinstance(known, str) else known + value
    return found
