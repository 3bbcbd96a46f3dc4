"""Sites that nobody may fetch. The lake has one list of them. Everything that locates, fetches or reads a capture uses
it.

A lookup leaves out captures of blocked sites. The stored version of a target includes the blocks that touch it. When a
block comes or goes, the target is located again: rows of a blocked site then go, or come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

import pyarrow as pa

from cc_pipeline.advice import Advice, advise
from cc_pipeline.commoncrawl.matching import MemberIndex
from cc_pipeline.commoncrawl.target import Target, version_of
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import UserInputError
from cc_pipeline.lake.damaged_files import BLOCKED
from cc_pipeline.lake.keyed import Row, update_rows
from cc_pipeline.lake.lake import REMOVED
from cc_pipeline.workspace.claim import has_lake
from cc_pipeline.workspace.workspace import Workspace

#: Separates the version of a definition from that of the blocks that touch it.
_SEPARATOR: Final = "!"
#: In place of the latter if the target itself is the blocked site: its rows stay, and it is asked for no more.
_ALL_BLOCKED: Final = "all"


@dataclass(frozen=True, slots=True)
class Block:
    """A blocked site: its definition, since when it is blocked, and the reason in a person's words."""

    definition: str
    since: datetime
    why: str = ""

    def __str__(self) -> str:
        return f"{self.definition} is blocked since {self.since:%Y-%m-%d}{f' ({self.why})' if self.why else ''}"

    @property
    def undo(self) -> Advice:
        """The command that removes the block."""
        return advise("targets unblock", self.definition)


@dataclass(frozen=True)
class Blocklist:
    """The list of blocked sites as it was read."""

    blocks: tuple[Block, ...] = ()

    @cached_property
    def sites(self) -> list[tuple[Block, Target]]:
        """The sites of each block: those of a set one by one."""
        block_targets = [(block, parse_target(block.definition)) for block in self.blocks]
        return [(block, member) for block, target in block_targets for member in (target.members or (target,))]

    @cached_property
    def _index(self) -> MemberIndex:
        return MemberIndex([target for _, target in self.sites])

    def touching(self, target: Target) -> list[Block]:
        """The blocks whose sites may have captures of ``target``."""
        return [block for block, blocked_target in self.sites if _targets_overlap(blocked_target, target)]

    def qualify_versions(
        self, versions: dict[str, str], read_targets: Callable[[Sequence[str]], dict[str, Target]]
    ) -> dict[str, str]:
        """Adds to each version (by slug) the version of the blocks that touch the target. ``read_targets`` gives the
        targets of slugs."""
        if not self.blocks:
            return versions
        targets = read_targets([*versions])
        return {slug: version + self._version_suffix(targets[slug]) for slug, version in versions.items()}

    def _version_suffix(self, target: Target) -> str:
        # a set is never the blocked site: in sets and their parts, blocks apply to single captures, whoever the other
        # members are and however the set is divided
        if target.kind != "set" and any(blocked.written == target.written for _, blocked in self.sites):
            return _SEPARATOR + _ALL_BLOCKED
        touching = sorted({block.definition for block in self.touching(target)})
        return _SEPARATOR + version_of("\n".join(touching)) if touching else ""

    def exclude_blocked(self, captures: pa.Table) -> pa.Table:
        """``captures`` without those of blocked sites and without those whose site is not known."""
        if not self.blocks:
            return captures
        rows = zip(captures["url"].to_pylist(), captures["url_host_name"].to_pylist(), strict=True)
        return captures.filter(
            pa.array([bool(url) and not self._index.find_members(url, host) for url, host in rows], pa.bool_())
        )

    def describe_blocks(self, targets: Iterable[Target]) -> list[str]:
        """A sentence for each block that touches one of ``targets``."""
        touching = dict.fromkeys(block for target in targets for block in self.touching(target))
        return [f"{block}: its captures are not fetched (to undo: {block.undo})" for block in touching]

    def refuse(self, url: str) -> None:
        """Raises ``UserInputError`` if the page ``url`` is on a blocked site."""
        for number in self._index.find_members(url):
            block = self.sites[number][0]
            raise UserInputError(f"{block}; to fetch it anyway: {block.undo}")


NOTHING_BLOCKED: Final = Blocklist()


def blocks_of(version: str) -> str:
    """The part of a version (of :meth:`Blocked.versions`) that says which blocks touch the target."""
    return version.partition(_SEPARATOR)[2]


def is_all_blocked(version: str) -> bool:
    """Whether a version of :meth:`Blocked.versions` says that the whole target is blocked."""
    return blocks_of(version) == _ALL_BLOCKED


def differs_only_in_blocks(version: str, other_version: str) -> bool:
    """Whether two versions of :meth:`Blocked.versions` have the same definition and different blocks."""
    return version != other_version and version.partition(_SEPARATOR)[0] == other_version.partition(_SEPARATOR)[0]


def read_blocklist(workspace: Workspace) -> Blocklist:
    """Reads the list from the lake as it is now; nothing is blocked where no home is yet. Raises ``EnvironmentFault``
    if it cannot be read: nothing is fetched then."""
    if not has_lake(workspace.settings):
        return NOTHING_BLOCKED
    return Blocklist(tuple(Block(**row) for row in workspace.lake.read(BLOCKED).to_pylist()))


def read_list_number(workspace: Workspace) -> int:
    """The number of the list as it is now: each change has a greater one. Commits compare it. Raises
    ``EnvironmentFault``."""
    return workspace.lake.version(BLOCKED)


def block(workspace: Workspace, targets: Sequence[Target], reason: str = "") -> Blocklist:
    """Adds ``targets`` to the list and returns the list. Targets on the list keep their entry. Raises
    ``EnvironmentFault``."""
    now = datetime.now(UTC)
    added = {target.written: {"definition": target.written, "since": now, "why": reason} for target in targets}

    def build(stored: list[Row]) -> list[Row]:
        listed = {row["definition"] for row in stored}
        return [row for definition, row in added.items() if definition not in listed]

    update_rows(workspace.lake, BLOCKED, {"definition": [*added]}, build)
    return read_blocklist(workspace)


def unblock(workspace: Workspace, targets: Sequence[Target]) -> Blocklist:
    """Removes ``targets`` from the list and returns the list. Raises ``UserInputError`` for a target that is not on
    it."""
    blocked_sites = {listed_block.definition for listed_block in read_blocklist(workspace).blocks}
    for target in targets:
        if target.written not in blocked_sites:
            raise UserInputError(f"{target.definition} is not blocked. See the list: {advise('targets block')}")
    where = {"definition": [target.written for target in targets]}
    update_rows(workspace.lake, BLOCKED, where, lambda stored: [row | {REMOVED.name: True} for row in stored])
    return read_blocklist(workspace)


def _targets_overlap(first_target: Target, second_target: Target) -> bool:
    return any(
        (second_range.end is None or first_range.start < second_range.end)
        and (first_range.end is None or second_range.start < first_range.end)
        for first_range in first_target.ranges
        for second_range in second_target.ranges
    )
