"""The state of targets during a run: read once, passed from stage to stage, and compared again by each commit.

A commit compares the rows of ``slices`` that it replaces, the content of the stage before, the targets' definitions and
epochs, and the number of the blocklist (``lake/slices.py``). If any differs, the stage is planned again from the state of
the lake.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from cc_pipeline.extraction.blocklist import Blocklist, read_list_number, read_numbered_list
from cc_pipeline.extraction.slice_selection import TargetSlices, expand_targets
from cc_pipeline.extraction.slice_state import SliceState, read_slice_states
from cc_pipeline.lake.slice import Slice, Stage, StageReport
from cc_pipeline.lake.slices import Base, SliceRow, SlicesChanged
from cc_pipeline.lake.target_definitions import read_stored_versions, read_versions
from cc_pipeline.workspace.workspace import Workspace

#: How often a stage is planned for the same targets, while other processes keep changing its inputs.
MAX_PLANS: Final = 5


@dataclass(frozen=True, slots=True)
class GroupState:
    """Targets of one crawl with their slices and the states of these; ``versions`` are those of their definitions, and
    of these parts, as they are stored. ``list_number`` is that of the ``blocklist``."""

    target_slices: TargetSlices
    slice_states: Mapping[Slice, SliceState]
    versions: Mapping[str, str]
    list_number: int
    blocklist: Blocklist

    def select_target(self, slug: str) -> GroupState:
        """The state of one target."""
        target_slices = TargetSlices(
            self.target_slices.crawl,
            {slug: self.target_slices.requested[slug]},
            {slug: self.target_slices.additional[slug]},
        )
        states = {slice_: self.slice_states[slice_] for slice_ in target_slices.all_slices}
        return replace(self, target_slices=target_slices, slice_states=states)

    def with_rows(self, rows: Collection[SliceRow]) -> GroupState:
        """The state after ``rows`` were committed."""
        states = dict(self.slice_states)
        for row in rows:
            states[row.slice_] = states[row.slice_].with_row(row)
        return replace(self, slice_states=states)

    def base(
        self, workspace: Workspace, stage: Stage, slices: Collection[Slice], previous: Stage | None = None
    ) -> Base:
        """What a commit of ``slices`` by ``stage`` is made from: this state, and the content of the stage before."""
        states = {slice_: self.slice_states[slice_] for slice_ in slices}
        expected = {}
        if previous is not None:
            for slice_, state in states.items():
                row = state.made(previous)
                assert row is not None, "the stage before was made"
                expected[slice_, previous.label] = row.content
        return Base(
            {slice_: state.epoch for slice_, state in states.items()},
            {slice_: state.rows[stage.label] for slice_, state in states.items() if stage.label in state.rows},
            expected,
            partial(self._find_changed, workspace),
        )

    def _find_changed(self, workspace: Workspace, slices: Collection[Slice]) -> Collection[Slice]:
        """The slices whose definition or blocks may differ from this state."""
        if read_list_number(workspace) != self.list_number:
            return slices
        slugs = sorted({slice_.definition_slug for slice_ in slices})
        versions = read_stored_versions(workspace.lake, slugs)
        return [
            slice_
            for slice_ in slices
            if versions.get(slice_.definition_slug) != self.versions.get(slice_.definition_slug)
        ]


def read_group_state(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> GroupState:
    """Reads the state of targets: definitions and blocks first, then their slices. Raises ``EnvironmentFault`` if the
    lake cannot be read, or its store cannot be listed."""
    number, blocklist = read_numbered_list(workspace)
    read_versions(workspace.lake, slugs)  # keys without a definition are defined
    target_slices = expand_targets(workspace, crawl, slugs)
    parts = sorted({slice_.definition_slug for slice_ in target_slices.all_slices})
    versions = read_stored_versions(workspace.lake, parts)
    states = read_slice_states(workspace, target_slices.all_slices)
    return GroupState(target_slices, states, versions, number, blocklist)


class RunState:
    """The states of targets that a run has read, by crawl and slug, for its next stage."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._states: dict[tuple[str, str], GroupState] = {}

    def take(self, crawl: str, slugs: Sequence[str]) -> GroupState:
        """The state of targets: from the stage before, else from the lake. Raises as :func:`read_group_state`."""
        states = [self._states.pop((crawl, slug), None) for slug in slugs]
        kept = [state for state in states if state is not None]
        if len(kept) < len(states) or len({state.list_number for state in kept}) != 1:
            return read_group_state(self._workspace, crawl, slugs)
        requested: dict[str, tuple[Slice, ...]] = {}
        additional: dict[str, tuple[Slice, ...]] = {}
        slice_states: dict[Slice, SliceState] = {}
        versions: dict[str, str] = {}
        for state in kept:
            requested |= state.target_slices.requested
            additional |= state.target_slices.additional
            slice_states |= state.slice_states
            versions |= state.versions
        target_slices = TargetSlices(crawl, requested, additional)
        return replace(kept[0], target_slices=target_slices, slice_states=slice_states, versions=versions)

    def keep(self, state: GroupState) -> None:
        """Passes a state to the next stage."""
        for slug in state.target_slices.requested:
            self._states[state.target_slices.crawl, slug] = state.select_target(slug)

    def drop(self, crawl: str, slugs: Sequence[str]) -> None:
        """Makes the next stage read the state of these targets from the lake."""
        for slug in slugs:
            self._states.pop((crawl, slug), None)


def run_and_replan(
    run: RunState,
    crawl: str,
    slugs: Sequence[str],
    stage: Callable[[], StageReport],
    *,
    relocates: bool = False,
) -> StageReport:
    """Calls ``stage`` for ``slugs`` in ``crawl`` and returns its report. If an input changed before a commit, the stage
    is called again and plans anew. Raises ``SlicesChanged`` if inputs keep changing, or if captures have to be located
    again, which not every stage does (``relocates``)."""
    for remaining_tries in reversed(range(MAX_PLANS)):
        try:
            return stage()
        except SlicesChanged as changed:
            run.drop(crawl, slugs)
            if not remaining_tries or (changed.relocate and not relocates):
                raise
    raise AssertionError("no plan was left")
