"""Each commit says how many rows its slices have, is checked against that before it is made, and can be afterwards."""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_pipeline.lake.adding import SliceReplacement, commit_added, write_rows
from cc_pipeline.lake.compaction import Bounds, compact_due
from cc_pipeline.lake.digests.folding import fold
from cc_pipeline.lake.lake import Lake, TableSpec
from cc_pipeline.lake.layout import StoredFile, list_stored_files
from cc_pipeline.lake.replacing import open_fixed_version, replace_files
from cc_pipeline.lake.row_counts import (
    INVALID_COUNT,
    RowsOutOfBalance,
    SliceKey,
    count_name,
    find_changed_keys,
    find_miscounted,
    read_committed_counts,
)

SCHEMA = pa.schema([(name, pa.string()) for name in ("crawl", "target")] + [("value", pa.int64())])
SPEC = TableSpec("things", SCHEMA, ("crawl", "target"), ("target",))
FLAT = TableSpec("flat", SCHEMA, ("target",))
WIDE = TableSpec("wide", SCHEMA, ("crawl",))
WHOLE = TableSpec("whole", SCHEMA)
SPECS = [SPEC, FLAT, WIDE, WHOLE]
TARGETS = ("a", "b:c", "d", "é")


def rows(*counts: tuple[str, int], crawl: str = "A") -> pa.Table:
    targets = [target for target, count in counts for _ in range(count)]
    return pa.table({"crawl": [crawl] * len(targets), "target": targets, "value": range(len(targets))}, schema=SCHEMA)


def slices(*targets: str, crawl: str = "A") -> list[dict[str, str]]:
    return [{"crawl": crawl, "target": target} for target in targets]


def commit(lake: Lake, *counts: tuple[str, int], digest: str = "1") -> None:
    where = slices(*(target for target, _ in counts))
    lake.commit("things", rows(*counts), where, {f"d:{target}": digest for target, _ in counts})


@contextmanager
def some_lake() -> Iterator[Lake]:
    folder = tempfile.mkdtemp()
    try:
        yield Lake(folder, SPECS)
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"), SPECS)


def there(lake: Lake, table: str = "things") -> dict[SliceKey, int]:
    found: dict[SliceKey, int] = {}
    for row in lake.read(table).to_pylist():
        key = tuple(row[name] for name in lake.specs[table].slice_columns)
        found[key] = found.get(key, 0) + 1
    return found


@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["rows", "stream", "workers", "merge", "fold"]),
            st.dictionaries(st.sampled_from(TARGETS), st.integers(0, 5), min_size=1),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_counts_are_those_of_the_rows_whatever_is_committed_how(steps: list[tuple[str, dict[str, int]]]) -> None:
    with some_lake() as lake:
        expected: dict[SliceKey, int] = {}
        for number, (way, chosen) in enumerate(steps):
            where, digests = slices(*chosen), {"d": f"{number + 1:x}"}
            data = rows(*sorted(chosen.items()))
            if way == "rows":
                lake.commit("things", data, where, digests)
            elif way == "stream":
                lake.commit_stream("things", data.to_batches, where, digests)
            elif way == "workers":
                commit_added(
                    lake, "things", write_rows(lake.root, None, SPEC, "A", data.to_batches(), "x"), where, digests
                )
            elif way == "merge":
                compact_due(lake, "things", Path(lake.root) / "scratch", Bounds(max_small_files=1))
            else:
                lake.prepare("things")
                fold(lake, "things", min_digests=-1)
            if way in ("rows", "stream", "workers"):
                expected |= {("A", target): count for target, count in chosen.items()}
            assert there(lake) == {key: count for key, count in expected.items() if count}
            assert read_committed_counts(lake, "things", expected) == expected
            for keys in (None, set(expected)):
                assert find_miscounted(lake, "things", keys).slices == {}


