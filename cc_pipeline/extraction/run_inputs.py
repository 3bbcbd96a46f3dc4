"""A commit belongs to what it was made from: targets' definitions, the blocklist, the previous stage's rows, and the
state of the slices that it replaces.

A run has a lease that names its targets, so that no purge of them begins while it may commit. It reads how they stand
once, and hands that from stage to stage as a value. Each of its commits looks, once the version that it replaces is
pinned, whether that lease still holds and whether everything that the stage began with is as it was; else the stage is
planned again, from what the lake has now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.blocked import Blocked, blocked, list_digest
from cc_pipeline.extraction.standing import Standing, contents, stand
from cc_pipeline.extraction.target_slices import Asked, expand
from cc_pipeline.lake.slice import GONE, Slice, Stage, StageReport, content_name
from cc_pipeline.lake.target_definitions import known_versions, was_purged
from cc_pipeline.records.leases import PURGES, RUNS, Lease, lease_of, leases_of
from cc_pipeline.workspace.workspace import Workspace

#: How often a stage is planned for the same targets, while others keep changing what it is made from.
PLANS: Final = 5


class InputsChanged(EnvironmentFault):
    """What a stage began with changed before it could commit; nothing was committed. ``relocate`` says that the
    captures have to be located again: a definition or the blocklist changed."""

    relocate = False


@dataclass(frozen=True, slots=True)
class GroupState:
    """Targets of one crawl with their slices, and how each of these stands."""

    asked: Asked
    standings: Mapping[Slice, Standing]

    def of(self, slug: str) -> GroupState:
        """The part of one target."""
        asked = Asked(self.asked.crawl, {slug: self.asked.for_[slug]}, {slug: self.asked.beside[slug]})
        return GroupState(asked, {slice_: self.standings[slice_] for slice_ in asked.every})

    def changed(self, standings: Mapping[Slice, Standing]) -> GroupState:
        """The same targets, some of whose slices stand otherwise."""
        return GroupState(self.asked, {**self.standings, **standings})


class RunInputs:
    """The lease of a run on its ``partitions`` (slugs by crawl), and what its stages began with."""

    def __init__(self, workspace: Workspace, lease: Lease, partitions: Mapping[str, Collection[str]]) -> None:
        self._workspace = workspace
        self._lease = lease
        self._partitions = partitions
        self._definitions: dict[str, str] = {}
        self._targets_version: int | None = None
        self._blocks: str | None = None
        self._block_list: tuple[str | None, Blocked] | None = None
        self._began = False
        self._expected: dict[Stage, dict[Slice, str | None]] = {}
        self._expected_versions: dict[str, int] = {}
        self._replaced: tuple[Stage, Mapping[Slice, Standing]] | None = None
        self._replaced_version: int | None = None
        self._states: dict[tuple[str, str], GroupState] = {}

    def covers(self, partitions: Mapping[str, Collection[str]]) -> bool:
        """Whether the lease is about all of these."""
        return all(slug in self._partitions.get(crawl, ()) for crawl, slugs in partitions.items() for slug in slugs)

    def begin(self, slugs: Sequence[str]) -> None:
        """Begins a stage: notes how ``slugs`` are defined and what is blocked, unless an earlier stage of the run did,
        before anything else is read. Raises ``EnvironmentFault`` where one of them is being purged."""
        self._refuse_purged(slugs)
        self._expected, self._expected_versions = {}, {}
        if not self._began:
            self._blocks, self._began = list_digest(self._workspace), True
        if new := [slug for slug in slugs if slug not in self._definitions]:
            self._targets_version = None
            self._definitions |= known_versions(self._workspace.lake, new)

    def forget(self) -> None:
        """Has the next stage note anew how its targets are defined and what is blocked."""
        self._definitions, self._began = {}, False
        self._states.clear()

    def blocked(self) -> Blocked:
        """What is blocked now: the list is read again only where it changed. Raises ``EnvironmentFault``."""
        digest = list_digest(self._workspace)
        if self._block_list is None or self._block_list[0] != digest:
            self._block_list = digest, blocked(self._workspace)
        return self._block_list[1]

    def take_state(self, crawl: str, slugs: Sequence[str]) -> GroupState:
        """How targets stand: as the stage before left them, else as the lake has them now. Whoever takes a state may
        keep the one after its commits (:meth:`keep_state`); else the next stage reads it. Raises ``EnvironmentFault``
        where the lake cannot be read, or its place does not say what it has."""
        kept = [self._states.pop((crawl, slug), None) for slug in slugs]
        known = [state for state in kept if state is not None]
        if len(known) < len(kept):
            asked = expand(self._workspace, crawl, slugs)
            return GroupState(asked, stand(self._workspace, asked.every))
        for_: dict[str, tuple[Slice, ...]] = {}
        beside: dict[str, tuple[Slice, ...]] = {}
        standings: dict[Slice, Standing] = {}
        for state in known:
            for_ |= state.asked.for_
            beside |= state.asked.beside
            standings |= state.standings
        return GroupState(Asked(crawl, for_, beside), standings)

    def keep_state(self, state: GroupState) -> None:
        """Hands a state on to the next stage."""
        for slug in state.asked.for_:
            self._states[state.asked.crawl, slug] = state.of(slug)

    def drop_state(self, crawl: str, slugs: Sequence[str]) -> None:
        """Has the state of targets read anew."""
        for slug in slugs:
            self._states.pop((crawl, slug), None)

    def expect(self, stage: Stage, made: Mapping[Slice, str | None]) -> None:
        """Has each commit from now on compare what the slices of an earlier ``stage`` say with ``made``."""
        self._expected[stage] = dict(made)

    @contextmanager
    def replacing(self, stage: Stage, before: Mapping[Slice, Standing]) -> Iterator[None]:
        """Has each commit in the block compare how the slices that it replaces stand with ``before``: what their rows
        were made from, and what they say. Raises ``InputsChanged`` at once where they stand otherwise."""
        self._replaced, self._replaced_version = (stage, before), None
        try:
            # a commit takes the handle that is kept, so a look within it opens the table anew: only if it moved
            self._compare_replaced()
            yield
        finally:
            self._replaced = None

    def check(self) -> None:
        """Raises ``LeaseRanOut`` where this process was stopped for too long, ``InputsChanged`` where anything that the
        stage began with is another now."""
        self._lease.confirm()
        self._compare_definitions()
        self._compare_contents()
        self._compare_replaced()

    def _refuse_purged(self, slugs: Sequence[str]) -> None:
        self._workspace.lake.look_again("targets")
        if not was_purged(self._workspace.lake, slugs):
            return
        for purge in leases_of(self._workspace.storage, PURGES)[0]:
            if purge.is_about(slugs):
                named = sorted(purge.targets.intersection(slugs)) if purge.targets is not None else slugs
                raise EnvironmentFault(
                    f"{', '.join(named[:3])} is being purged by {purge.holder}",
                    "Wait for its end, then run this again.",
                )

    def _compare_definitions(self) -> None:
        version = self._moved("targets", self._targets_version)
        if version is None:
            return
        if list_digest(self._workspace) != self._blocks:
            raise _relocate("a site was blocked or unblocked while this run was at work")
        now = known_versions(self._workspace.lake, [*self._definitions])
        for slug, before in self._definitions.items():
            if now.get(slug) != before:
                gone = "is no longer defined" if slug not in now else "was defined anew"
                raise _relocate(f"{slug} {gone} while this run was at work")
        self._targets_version = version

    def _compare_contents(self) -> None:
        for stage, before in self._expected.items():
            version = self._moved(stage.main_table, self._expected_versions.get(stage.main_table))
            if version is None:
                continue
            now = contents(self._workspace.lake, stage, before.keys())
            for slice_, said in before.items():
                if now[slice_] != said:
                    raise InputsChanged(
                        f"{stage.main_table} of {slice_.whole.target} in {slice_.crawl} changed while this run was at "
                        "what is made from them",
                        "Run it again: what was fetched is kept and taken over.",
                    )
            self._expected_versions[stage.main_table] = version

    def _compare_replaced(self) -> None:
        if self._replaced is None:
            return
        stage, before = self._replaced
        version = self._moved(stage.main_table, self._replaced_version)
        if version is None:
            return
        names = {slice_: (stage.digest_name(slice_), content_name(slice_)) for slice_ in before}
        found = self._workspace.lake.digests(stage.main_table, [name for both in names.values() for name in both])
        for slice_, (digest, content) in names.items():
            is_there = found[digest] not in (None, GONE)
            now = (found[digest], found[content]) if is_there else (None, None)
            if now != before[slice_].replaced(stage):
                raise InputsChanged(
                    f"{stage.main_table} of {slice_.whole.target} in {slice_.crawl} was written by another run while "
                    "this one was at it",
                    "Run it again: what was fetched is kept and taken over.",
                )
        self._replaced_version = version

    def _moved(self, table: str, before: int | None) -> int | None:
        """The version of a table, where it may differ from the one at ``before`` (``None``: it was not compared yet);
        ``None`` where it is the same."""
        lake = self._workspace.lake
        if before is not None and not lake.has_moved(table, before):
            return None
        lake.look_again(table)
        version = lake.version(table)
        return None if version == before else version


def _relocate(what: str) -> InputsChanged:
    changed = InputsChanged(what, "Run it again, captures first: what was fetched is kept and taken over.")
    changed.relocate = True
    return changed


@dataclass(slots=True)
class _Running:
    """The runs that a workspace is in, one in another."""

    runs: list[RunInputs] = field(default_factory=list)


@contextmanager
def at_work(workspace: Workspace, partitions: Mapping[str, Collection[str]]) -> Iterator[RunInputs]:
    """Holds a lease on ``partitions`` (slugs by crawl) until the end of the block; that of a run around it, where that
    is about them. Raises ``EnvironmentFault`` where it cannot be written."""
    running = workspace.of_command(_Running)
    for run in running.runs:
        if run.covers(partitions):
            yield run
            return
    slugs = {slug for own in partitions.values() for slug in own}
    with lease_of(workspace.storage, RUNS, slugs, partitions) as lease:
        run = RunInputs(workspace, lease, partitions)
        running.runs.append(run)
        try:
            yield run
        finally:
            running.runs.remove(run)


def planned_again(
    workspace: Workspace,
    crawl: str,
    slugs: Sequence[str],
    stage: Callable[[RunInputs], StageReport],
    *,
    relocates: bool = False,
) -> StageReport:
    """What ``stage`` gives for ``slugs`` in ``crawl``; where what it is made from changed before a commit it is called
    again, and plans anew. Raises ``InputsChanged`` where that goes on, and where captures have to be located again,
    which not every stage does (``relocates``); ``EnvironmentFault`` for targets that are being purged, and for a run
    that was stopped for too long."""
    with at_work(workspace, {crawl: slugs}) as run:
        for left in reversed(range(PLANS)):
            run.begin(slugs)
            try:
                with workspace.lake.checked(run.check):
                    return stage(run)
            except InputsChanged as changed:
                workspace.lake.look_again()
                run.drop_state(crawl, slugs)
                if not left or (changed.relocate and not relocates):
                    raise
                if changed.relocate:
                    run.forget()
    raise AssertionError("no plan was left")
