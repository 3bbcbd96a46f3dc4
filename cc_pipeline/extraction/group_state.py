"""The state of targets during a run: read once, passed from stage to stage, and compared again by each commit.

A commit compares the rows of ``slices`` that it replaces, those of the stage before, the targets' definitions and
epochs, and the number of the blocklist (``lake/slices.py``). If any differs, the stage is planned again from the state
of the lake.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.blocklist import Blocklist, read_blocklist, read_list_number
from cc_pipeline.extraction.plan import SliceRequest
from cc_pipeline.extraction.slice_selection import TargetSlices, build_slice_requests, list_candidates
from cc_pipeline.extraction.slice_state import SliceState, read_slice_states
from cc_pipeline.lake.slice import Slice, Stage, StageReport
from cc_pipeline.lake.slices import Base, SliceRow, SlicesChanged
from cc_pipeline.lake.target_definitions import read_stored_versions, read_versions
from cc_pipeline.workspace.workspace import Workspace

#: How often a stage is planned for the same targets, while other processes keep changing its inputs.
MAX_PLANS: Final = 5


@dataclass(frozen=True, slots=True)
class GroupState:
    """Targets of one crawl with the requests and the states of their slices. ``versions`` are those of the definitions
    of targets and parts. ``list_number`` is that of the ``blocklist``."""

    target_slices: TargetSlices
    requests: Mapping[Slice, SliceRequest]
    slice_states: Mapping[Slice, SliceState]
    versions: Mapping[str, str]
    list_number: int
    blocklist: Blocklist

    def select(self, slugs: Sequence[str]) -> GroupState:
        """The state of some of the targets."""
        requested = {slug: self.target_slices.requested[slug] for slug in slugs}
        additional = {slug: self.target_slices.additional[slug] for slug in slugs}
        target_slices = TargetSlices(self.target_slices.crawl, requested, additional)
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
        """What a commit of ``slices`` by ``stage`` is made from: this state, and the rows of the stage before."""
        states = {slice_: self.slice_states[slice_] for slice_ in slices}
        return Base(
            {slice_: state.epoch for slice_, state in states.items()},
            {slice_: state.rows[stage.label] for slice_, state in states.items() if stage.label in state.rows},
            {(slice_, previous.label): state.rows[previous.label] for slice_, state in states.items()}
            if previous is not None
            else {},
            partial(self._find_changed, workspace),
        )

    def _find_changed(self, workspace: Workspace, slices: Collection[Slice]) -> Collection[Slice]:
        """The slices whose definition, or the blocks that touch it, differ from this state."""
        versions = read_stored_versions(workspace.lake, sorted({slice_.definition_slug for slice_ in slices}))
        if read_list_number(workspace) == self.list_number:
            return [
                slice_
                for slice_ in slices
                if versions.get(slice_.definition_slug) != self.versions[slice_.definition_slug]
            ]
        defined = [slice_ for slice_ in slices if slice_.definition_slug in versions]
        requests = build_slice_requests(workspace, defined, versions, read_blocklist(workspace))
        return [slice_ for slice_ in slices if requests.get(slice_) != self.requests[slice_]]


def read_group_state(
    workspace: Workspace, crawl: str, slugs: Sequence[str], *, check_stored_files: bool = True
) -> GroupState:
    """Reads the state of targets: definitions and blocks first, then their slices. Keys without a definition are
    defined. Raises ``UserInputError`` for keys that cannot be, ``EnvironmentFault`` if the lake cannot be read, or its
    store cannot be listed."""
    # the number first: a change in between is found by the commit
    number, blocklist = read_list_number(workspace), read_blocklist(workspace)
    versions = read_versions(workspace.lake, slugs)
    candidates = list_candidates(workspace, crawl, slugs)
    parts = {slice_.definition_slug for slice_ in candidates.all_slices}
    versions |= read_stored_versions(workspace.lake, sorted(parts - versions.keys()))
    states = read_slice_states(workspace, candidates.all_slices, check_stored_files=check_stored_files)
    target_slices = candidates.keep_additional({slice_ for slice_, state in states.items() if state.located})
    return GroupState(
        target_slices,
        build_slice_requests(workspace, target_slices.all_slices, versions, blocklist),
        {slice_: states[slice_] for slice_ in target_slices.all_slices},
        versions,
        number,
        blocklist,
    )


class RunState:
    """The states of targets that a run has read, by crawl and slug, for its next stage."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._states: dict[tuple[str, str], GroupState] = {}
        #: Targets whose state was read before.
        self._read_slugs: set[str] = set()

    def take(self, crawl: str, slugs: Sequence[str]) -> GroupState:
        """The state of targets: from the stage before, else from the lake. Raises as :func:`read_group_state`, and
        ``EnvironmentFault`` for a target that was removed since the run read it: the run does not bring it back."""
        states = [self._states.pop((crawl, slug), None) for slug in slugs]
        if states and (first := states[0]) is not None and all(state is first for state in states):
            return first.select(slugs)
        read_before = sorted(self._read_slugs.intersection(slugs))
        if removed := sorted({*read_before} - read_stored_versions(self._workspace.lake, read_before).keys()):
            raise EnvironmentFault(
                f"{', '.join(removed[:3])} was removed during this run", "To extract it anew, run it again."
            )
        state = read_group_state(self._workspace, crawl, slugs)
        self._read_slugs.update(slugs)
        return state

    def keep(self, state: GroupState) -> None:
        """Passes a state to the next stage."""
        self._states |= {(state.target_slices.crawl, slug): state for slug in state.target_slices.requested}

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