@pytest.mark.parametrize("table", ["flat", "wide", "whole"])
def test_tables_of_all_shapes_are_counted(lake: Lake, table: str) -> None:
    where: list[dict[str, str]] = {"flat": [{"target": "a"}], "wide": [{"crawl": "A"}], "whole": []}[table]
    key: SliceKey = {"flat": ("a",), "wide": ("A",), "whole": ()}[table]
    for count in (3, 0, 2):
        lake.commit(table, rows(("a", count)), where, {"d": f"{count + 1:x}"})
        assert read_committed_counts(lake, table, [key]) == {key: count}
        assert find_miscounted(lake, table).slices == {}


def lose(lake: Lake, target: str, count: int, table: str = "things") -> None:
    """Somebody takes rows of a slice away, and says nothing of it."""
    handle = DeltaTable(lake.address(table))
    left = lake.read(table).filter(pa.compute.not_equal(lake.read(table)["target"], target))
    kept = lake.read(table, {"target": target}).slice(count)
    write_deltalake(handle, pa.concat_tables([left, kept]), mode="overwrite")
    lake.invalidate(table)


def test_a_commit_that_would_not_leave_the_rows_it_should_is_refused(lake: Lake) -> None:
    commit(lake, ("a", 3), ("d", 2))
    lose(lake, "a", 1)
    before = lake.version("things")
    message = r"7 rows instead of 6: 4 before, 3 replaced, 5 new \(A a: 2 rows, committed with 3\)"
    with pytest.raises(RowsOutOfBalance, match=f"things: .* {message}") as refused:
        commit(lake, ("a", 5), digest="2")
    assert refused.value.slices == {("A", "a"): (3, 2)}
    assert "doctor --repair" in refused.value.advice
    assert pickle.loads(pickle.dumps(refused.value)).slices == refused.value.slices
    assert (lake.version("things"), there(lake)) == (before, {("A", "a"): 2, ("A", "d"): 2})
    # others go on
    commit(lake, ("d", 1), digest="2")
    # until somebody says that what is there is not what was committed
    lake.commit_digests("things", {count_name(("A", "a")): INVALID_COUNT})
    assert find_miscounted(lake, "things", [("A", "a")]).slices == {("A", "a"): (None, 2)}
    commit(lake, ("a", 5), digest="3")
    assert find_miscounted(lake, "things").slices == {}


def test_a_replacement_that_takes_rows_of_others_along_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(lake, ("a", 3), ("d", 2))

    def careless(self: SliceReplacement, handle: DeltaTable, here: list[StoredFile], but: set[str]) -> tuple[Any, Any]:
        return [file for file in here if file.path not in but], []

    monkeypatch.setattr(SliceReplacement, "plan", careless)
    with pytest.raises(RowsOutOfBalance):
        commit(lake, ("a", 1), digest="2")
    assert there(lake) == {("A", "a"): 3, ("A", "d"): 2}


def test_files_in_place_of_others_have_as_many_rows(lake: Lake) -> None:
    commit(lake, ("a", 3))
    handle = open_fixed_version(lake, "things")
    assert handle is not None
    with pytest.raises(RowsOutOfBalance):
        replace_files(lake, SPEC, handle, list_stored_files(SPEC, handle), [])
    assert there(lake) == {("A", "a"): 3}


def test_rows_of_slices_that_are_not_named_are_refused(lake: Lake) -> None:
    with pytest.raises(ValueError, match="not replaced"):
        lake.commit("things", rows(("a", 1), ("d", 1)), slices("a"), {})
    assert there(lake) == {}


