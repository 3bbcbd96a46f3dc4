"""Stages over targets, where a large set is many slices: they are called with its parts, and report of the set."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Concatenate, ParamSpec

from cc_pipeline.commoncrawl.parts import SEPARATOR, whole_slug
from cc_pipeline.commoncrawl.target_text import SET_SLUG
from cc_pipeline.extraction.shortfall import NotGiven
from cc_pipeline.extraction.slice import (
    FETCH,
    GONE,
    VERSION,
    Figures,
    Slice,
    Stage,
    StageReport,
    empty_slices,
    slices_of,
)
from cc_pipeline.lake.contents import together
from cc_pipeline.records.superseded import note
from cc_pipeline.stages.workspace import Workspace

P = ParamSpec("P")
#: A stage over targets in a crawl: workspace, crawl, slugs, and options.
StageCall = Callable[Concatenate[Workspace, str, Sequence[str], P], StageReport]


def over_parts(made: Stage, beside: str = "") -> Callable[[StageCall[P]], StageCall[P]]:
    """For a function that makes slices of ``made``: it is called with the parts of divided sets in their place, and its
    report is folded back. Slices that a set no longer has are emptied afterwards, in ``beside`` too (a table with a
    row for each slice)."""

    def over(stage: StageCall[P]) -> StageCall[P]:
        @functools.wraps(stage)
        def over_all(
            workspace: Workspace, crawl: str, slugs: Sequence[str], /, *args: P.args, **options: P.kwargs
        ) -> StageReport:
            parts = workspace.parts(slugs)
            try:
                report = folded(stage(workspace, crawl, _all(parts), *args, **options), parts)
            except NotGiven as refusal:
                # what came was committed, if anything did
                refusal.report = folded(refusal.report, parts)
                retire_others(workspace, made, crawl, _made(workspace, made, crawl, parts), beside)
                raise
            retire_others(workspace, made, crawl, parts, beside)
            return report

        return over_all

    return over


def part_slices(workspace: Workspace, slices: Collection[Slice]) -> list[Slice]:
    """``slices`` with those of a set's parts in the place of a divided set's."""
    parts = workspace.parts(list(dict.fromkeys(slice_.target for slice_ in slices)))
    return [Slice(slice_.crawl, part) for slice_ in slices for part in parts[slice_.target]]


def folded(report: StageReport, parts: Mapping[str, Sequence[str]]) -> StageReport:
    """A report whose figures are of the targets in ``parts``, each the sum of its parts', but for those that the stage
    gave of the target itself."""
    if all(len(several) == 1 for several in parts.values()):
        return report
    own = {
        slug: summed([report.per_target[part] for part in several]) | report.per_target.get(slug, {})
        for slug, several in parts.items()
    }
    return replace(report, per_target=own)


def retire_others(
    workspace: Workspace, stage: Stage, crawl: str, parts: Mapping[str, Sequence[str]], beside: str = ""
) -> None:
    """Empties the slices of ``stage`` in ``crawl`` that the sets in ``parts`` were divided into before. Call it when
    those of now are there. Raises ``EnvironmentFault``."""
    lake = workspace.lake
    for slug, own in parts.items():
        left = left_over(workspace, stage, crawl, slug, own)
        if not left:
            continue
        if stage is FETCH:
            _note_files(workspace, crawl, left, own)
        if beside:
            empty_slices(lake, beside, left)
        empty = {table: lake.specs[table].schema.empty_table() for table in stage.tables}
        stage.commit(lake, dict.fromkeys(left, GONE), empty)


def left_over(workspace: Workspace, stage: Stage, crawl: str, slug: str, own: Collection[str]) -> list[Slice]:
    """The slices of ``stage`` in ``crawl`` that the set ``slug`` had before and has no longer, and that still have
    rows: its parts are ``own`` now. None for other targets."""
    if not slug.startswith(SET_SLUG):
        return []
    first = stage.digest_name(Slice(crawl, slug))
    named = [name for name in workspace.lake.digest_names(stage.main_table) or () if name.startswith(first)]
    found = [slice_ for slice_ in map(stage.slice_of, named) if slice_ is not None]
    others = [one for one in found if whole_slug(one.target) == slug and one.target not in own]
    here = stage.made_from(workspace.lake, others)
    return [slice_ for slice_ in others if here[slice_] != GONE]


def _note_files(workspace: Workspace, crawl: str, left: Sequence[Slice], own: Sequence[str]) -> None:
    """Notes the stored files that only slices which go name."""
    named = []
    for targets in ([slice_.target for slice_ in left], list(own)):
        rows = workspace.lake.read("records", {"crawl": crawl, "target": targets}, ["stored_file"])
        named.append(set(rows.column("stored_file").unique().to_pylist()))
    note(workspace.storage, crawl, named[0] - named[1] - {None}, time.time())


def _made(
    workspace: Workspace, stage: Stage, crawl: str, parts: Mapping[str, Sequence[str]]
) -> dict[str, Sequence[str]]:
    """Those of ``parts`` all of whose slices are there."""
    here = stage.made_from(workspace.lake, slices_of(crawl, _all(parts)))
    return {
        slug: own
        for slug, own in parts.items()
        if not {here[slice_] for slice_ in slices_of(crawl, own)} & {None, GONE}
    }


def is_divided(parts: Mapping[str, Sequence[str]], slug: str) -> bool:
    """Whether a target has its slices under other slugs than its own."""
    return any(SEPARATOR in part for part in parts[slug])


def _all(parts: Mapping[str, Iterable[str]]) -> list[str]:
    return [part for several in parts.values() for part in several]


def summed(several: Sequence[Figures]) -> Figures:
    """Numbers added up; what the parts' rows say, if that is known of all; of other texts, which say what is so of each
    part, the first that says more than the others."""
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
