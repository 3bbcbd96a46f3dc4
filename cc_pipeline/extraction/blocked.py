"""Sites that nobody may fetch: one list in the lake, asked by everything that locates, fetches or gets a capture.

A look-up leaves out captures of blocked sites. What a target was located as says which blocks touched it, so that it
is located again when one comes or goes: then what it had of a blocked site goes with its rows, or comes back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

import pyarrow as pa

from cc_pipeline.commoncrawl.matching import MemberIndex
from cc_pipeline.commoncrawl.target import Target, version_of
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.lake.digests.digest import input_digest
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.workspace.workspace import Workspace

#: The list is whole in each file of this folder; the one with the greatest number counts.
_FOLDER: Final = "blocked/"
#: The table, and the name, under which a digest of the list is committed.
_TABLE, _DIGEST = "targets", "blocked"
#: Newest lists that stay: somebody may be about to read the one before.
_KEPT: Final = 3
_LONGEST: Final = 64 << 20
#: Stands between the version of a definition and that of the blocks that touch it.
_MARK: Final = "!"
#: Stands for the latter where a target is the blocked site itself: what is here of it stays, and is asked for no more.
_ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class Block:
    """A site that is blocked: its definition, since when, and why, in a person's words."""

    definition: str
    since: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.definition} is blocked since {self.since[:10]}{f' ({self.why})' if self.why else ''}"


@dataclass(frozen=True)
class Blocked:
    """The list as it was read."""

    blocks: tuple[Block, ...] = ()

    @cached_property
    def _targets(self) -> list[tuple[Block, Target]]:
        found = [(block, parse_target(block.definition)) for block in self.blocks]
        return [(block, one) for block, target in found for one in (target.members or (target,))]

    @cached_property
    def _index(self) -> MemberIndex:
        return MemberIndex([target for _, target in self._targets])

    def touching(self, target: Target) -> list[Block]:
        """The blocks of which ``target`` may have captures."""
        return [block for block, one in self._targets if _overlap(one, target)]

    def versions(self, versions: dict[str, str], read: Callable[[Sequence[str]], dict[str, Target]]) -> dict[str, str]:
        """Versions of definitions by slug, with that of the blocks that touch each; ``read`` gives the targets."""
        if not self.blocks:
            return versions
        targets = read([*versions])
        return {slug: version + self._mark(targets[slug]) for slug, version in versions.items()}

    def _mark(self, target: Target) -> str:
        if any(_is_own(one, target) for _, one in self._targets):
            return _MARK + _ALL
        touching = sorted({block.definition for block in self.touching(target)})
        return _MARK + version_of("\n".join(touching)) if touching else ""

    def left(self, captures: pa.Table) -> pa.Table:
        """``captures`` without those of blocked sites, and those of which nobody knows the site."""
        if not self.blocks:
            return captures
        rows = zip(captures["url"].to_pylist(), captures["url_host_name"].to_pylist(), strict=True)
        return captures.filter(
            pa.array([bool(url) and not self._index.of(url, host) for url, host in rows], pa.bool_())
        )

    def said(self, targets: Iterable[Target]) -> list[str]:
        """A sentence for each block that touches one of ``targets``."""
        touching = dict.fromkeys(block for target in targets for block in self.touching(target))
        return [f"{block}: nothing of it is asked for (cc-pipeline targets unblock)" for block in touching]

    def refuse(self, url: str) -> None:
        """Raises ``UserInputError`` for a page of a blocked site."""
        for number in self._index.of(url):
            raise UserInputError(f"{self._targets[number][0]}; to fetch it all the same: cc-pipeline targets unblock")


NOTHING_BLOCKED: Final = Blocked()


def blocks_of(version: str) -> str:
    """Which blocks touched what a version of :meth:`Blocked.versions` is of."""
    return version.partition(_MARK)[2]


def is_all_blocked(version: str) -> bool:
    """Whether nothing may be fetched of what a version of :meth:`Blocked.versions` is of."""
    return blocks_of(version) == _ALL


def same_but_for_blocks(version: str, other: str) -> bool:
    """Whether two versions of :meth:`Blocked.versions` are of one definition, and differ in what blocks touch it."""
    return version != other and version.partition(_MARK)[0] == other.partition(_MARK)[0]


