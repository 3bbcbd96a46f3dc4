"""A commit lasts: data before the entry that names it, the entry before the commit returns. And a log keeps all."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from cc_pipeline.lake.adding import commit_added, write_rows
from cc_pipeline.lake.digests.folding import fold
from cc_pipeline.lake.replacing import change_rows

import cc_pipeline
from cc_pipeline import atomic
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.compaction import Bounds, compact_due
from cc_pipeline.lake.content_digests import digest_from_int
from cc_pipeline.lake.lake import Lake, TableSpec
from cc_pipeline.lake.vacuum import clean_log, vacuum

SCHEMA = pa.schema([(name, pa.string()) for name in ("crawl", "target")] + [("value", pa.int64())])
SPEC = TableSpec("things", SCHEMA, ("crawl", "target"), ("target",))
FLAT = TableSpec("flat", SCHEMA, ("target",))


def rows(target: str, *values: int) -> pa.Table:
    return pa.table({"crawl": ["A"] * len(values), "target": [target] * len(values), "value": values}, schema=SCHEMA)


def slices(*targets: str) -> list[dict[str, str]]:
    return [{"crawl": "A", "target": target} for target in targets]


def new_slice(lake: Lake, number: int) -> None:
    lake.commit("things", rows(f"new{number}", 1), slices(f"new{number}"), {f"d:{number}": "1"})


def replaced_slice(lake: Lake, number: int) -> None:
    lake.commit("things", rows("x", number), slices("x"), {"d:x": f"{number + 1:x}"})


def streamed(lake: Lake, number: int) -> None:
    lake.commit_stream("things", rows("x", number).to_batches, slices("x"), {"d:x": f"{number + 1:x}"})


def of_a_table_without_crawls(lake: Lake, number: int) -> None:
    lake.commit("flat", rows("x", number), [{"target": "x"}], {"d:x": f"{number + 1:x}"})


def of_a_whole_table(lake: Lake, number: int) -> None:
    lake.commit("flat", rows("x", number), [], {"d": f"{number + 1:x}"})


def files_of_workers(lake: Lake, number: int) -> None:
    written = write_rows(lake.root, None, SPEC, "A", rows("x", number).to_batches(), "part")
    commit_added(lake, "things", written, slices("x"), {"d:x": f"{number + 1:x}"})


def digests(lake: Lake, number: int) -> None:
    lake.commit_digests("things", {"d:x": f"{number + 1:x}"})


def merged(lake: Lake, number: int) -> None:
    new_slice(lake, number)
    assert compact_due(lake, "things", Path(lake.root) / "scratch", Bounds(max_small_files=1))


def changed_rows(lake: Lake, number: int) -> None:
    replaced_slice(lake, 7)

    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.set_column(batch.schema.get_field_index("value"), "value", pa.array([8] * batch.num_rows))

    assert change_rows(lake, "things", "A", "value", pa.array([7]), change)


def folded(lake: Lake, number: int) -> None:
    digests(lake, number)
    assert fold(lake, "things", min_digests=-1)


def vacuumed(lake: Lake, number: int) -> None:
    replaced_slice(lake, number)
    for path in Path(lake.address("things"), "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if "remove" in line:
                line["remove"]["deletionTimestamp"] = 0
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    vacuum(Lake(lake.root, [SPEC]), "things")


EVERY: list[Callable[[Lake, int], None]] = [
    new_slice,
    replaced_slice,
    streamed,
    of_a_table_without_crawls,
    of_a_whole_table,
    files_of_workers,
    digests,
    merged,
    changed_rows,
    folded,
    vacuumed,
]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"), [SPEC, FLAT])


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
            if path := json.loads(line).get("add", {}).get("path"):
                file = table / path
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
    if way not in (new_slice, of_a_table_without_crawls):  # these make their table
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
        if path.is_dir() and path.name != "scratch":
            assert disk.when(path.parent, lambda there: True), f"the name of {path} was not synced"
        if path.name.endswith("checkpoint.parquet") or path.name == "_last_checkpoint" or "/_folded/" in str(path):
            assert disk.when(path, lambda there: True), f"{path} was not synced"


def test_an_entry_of_another_process_is_on_disk_before_one_that_follows_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    replaced_slice(lake, 0)
    other = Lake(lake.root, [SPEC])
    with monkeypatch.context() as patched:
        patched.setattr(atomic, "sync", lambda descriptor: None)
        new_slice(other, 1)
        new_slice(other, 2)
    disk = Disk(tmp_path)
    before = disk.entries()
    monkeypatch.setattr(atomic, "sync", disk.sync)
    new_slice(lake, 3)
    [newest] = disk.entries() - before
    for number in range(1, int(newest.stem) + 1):
        entry = newest.with_name(f"{number:020}.json")
        assert entry.stem < "00000000000000000002" or disk.when(entry, lambda there: True), entry


def test_a_commit_whose_entry_cannot_be_made_durable_fails(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    replaced_slice(lake, 0)
    monkeypatch.setattr(atomic, "sync", broken)
    with pytest.raises(EnvironmentFault, match="Input/output"):
        new_slice(lake, 1)


def test_a_commit_behind_a_checkpoint_without_its_hint_is_made(lake: Lake) -> None:
    replaced_slice(lake, 0)
    handle = lake.open(SPEC)
    assert handle is not None
    handle.create_checkpoint()
    Path(lake.address("things"), "_delta_log", "_last_checkpoint").unlink()
    new_slice(Lake(lake.root, [SPEC, FLAT]), 1)
    assert lake.row_count("things") == 2


def test_a_commit_to_a_log_that_was_restored_is_on_disk(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced_slice(lake, 0)
    backup = shutil.copytree(lake.address("things"), tmp_path / "backup")
    for number in range(3):
        new_slice(lake, number)
    shutil.rmtree(lake.address("things"))
    shutil.copytree(backup, lake.address("things"))
    shutil.rmtree(backup)
    lake._handles.clear()
    disk = Disk(tmp_path)
    before = disk.entries()
    monkeypatch.setattr(atomic, "sync", disk.sync)
    new_slice(lake, 4)
    [new] = disk.entries() - before
    disk.check(new)


@pytest.fixture(scope="module")
def near_a_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake whose tables are at version 97, with entries of two months ago."""
    own = Lake(str(tmp_path_factory.mktemp("lake")), [SPEC, FLAT])
    replaced_slice(own, 0)
    of_a_table_without_crawls(own, 0)
    long_ago = time.time() - 60 * 86_400
    for table in own.specs:
        while own.version(table) < 97:
            own.commit_digests(table, {"any": digest_from_int(own.version(table))})
        for path in Path(own.address(table), "_delta_log").iterdir():
            os.utime(path, (long_ago, long_ago))
    return Path(own.root)


