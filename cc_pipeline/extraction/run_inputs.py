"""Checks before each commit that its inputs are unchanged: the targets' definitions, the blocklist, the previous
stage's rows, and the state of the slices that it replaces.

A run has a lease that names its targets, so that no purge of them begins while it may commit. It reads their state
once, and passes it from stage to stage as a value. Each of its commits checks, once the version that it replaces is
pinned, that the lease still holds and that all inputs of the stage are unchanged. Otherwise the stage is planned again,
from the current state of the lake.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.blocklist import Blocklist, list_digest, read_blocklist
from cc_pipeline.extraction.slice_selection import TargetSlices, expand_targets
from cc_pipeline.extraction.slice_state import SliceState, read_content_digests, read_slice_states
from cc_pipeline.lake.slice import EMPTIED_DIGEST, Slice, Stage, StageReport, content_name
from cc_pipeline.lake.target_definitions import read_stored_versions, was_purged
from cc_pipeline.records.file_leases import PURGES, RUNS, FileLease, lease_of, leases_of
from cc_pipeline.workspace.workspace import Workspace

#: How often a stage is planned for the same targets, while other processes keep changing its inputs.
MAX_PLANS: Final = 5


class InputsChanged(EnvironmentFault):
    """The inputs of a stage changed before it could commit; nothing was committed. ``relocate``: the captures have to
    be located again, because a definition or the blocklist changed."""

    relocate = False


@dataclass(frozen=True, slots=True)
class GroupState:
    """Targets of one crawl with their slices and the states of these."""

    target_slices: TargetSlices
    slice_states: Mapping[Slice, SliceState]

    def select_target(self, slug: str) -> GroupState:
        """The state of one target."""
        target_slices = TargetSlices(
            self.target_slices.crawl,
            {slug: self.target_slices.requested[slug]},
            {slug: self.target_slices.additional[slug]},
        )
        return GroupState(target_slices, {slice_: self.slice_states[slice_] for slice_ in target_slices.all_slices})

    def replace_states(self, slice_states: Mapping[Slice, SliceState]) -> GroupState:
        """The same targets with the given new states of some slices."""
        return GroupState(self.target_slices, {**self.slice_states, **slice_states})


class RunInputs:
    """The lease of a run on its ``partitions`` (slugs by crawl), and the inputs of its stages."""

    def __init__(self, workspace: Workspace, lease: FileLease, partitions: Mapping[str, Collection[str]]) -> None:
        self._workspace = workspace
        self._lease = lease
        lease.is_intact = self._has_no_purge_begun
        self._partitions = partitions
        self._definitions: dict[str, str] = {}
        self._targets_version: int | None = None
        self._blocklist_digest: str | None = None
        self._blocklist: tuple[str | None, Blocklist] | None = None
        self._began = False
        self._expected: dict[Stage, dict[Slice, str | None]] = {}
        self._expected_versions: dict[str, int] = {}
        self._replaced: tuple[Stage, Mapping[Slice, SliceState]] | None = None
        self._replaced_version: int | None = None
        self._states: dict[tuple[str, str], GroupState] = {}

    def covers(self, partitions: Mapping[str, Collection[str]]) -> bool:
        """Whether the lease covers all of these partitions."""
        return all(slug in self._partitions.get(crawl, ()) for crawl, slugs in partitions.items() for slug in slugs)

    def begin(self, slugs: Sequence[str]) -> None:
        """Begins a stage: notes the definitions of ``slugs`` and the blocklist before anything else is read, unless an
        earlier stage of the run did. Raises ``EnvironmentFault`` if one of them is being purged."""
        self._expected, self._expected_versions = {}, {}
        new = [slug for slug in slugs if slug not in self._definitions]
        if not new and not self._have_targets_moved():
            return
        self._refuse_purged(slugs)
        # before the table is read, so that a commit meanwhile is a later one
        version = self._workspace.lake.version("targets")
        if not self._began:
            self._targets_version = version
            self._blocklist_digest, self._began = list_digest(self._workspace), True
        if new:
            # earlier definitions were read at another version: the next commit compares all of them
            self._targets_version = version if version == self._targets_version else None
            self._definitions |= read_stored_versions(self._workspace.lake, new)

    def forget(self) -> None:
        """Makes the next stage note the definitions and the blocklist again."""
        self._definitions, self._began = {}, False
        self._states.clear()

    def read_blocklist(self) -> Blocklist:
        """The current blocklist; it is read again only if it changed. Raises ``EnvironmentFault``."""
        digest = list_digest(self._workspace) if self._have_targets_moved() else self._blocklist_digest
        if self._blocklist is None or self._blocklist[0] != digest:
            self._blocklist = digest, read_blocklist(self._workspace)
        return self._blocklist[1]

    def take_state(self, crawl: str, slugs: Sequence[str]) -> GroupState:
        """The state of targets: from the stage before, else from the lake. The caller may keep the state after its own
        commits (:meth:`keep_state`); else the next stage reads it from the lake. Raises ``EnvironmentFault`` if the
        lake cannot be read, or its store cannot be listed."""
        kept_states = [self._states.pop((crawl, slug), None) for slug in slugs]
        stored_states = [state for state in kept_states if state is not None]
        if len(stored_states) < len(kept_states):
            target_slices = expand_targets(self._workspace, crawl, slugs)
            return GroupState(target_slices, read_slice_states(self._workspace, target_slices.all_slices))
        requested: dict[str, tuple[Slice, ...]] = {}
        additional: dict[str, tuple[Slice, ...]] = {}
        slice_states: dict[Slice, SliceState] = {}
        for state in stored_states:
            requested |= state.target_slices.requested
            additional |= state.target_slices.additional
            slice_states |= state.slice_states
        return GroupState(TargetSlices(crawl, requested, additional), slice_states)

    def keep_state(self, state: GroupState) -> None:
        """Passes a state to the next stage."""
        for slug in state.target_slices.requested:
            self._states[state.target_slices.crawl, slug] = state.select_target(slug)

    def drop_state(self, crawl: str, slugs: Sequence[str]) -> None:
        """Makes the next stage read the state of these targets from the lake."""
        for slug in slugs:
            self._states.pop((crawl, slug), None)

    def expect(self, stage: Stage, expected_digests: Mapping[Slice, str | None]) -> None:
        """Makes each commit from now on compare the content digests of an earlier ``stage`` with
        ``expected_digests``."""
        self._expected[stage] = dict(expected_digests)

    @contextmanager
    def replacing(self, stage: Stage, previous_states: Mapping[Slice, SliceState]) -> Iterator[None]:
        """Makes each commit in the block compare the slices that it replaces with the states ``previous_states``: their
        input and content digests. Raises ``InputsChanged`` at once if they differ already."""
        self._replaced, self._replaced_version = (stage, previous_states), None
        try:
            # a commit takes the kept handle, so a look within it would open the table anew; it does so only if the
            # table changed
            self._compare_replaced()
            yield
        finally:
            self._replaced = None

    def check(self) -> None:
        """Raises ``LeaseExpired`` if a purge may have begun while this process was stopped, ``InputsChanged`` if any
        input of the stage changed."""
        self._lease.confirm()
        self._compare_definitions()
        self._compare_contents()
        self._compare_replaced()

    def _have_targets_moved(self) -> bool:
        """Whether a target may have been defined, blocked or purged since the definitions and the blocklist were
        noted."""
        return self._targets_version is None or self._workspace.lake.has_moved("targets", self._targets_version)

    def _has_no_purge_begun(self) -> bool:
        """Whether ``targets``, where each purge is noted first, is as it was when the definitions were noted."""
        return self._targets_version is not None and self._find_new_version("targets", self._targets_version) is None

    def _refuse_purged(self, slugs: Sequence[str]) -> None:
        self._workspace.lake.invalidate("targets")
        if not was_purged(self._workspace.lake, slugs):
            return
        for purge in leases_of(self._workspace.storage, PURGES)[0]:
            if purge.concerns(slugs):
                purged_slugs = sorted(purge.targets.intersection(slugs)) if purge.targets is not None else slugs
                raise EnvironmentFault(
                    f"{', '.join(purged_slugs[:3])} is being purged by {purge.holder}",
                    "Wait until the purge has finished, then run it again.",
                )

    def _compare_definitions(self) -> None:
        version = self._find_new_version("targets", self._targets_version)
        if version is None:
            return
        if list_digest(self._workspace) != self._blocklist_digest:
            raise _relocate("a site was blocked or unblocked during this run")
        versions = read_stored_versions(self._workspace.lake, [*self._definitions])
        for slug, old_version in self._definitions.items():
            if versions.get(slug) != old_version:
                change = "was removed" if slug not in versions else "was redefined"
                raise _relocate(f"the target {slug} {change} during this run")
        self._targets_version = version

    def _compare_contents(self) -> None:
        for stage, expected_digests in self._expected.items():
            version = self._find_new_version(stage.main_table, self._expected_versions.get(stage.main_table))
            if version is None:
                continue
            current_digests = read_content_digests(self._workspace.lake, stage, expected_digests.keys())
            for slice_, expected_digest in expected_digests.items():
                if current_digests[slice_] != expected_digest:
                    raise InputsChanged(
                        f"{stage.main_table} of {slice_.partition.target} in {slice_.crawl} changed while this run was "
                        "reading them",
                        "Run it again: fetched records are kept and used.",
                    )
            self._expected_versions[stage.main_table] = version

    def _compare_replaced(self) -> None:
        if self._replaced is None:
            return
        stage, previous_states = self._replaced
        version = self._find_new_version(stage.main_table, self._replaced_version)
        if version is None:
            return
        names = {slice_: (stage.digest_name(slice_), content_name(slice_)) for slice_ in previous_states}
        digests = self._workspace.lake.digests(stage.main_table, [name for pair in names.values() for name in pair])
        for slice_, (digest, content) in names.items():
            is_present = digests[digest] not in (None, EMPTIED_DIGEST)
            current_pair = (digests[digest], digests[content]) if is_present else (None, None)
            if current_pair != previous_states[slice_].replaced_digests(stage):
                raise InputsChanged(
                    f"{stage.main_table} of {slice_.partition.target} in {slice_.crawl} was written by another run "
                    "at the same time",
                    "Run it again: fetched records are kept and used.",
                )
        self._replaced_version = version

    def _find_new_version(self, table: str, old_version: int | None) -> int | None:
        """The version of a table if it may differ from ``old_version`` (``None``: it was not compared yet); ``None`` if
        it is the same."""
        lake = self._workspace.lake
        if old_version is not None and not lake.has_moved(table, old_version):
            return None
        lake.invalidate(table)
        version = lake.version(table)
        return None if version == old_version else version


def _relocate(problem: str) -> InputsChanged:
    changed = InputsChanged(problem, "Run it again, beginning with captures: fetched records are kept and used.")
    changed.relocate = True
    return changed


@dataclass(slots=True)
class _RunningRuns:
    """The runs that a workspace is in, one within another."""

    runs: list[RunInputs] = field(default_factory=list)


@contextmanager
def hold_run_lease(workspace: Workspace, partitions: Mapping[str, Collection[str]]) -> Iterator[RunInputs]:
    """Holds a lease on ``partitions`` (slugs by crawl) until the end of the block. A run around it whose lease covers
    them is used instead. Raises ``EnvironmentFault`` if the lease cannot be written."""
    running = workspace.command_value(_RunningRuns)
    for run in running.runs:
        if run.covers(partitions):
            yield run
            return
    slugs = {slug for crawl_slugs in partitions.values() for slug in crawl_slugs}
    with lease_of(workspace.storage, RUNS, slugs, partitions) as lease:
        run = RunInputs(workspace, lease, partitions)
        running.runs.append(run)
        try:
            yield run
        finally:
            running.runs.remove(run)


def run_and_replan(
    workspace: Workspace,
    crawl: str,
    slugs: Sequence[str],
    stage: Callable[[RunInputs], StageReport],
    *,
    relocates: bool = False,
) -> StageReport:
    """Calls ``stage`` for ``slugs`` in ``crawl`` and returns its report. If an input changed before a commit, the stage
    is called again and plans anew. Raises ``InputsChanged`` if inputs keep changing, or if captures have to be located
    again, which not every stage does (``relocates``); ``EnvironmentFault`` for targets that are being purged, and for a
    run that was stopped for too long."""
    with hold_run_lease(workspace, {crawl: slugs}) as run:
        for remaining_tries in reversed(range(MAX_PLANS)):
            run.begin(slugs)
            try:
                with workspace.lake.checked(run.check):
                    return stage(run)
            except InputsChanged as changed:
                workspace.lake.invalidate()
                run.drop_state(crawl, slugs)
                if not remaining_tries or (changed.relocate and not relocates):
                    raise
                if changed.relocate:
                    run.forget()
    raise AssertionError("no plan was left")
