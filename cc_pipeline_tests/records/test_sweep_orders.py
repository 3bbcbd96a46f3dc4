"""A fetch, the replacement of another target's rows, and a sweep without grace, in many orders of their steps.

Each of them is a line of steps. The steps of the sweep are its own requests: whatever the others do is done right
before one of them. No row ever names a file that is gone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cc_pipeline.records.file_leases import FileLease
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.records.sweep import NamedFiles, note, sweep
from cc_pipeline_tests.records.lake_of_files import CRAWL, Place, file

OLD, NEW = file("old"), file("new")
Step = Callable[[], None]


class World:
    """Rows of two or three targets, each naming one file."""

    def __init__(self, spool: Path) -> None:
        self.place = Place()
        self.storage: RecordStorage = self.place.storage(spool)
        self.place.objects[OLD] = (b"1", 0.0)
        self.rows: dict[str, str | None] = {"a": OLD}
        self.version = 0
        self.reads = 0

    def commit(self, target: str, named: str | None) -> None:
        self.rows[target] = named
        self.version += 1
        self.check()

    def named(self) -> NamedFiles:
        self.place.before("rows", "")
        return NamedFiles({name for name in self.rows.values() if name}, self.version)

    def check(self) -> None:
        dangling = {name for name in self.rows.values() if name} - self.place.objects.keys()
        assert not dangling, f"rows {self.rows} name what is gone"


def fetch_of(world: World, target: str, commit: str, *, narrow: bool) -> list[Step]:
    """A fetch that takes over what any target holds, and fetches where none does: as ``extraction/fetch.py`` does."""
    lease = FileLease(world.storage, CRAWL, commit, world.place.clock)
    mine = file(commit)
    found: list[str | None] = [None]

    def read() -> None:
        held = [name for name in world.rows.values() if name]
        found[0] = next((name for name in held if world.storage.transport.head(name) is not None), None)

    def store() -> None:
        if found[0] is None:
            world.place.put(mine, b"1")
        if narrow:
            lease.hold([found[0]] if found[0] else [])

    return [lease.renew, read, store, lambda: world.commit(target, found[0] or mine), lease.end]


def replacement_of(world: World, target: str) -> list[Step]:
    """Rows of a target are replaced by rows that name nothing."""
    return [lambda: note(world.storage, CRAWL, [OLD], world.place.now), lambda: world.commit(target, None)]


def run(world: World, plan: list[tuple[int, int]], lines: Sequence[list[Step]], slots: int) -> None:
    waiting = [iter(line) for line in lines]
    left = list(plan)
    slot = 0
    inside = False

    def turn(action: str = "", key: str = "") -> None:
        nonlocal slot, inside
        if inside:
            return
        inside = True
        while left and left[0][0] <= slot:
            next(waiting[left.pop(0)[1]])()
        slot += 1
        inside = False

    world.place.before = turn
    sweep(world.storage, CRAWL, world.named, 0, world.place.clock)
    world.check()
    slot = slots
    turn()
    world.check()


#: Requests of a sweep that finds one file: rows, listing, leases, one lease, rows, notes, deleting; and afterwards.
_SLOTS = 8


@pytest.mark.matrix
def test_fetches_replacements_and_a_sweep_in_many_orders(tmp_path: Path) -> None:
    draw = random.Random(7)
    for _ in range(6_000):
        world = World(tmp_path)
        lines = [
            fetch_of(world, "b", "one", narrow=draw.random() < 0.5),
            fetch_of(world, "c", "two", narrow=draw.random() < 0.5),
            replacement_of(world, "a"),
            replacement_of(world, "b"),
        ][: draw.randint(2, 4)]
        # slots rise within each line; within one slot the lines are mixed
        slots = [iter(sorted(draw.randrange(_SLOTS) for _ in line)) for line in lines]
        mixed = [number for number, line in enumerate(lines) for _ in line]
        draw.shuffle(mixed)
        plan = sorted(((next(slots[line]), line) for line in mixed), key=lambda step: step[0])
        run(world, plan, lines, _SLOTS)


def test_what_was_replaced_is_swept_when_nobody_takes_it_over(tmp_path: Path) -> None:
    world = World(tmp_path)
    run(world, [(0, 0), (0, 0)], [replacement_of(world, "a")], _SLOTS)
    assert OLD not in world.place.objects
