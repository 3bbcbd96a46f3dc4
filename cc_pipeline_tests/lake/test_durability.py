"""A commit lasts: data before the entry that names it, the entry before the commit returns. And a log keeps all."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cc_pipeline import atomic
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.compaction import Bounds, compact
from cc_pipeline.lake.files import write_rows
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.vacuum import vacuum
from cc_pipeline_tests.lake.things import (
    CRAWL,
    build_rows,
    commit,
    content,
    define,
    lake_in,
    new_generations,
)


def new_slice(lake: Lake, number: int) -> None:
    commit(lake, {f"new{number}": [1]})


def replaced_slice(lake: Lake, number: int) -> None:
    commit(lake, {"x": [number]})


def append(lake: Lake, number: int) -> None:
    generations = new_generations(CRAWL, ["x"])
    lake.append(
        "things", write_rows(lake, "things", CRAWL, build_rows(CRAWL, {"x": [number]}).to_batches(), generations).files
    )


def defined(lake: Lake, number: int) -> None:
    define(lake, f"t{number}.example")


def merged(lake: Lake, number: int) -> None:
    new_slice(lake, number)
    assert compact(lake, "things", Bounds(max_small_files=1))


def vacuumed(lake: Lake, number: int) -> None:
    merged(lake, number)
    for path in Path(lake.address("things"), "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if "remove" in line:
                line["remove"]["deletionTimestamp"] = 0
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert vacuum(lake_in(lake.root), "things")


EVERY: list[Callable[[Lake, int], None]] = [
    new_slice,
    replaced_slice,
    append,
    defined,
    merged,
    vacuumed,
]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return lake_in(tmp_path / "lake")


class Disk:
    """What was synced, in order: the inode, and the entries of logs that were there at that time."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.synced: list[tuple[int, frozenset[Path]]] = []

    def entries(self) -> frozenset[Path]:
        return frozenset(self._root.rglob("_delta_log/*.json"))

    def sync(self, descriptor: int) -> None:
        self.synced.append((os.fstat(descriptor).st_ino, self.entries()))

    def check(self, entry: Path) -> None:
        """What ``entry`` names is on disk before it, and so is it itself by now."""
        table = entry.parent.parent
        for line in entry.read_text().splitlines():
            path = json.loads(line).get("add", {}).get("path")
            # a file that was superseded meanwhile may be deleted
            if path and (file := table / path).exists():
                assert self.when(file, lambda there: entry not in there), f"{path} was not synced before its entry"
                assert self.when(file.parent, lambda there: entry not in there), f"nor was the folder of {path}"
        [*_, at] = self.when(entry, lambda there: entry in there) or [None]
        assert at is not None, f"{entry.name} was not synced"
        assert self.when(entry.parent, lambda there: entry in there)[-1] > at, "its name was not synced"

    def when(self, path: Path, condition: Callable[[frozenset[Path]], bool]) -> list[int]:
        inode = path.stat().st_ino
        return [at for at, (own, there) in enumerate(self.synced) if own == inode and condition(there)]


@pytest.mark.parametrize("way", EVERY)
def test_data_is_on_disk_before_its_entry_and_that_before_a_commit_returns(
    way: Callable[[Lake, int], None], lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    disk = Disk(tmp_path)
    monkeypatch.setattr(atomic, "sync", disk.sync)
    if way not in (new_slice, defined):  # these make their table
        replaced_slice(lake, 0)
        new_slice(lake, 0)
    before = disk.entries()
    way(lake, 1)
    new = disk.entries() - before
    assert new, "no commit"
    for entry in new:
        disk.check(entry)
    # folders that are new, and checkpoints
    for path in tmp_path.rglob("*"):
        if path.is_dir():
            assert disk.when(path.parent, lambda there: True), f"the name of {path} was not synced"
        if path.name.endswith("checkpoint.parquet") or path.name == "_last_checkpoint":
            assert disk.when(path, lambda there: True), f"{path} was not synced"


def test_an_entry_of_another_process_is_on_disk_before_one_that_follows_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    append(lake, 0)
    other = lake_in(lake.root)
    with monkeypatch.context() as patched:
        patched.setattr(atomic, "sync", lambda descriptor: None)
        append(other, 1)
        append(other, 2)
    disk = Disk(tmp_path)
    before = disk.entries()
    monkeypatch.setattr(atomic, "sync", disk.sync)
    append(lake, 3)
    [newest] = disk.entries() - before
    for number in range(2, int(newest.stem) + 1):
        entry = newest.with_name(f"{number:020}.json")
        assert disk.when(entry, lambda there: True), entry


def test_a_commit_whose_entry_cannot_be_made_durable_fails(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    replaced_slice(lake, 0)
    monkeypatch.setattr(atomic, "sync", broken)
    with pytest.raises(EnvironmentFault, match="Input/output"):
        new_slice(lake, 1)


def test_a_commit_behind_a_checkpoint_without_its_hint_is_made(lake: Lake) -> None:
    replaced_slice(lake, 0)
    for table in ("things", "slices"):
        lake.prepare(table).create_checkpoint()
        Path(lake.address(table), "_delta_log", "_last_checkpoint").unlink()
    new_slice(lake_in(lake.root), 1)
    assert len(content(lake)) == 2


def test_no_entry_goes_at_a_checkpoint(lake: Lake) -> None:
    replaced_slice(lake, 0)
    long_ago = time.time() - 60 * 86_400
    for table in ("things", "slices"):
        while (handle := lake.prepare(table)).version() < 98:
            lake.commit_files(table, handle, [])
        for path in Path(lake.address(table), "_delta_log").iterdir():
            os.utime(path, (long_ago, long_ago))
    for number in range(1, 3):
        merged(lake, number)
        replaced_slice(lake, number)
    for table in ("things", "slices"):
        log = Path(lake.address(table), "_delta_log")
        assert list(log.glob("*.checkpoint.parquet")), "no checkpoint"
        assert sorted(int(path.stem) for path in log.glob("*.json")) == [*range(lake.version(table) + 1)]
