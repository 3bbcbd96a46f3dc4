"""Sites that nobody may fetch. The lake has one list of them. Everything that locates, fetches or reads a capture uses
it.

A lookup leaves out captures of blocked sites. The stored version of a target includes the blocks that touch it. When a
block comes or goes, the target is located again: rows of a blocked site then go, or come back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

import pyarrow as pa

from cc_pipeline.advice import Advice, advise
from cc_pipeline.commoncrawl.matching import MemberIndex
from cc_pipeline.commoncrawl.target import Target, version_of
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.workspace.workspace import Workspace

#: Each file of this folder has a complete list; the one with the greatest number counts.
_FOLDER: Final = "blocked/"
#: Newest lists that are kept: a process may be about to read the one before.
_RETAINED_LISTS: Final = 3
_MAX_LIST_BYTES: Final = 64 << 20
#: Separates the version of a definition from that of the blocks that touch it.
_SEPARATOR: Final = "!"
#: In place of the latter if the target itself is the blocked site: its rows stay, and it is asked for no more.
_ALL_BLOCKED: Final = "all"


@dataclass(frozen=True, slots=True)
class Block:
    """A blocked site: its definition, since when it is blocked, and the reason in a person's words."""

    definition: str
    since: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.definition} is blocked since {self.since[:10]}{f' ({self.why})' if self.why else ''}"

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
    """Reads the list from the lake as it is now. Raises ``EnvironmentFault``, also if the list cannot be read: nothing
    is fetched then."""
    return read_numbered_list(workspace)[1]


def read_numbered_list(workspace: Workspace) -> tuple[int, Blocklist]:
    """The list with its number, which is 0 while there is none. Raises as :func:`read_blocklist`."""
    numbers, blocklist = _read_newest(workspace)
    return max([0, *numbers]), blocklist


def read_list_number(workspace: Workspace) -> int:
    """The number of the list as it is now: each change has a greater one. Commits compare it. Raises
    ``EnvironmentFault``."""
    return max([0, *_list_numbers(workspace)])


def block(workspace: Workspace, targets: Sequence[Target], reason: str = "") -> Blocklist:
    """Adds ``targets`` to the list and returns the list. Targets on the list keep their entry. Raises
    ``EnvironmentFault``."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    added = {target.written: Block(target.written, now, reason) for target in targets}
    return _change_list(workspace, lambda blocks_by_site: added | blocks_by_site)


def unblock(workspace: Workspace, targets: Sequence[Target]) -> Blocklist:
    """Removes ``targets`` from the list and returns the list. Raises ``UserInputError`` for a target that is not on
    it."""
    blocked_sites = {listed_block.definition for listed_block in read_blocklist(workspace).blocks}
    for target in targets:
        if target.written not in blocked_sites:
            raise UserInputError(f"{target.definition} is not blocked. See the list: {advise('targets block')}")
    removed_sites = {target.written for target in targets}
    return _change_list(
        workspace,
        lambda blocks_by_site: {
            name: listed_block for name, listed_block in blocks_by_site.items() if name not in removed_sites
        },
    )


def _list_numbers(workspace: Workspace) -> list[int]:
    names = (stored_object.key.removeprefix(_FOLDER) for stored_object in workspace.place.listing(_FOLDER))
    return sorted(int(name) for name in names if name.isdecimal())


def _read_newest(workspace: Workspace) -> tuple[list[int], Blocklist]:
    """The existing list numbers, and the list with the greatest number."""
    while True:
        numbers = _list_numbers(workspace)
        if not numbers:
            return numbers, Blocklist()
        try:
            return numbers, _read_list(workspace, f"{_FOLDER}{numbers[-1]:012}")
        except RangeFault as fault:
            if fault.kind is not FaultKind.NOT_FOUND:
                raise
            if _list_numbers(workspace)[-1:] == numbers[-1:]:
                raise  # it is listed and cannot be read


def _read_list(workspace: Workspace, key: str) -> Blocklist:
    place = workspace.place
    try:
        json_blocks = json.loads(place.read_all(key, _MAX_LIST_BYTES).data)
        blocklist = Blocklist(
            tuple(
                Block(str(json_block["definition"]), str(json_block["since"]), str(json_block["why"]))
                for json_block in json_blocks
            )
        )
        blocklist.touching(parse_target("example.com"))
    except (ValueError, KeyError, TypeError, UserInputError) as error:
        raise EnvironmentFault(
            f"{place.source}/{key} cannot be read as a list of blocked sites ({error})",
            "Restore it from a backup. Nothing is fetched until the list can be read.",
        ) from error
    return blocklist


def _change_list(workspace: Workspace, change: Callable[[dict[str, Block]], dict[str, Block]]) -> Blocklist:
    """Writes the changed list under the next number, which only one writer gets. The other writers change the newer
    list. A slow writer may get a number that was used and deleted, so the list counts as written once a read shows the
    change."""
    workspace.claim()
    while True:
        numbers, blocklist = _read_newest(workspace)
        blocks_by_site = {listed_block.definition: listed_block for listed_block in blocklist.blocks}
        changed_blocks = change(blocks_by_site)
        if changed_blocks == blocks_by_site:
            return blocklist
        sorted_blocks = [asdict(changed_blocks[name]) for name in sorted(changed_blocks)]
        data = (json.dumps(sorted_blocks, ensure_ascii=False) + "\n").encode()
        if workspace.place.put(f"{_FOLDER}{max([0, *numbers]) + 1:012}", data, only_if_absent=True):
            for old_number in numbers[: 1 - _RETAINED_LISTS]:
                workspace.place.delete(f"{_FOLDER}{old_number:012}")


def _targets_overlap(first_target: Target, second_target: Target) -> bool:
    return any(
        (second_range.end is None or first_range.start < second_range.end)
        and (first_range.end is None or second_range.start < first_range.end)
        for first_range in first_target.ranges
        for second_range in second_target.ranges
    )