@pytest.mark.parametrize("way", EVERY[:-1])
def test_no_entry_goes_at_a_checkpoint(
    way: Callable[[Lake, int], None], near_a_checkpoint: Path, tmp_path: Path
) -> None:
    table = "flat" if way in (of_a_table_without_crawls, of_a_whole_table) else "things"
    # the hundredth version is that of the one commit, or of the other, where there are two a time
    for start in (98, 99) if way in (merged, changed_rows, folded, vacuumed) else (99,):
        root = tmp_path / str(start)
        shutil.copytree(near_a_checkpoint, root)
        own = Lake(str(root), [SPEC, FLAT])
        while own.version(table) < start:
            own.commit_digests(table, {"any": digest_from_int(own.version(table))})
        for number in range(2):
            way(own, number)
        log = Path(own.address(table), "_delta_log")
        assert list(log.glob("*.checkpoint.parquet")), "no checkpoint"
        versions = sorted(int(path.stem) for path in log.glob("*.json"))
        assert versions == [*range(own.version(table) + 1)]
        assert own.pin(table, 1).version == 1


def test_maintenance_still_cleans_the_log(lake: Lake) -> None:
    replaced_slice(lake, 0)
    while lake.version("things") < 105:
        lake.commit_digests("things", {"any": digest_from_int(lake.version("things"))})
    log = Path(lake.address("things"), "_delta_log")
    long_ago = time.time() - 60 * 86_400
    for path in log.iterdir():
        os.utime(path, (long_ago, long_ago))
    assert clean_log(lake, "things") > 50
    assert lake.read("things").num_rows == 1


def test_who_writes_to_a_log_says_what_the_library_does_then() -> None:
    # "vacuum_files": what a method of the library is called where it is passed on
    writers = {"create_write_transaction", "write_deltalake", "DeltaTable.create", "vacuum_files"}
    found = 0
    for path in Path(cc_pipeline.__file__).parent.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "deltalake" in text else ():
            if isinstance(node, ast.Call) and {(name := ast.unparse(node.func)), name.rpartition(".")[2]} & writers:
                assert "post_commithook_properties" in [one.arg for one in node.keywords], f"{path}:{node.lineno}"
                found += 1
    assert found == 4


def test_on_macos_the_cache_of_the_disk_is_written_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []

    def full(descriptor: int, what: int) -> int:
        called.append("full")
        if len(called) > 1:
            raise OSError(45, "not supported")
        return 0

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", full)
    monkeypatch.setattr(os, "fsync", lambda descriptor: called.append("plain"))
    path = tmp_path / "file"
    path.write_text("")
    atomic.sync_file(path)
    assert called == ["full"]
    atomic.sync_file(path)
    assert called == ["full", "full", "plain"], "where the file system does not know the call"