def blocked(workspace: Workspace) -> Blocked:
    """The list of the lake, as it is now. Raises ``EnvironmentFault``, also for a list that cannot be read: nothing is
    fetched then."""
    return _newest(workspace)[1]


def list_digest(workspace: Workspace) -> str | None:
    """A digest of the list as it was changed last; ``None`` where it never was. It is in the log of the targets, where
    a run looks in each of its commits. Raises ``EnvironmentFault``."""
    return workspace.lake.digest(_TABLE, _DIGEST)


def block(workspace: Workspace, targets: Sequence[Target], why: str = "") -> Blocked:
    """Adds ``targets`` to the list, and gives it; those on it stay as they are. Raises ``EnvironmentFault``."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    added = {target.written: Block(target.written, now, why) for target in targets}
    return _change(workspace, lambda known: added | known)


def unblock(workspace: Workspace, targets: Sequence[Target]) -> Blocked:
    """Takes ``targets`` off the list, and gives it. Raises ``UserInputError`` for one that is not on it."""
    known = {one.definition for one in blocked(workspace).blocks}
    for target in targets:
        if target.written not in known:
            raise UserInputError(f"{target.definition} is not blocked. What is: cc-pipeline targets block")
    off = {target.written for target in targets}
    return _change(workspace, lambda known: {name: one for name, one in known.items() if name not in off})


def _numbered(workspace: Workspace) -> list[int]:
    names = (one.key.removeprefix(_FOLDER) for one in workspace.place.listing(_FOLDER))
    return sorted(int(name) for name in names if name.isdecimal())


def _newest(workspace: Workspace) -> tuple[list[int], Blocked]:
    """The numbers that there are, and the list of the greatest one."""
    while True:
        numbers = _numbered(workspace)
        if not numbers:
            return numbers, Blocked()
        try:
            return numbers, _read(workspace, f"{_FOLDER}{numbers[-1]:012}")
        except RangeFault as fault:
            if fault.kind is not FaultKind.NOT_FOUND:
                raise
            if _numbered(workspace)[-1:] == numbers[-1:]:
                raise  # it is listed and cannot be read


def _read(workspace: Workspace, key: str) -> Blocked:
    place = workspace.place
    try:
        noted = json.loads(place.read_all(key, _LONGEST).data)
        found = Blocked(tuple(Block(str(one["definition"]), str(one["since"]), str(one["why"])) for one in noted))
        found.touching(parse_target("example.com"))
    except (ValueError, KeyError, TypeError, UserInputError) as error:
        raise EnvironmentFault(
            f"{place.source}/{key} is no list of blocked sites ({error})",
            "Put it back from a copy; nothing is fetched while nobody knows what is blocked.",
        ) from error
    return found


def _change(workspace: Workspace, change: Callable[[dict[str, Block]], dict[str, Block]]) -> Blocked:
    """Writes the list with the next number, which one writer gets; the others change what that one wrote. Who was slow
    may get a number that was used and is gone, so the list is right when reading it shows the change."""
    workspace.claim()
    while True:
        numbers, found = _newest(workspace)
        known = {one.definition: one for one in found.blocks}
        wanted = change(known)
        if wanted == known:
            return found
        ordered = [asdict(wanted[name]) for name in sorted(wanted)]
        data = (json.dumps(ordered, ensure_ascii=False) + "\n").encode()
        if workspace.place.put(f"{_FOLDER}{max([0, *numbers]) + 1:012}", data, only_if_absent=True):
            # runs that are at work see it here
            workspace.lake.commit_digests(_TABLE, {_DIGEST: input_digest({"blocked": ordered})})
            for old in numbers[: 1 - _KEPT]:
                workspace.place.delete(f"{_FOLDER}{old:012}")


def _is_own(block: Target, target: Target) -> bool:
    """Whether a target is the very site that is blocked. Never a set: in sets and their parts blocks are by capture,
    whoever their other members are, and however they are divided."""
    return target.kind != "set" and block.written == target.written


def _overlap(one: Target, other: Target) -> bool:
    return any(
        (b.end is None or a.start < b.end) and (a.end is None or b.start < a.end)
        for a in one.ranges
        for b in other.ranges
    )