@settings(max_examples=15, deadline=None)
@given(st.sets(st.sampled_from(TARGETS)), st.dictionaries(st.sampled_from(TARGETS), st.integers(0, 3), min_size=1))
def test_a_slice_without_a_count_is_counted_once_and_not_failed(old: set[str], new: dict[str, int]) -> None:
    with some_lake() as lake:
        lake.prepare("things")
        write_deltalake(DeltaTable(lake.address("things")), rows(*((one, 2) for one in sorted(old))), mode="append")
        lake.invalidate("things")
        commit(lake, ("a", 1))  # of what is there, others have no count
        assert find_miscounted(lake, "things").slices == {}
        commit(lake, *sorted(new.items()), digest="2")
        expected = {("A", one): 2 for one in old} | {("A", "a"): 1} | {("A", one): n for one, n in new.items()}
        assert there(lake) == {key: count for key, count in expected.items() if count}


@pytest.mark.parametrize("merged", [False, True])
def test_slices_with_other_rows_than_were_committed_are_found(lake: Lake, merged: bool, tmp_path: Path) -> None:
    for target in TARGETS:
        commit(lake, (target, 2))
    if merged:
        compact_due(lake, "things", tmp_path, Bounds(max_small_files=1))
    assert find_miscounted(lake, "things").slices == {}
    lose(lake, "d", 1)
    wrong = {("A", "d"): (2, 1)}
    assert find_miscounted(lake, "things").slices == wrong
    assert find_miscounted(lake, "things", [("A", "d"), ("A", "a")]).slices == wrong
    assert find_miscounted(lake, "things", [("A", "a")]).slices == {}
    assert find_miscounted(lake, "things", None, lake.version("things") - 1).slices == {}


@pytest.mark.parametrize("damage", ["gone", "empty", "half", "zeros"])
@pytest.mark.parametrize("merged", [False, True])
def test_a_file_that_is_not_whole_has_no_rows(lake: Lake, damage: str, merged: bool, tmp_path: Path) -> None:
    for target in TARGETS:
        commit(lake, (target, 2))
    if merged:
        compact_due(lake, "things", tmp_path, Bounds(max_small_files=1))
    handle = lake.open(SPEC)
    assert handle is not None
    [file] = [one for one in list_stored_files(SPEC, handle) if (one.first or "") <= "d" <= (one.last or "")]
    path = Path(lake.address("things"), file.path)
    data = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes({"empty": b"", "half": data[: len(data) // 2], "zeros": bytes(len(data))}[damage])
    hit = TARGETS if merged else ("d",)
    found = find_miscounted(lake, "things", [("A", "d")])
    assert found.broken == (file.path,)
    assert found.slices == {("A", target): (2, 0) for target in hit}
    if damage != "zeros":  # of all slices only sizes are looked at
        assert find_miscounted(lake, "things") == found


def test_no_row_is_read_of_files_of_one_slice(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for target in TARGETS:
        commit(lake, (target, 2))
    monkeypatch.setattr(pq, "ParquetFile", None)
    assert find_miscounted(lake, "things").slices == {}
    assert find_miscounted(lake, "things", [("A", "d")]).slices == {}
    assert find_miscounted(lake, "things", []).slices == {}


def test_what_changed_is_what_commits_name_and_what_lies_in_files_of_others(lake: Lake, tmp_path: Path) -> None:
    for target in TARGETS:
        commit(lake, (target, 2))
    before = lake.version("things")
    assert find_changed_keys(lake, "things", before, before) == set()
    commit(lake, ("a", 1), ("d", 3), digest="2")
    assert find_changed_keys(lake, "things", before, lake.version("things")) == {("A", "a"), ("A", "d")}
    before = lake.version("things")
    lose(lake, "d", 1)
    assert ("A", "d") in (find_changed_keys(lake, "things", before, lake.version("things")) or ())
    before = lake.version("things")
    lake.commit("things", rows(("a", 1), crawl="B"), slices("a", crawl="B"), {})
    compact_due(lake, "things", tmp_path, Bounds(max_small_files=0))
    assert ("B", "a") in (find_changed_keys(lake, "things", before, lake.version("things")) or ())
    (Path(lake.address("things")) / "_delta_log" / f"{before + 1:020}.json").unlink()
    assert find_changed_keys(lake, "things", before, lake.version("things")) is None
