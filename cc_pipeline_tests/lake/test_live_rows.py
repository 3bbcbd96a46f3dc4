"""Which rows of pinned files count, and which slices have others than were committed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cc_pipeline.lake import live_rows
from cc_pipeline.lake.compaction import Bounds, compact
from cc_pipeline.lake.files import write_rows
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.live_rows import LiveRows, Miscount, find_live_rows
from cc_pipeline.lake.slice import Slice
from cc_pipeline.lake.slices import empty_slices, read_slice_rows
from cc_pipeline.lake.streaming import stream_live_rows
from cc_pipeline_tests.lake.things import (
    CRAWL,
    MAKE,
    NEXT,
    build_rows,
    commit,
    content,
    lake_in,
    new_generations,
    slices_in,
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = lake_in(tmp_path / "my läke")
    commit(lake, {"a": range(3), "b": range(4), "none": []})
    commit(lake, {"c'": range(5)}, "D")
    commit(lake, {"a": [7]}, stage=NEXT)
    return lake


def find(lake: Lake, cache: Path | None = None) -> LiveRows:
    return find_live_rows(lake, [lake.pin(table) for table in ("slices", "things", "words", "others")], cache)


def paths(lake: Lake, target: str, table: str = "things") -> list[Path]:
    files = lake.pin(table).stored_files()
    return [
        Path(lake.address(table)) / file.path
        for file in files
        if file.first is not None and file.first <= target <= str(file.last)
    ]


def test_files_count_wholly_or_in_part(lake: Lake) -> None:
    commit(lake, {"b": [9]})
    written = write_rows(
        lake, "things", CRAWL, build_rows(CRAWL, {"e": [1]}).to_batches(), new_generations(CRAWL, ["e"])
    )
    lake.append("things", written.files)
    found = find(lake)
    assert found.miscounts == []
    table = found.tables["things"]
    assert [len(table.complete), len(table.mixed), len(table.generations), table.rows] == [2, 1, 1, 9]
    assert all(Path(path).exists() for path in (*table.complete, *table.mixed))
    rows = stream_live_rows(lake, table).read_all()
    assert rows.schema == lake.specs["things"].schema
    assert Counter(rows["target"].to_pylist()) == {"a": 3, "b": 1, "c'": 5}
    assert sorted(map(str, rows.to_pylist())) == sorted(map(str, lake.read("things").to_pylist()))


@pytest.mark.parametrize("damage", ["missing", "cut", "empty"])
def test_a_slice_whose_file_is_damaged_is_named_with_its_numbers_and_left_out(lake: Lake, damage: str) -> None:
    [path] = paths(lake, "a", "words")
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: 0 if damage == "empty" else -3])
    found = find(lake)
    assert found.miscounts == [
        Miscount(Slice(CRAWL, "a"), "make", "words", 3, 0),
        Miscount(Slice(CRAWL, "b"), "make", "words", 4, 0),
    ]
    assert str(found.miscounts[0]) == "words of C a has 0 rows, and was committed with 3"
    assert found.hidden == {(CRAWL, "a", 0), (CRAWL, "b", 0)}
    assert {name: table.rows for name, table in found.tables.items()} == {"things": 5, "words": 5, "others": 0}


def test_other_rows_than_were_committed_are_found_though_no_file_is_damaged(lake: Lake) -> None:
    rows = read_slice_rows(lake, slices_in(CRAWL, ["a"]), (MAKE,))
    generation = rows[Slice(CRAWL, "a"), "make"].tables["things"].generation
    more = write_rows(lake, "things", CRAWL, build_rows(CRAWL, {"a": [8, 9]}).to_batches(), {"a": generation})
    lake.append("things", more.files)
    [one] = find(lake).miscounts
    assert (one.slice_, one.table, one.committed, one.stored) == (Slice(CRAWL, "a"), "things", 3, 5)
    # a later commit is whole again, and so is an empty one
    commit(lake, {"a": [1]})
    assert find(lake).miscounts == []
    empty_slices(lake, MAKE, slices_in(CRAWL, ["a"]))
    assert find(lake).tables["things"].rows == 9


def test_counts_are_kept_by_file_and_right_after_files_change(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    plain = live_rows.count_generations
    monkeypatch.setattr(
        live_rows,
        "count_generations",
        lambda lake, table, file: (counted.append(file.path), plain(lake, table, file))[1],
    )
    cache = tmp_path / "cache"
    cache.mkdir()
    first = find(lake, cache)
    assert len(counted) == 5
    assert find(lake, cache) == first
    assert len(counted) == 5
    commit(lake, {"b": [9]})
    assert find(lake, cache).tables["things"].rows == 9
    assert len(counted) == 7
    compact(lake, "things", Bounds(1))
    found = find(lake, cache)
    assert (len(counted), found.tables["things"].rows, found.miscounts) == (8, 9, [])
    assert {*pq.read_table(cache / "things.parquet")["file"].to_pylist()} == {
        file.path for file in lake.pin("things").stored_files()
    }
    # a cache that cannot be read is made again, and a damaged file has no rows whatever the cache says
    (cache / "things.parquet").write_bytes(b"PAR1")
    paths(lake, "b")[0].unlink()
    assert {one.slice_.target for one in find(lake, cache).miscounts} == {"a", "b"}
    assert find(lake, cache).miscounts == find(lake).miscounts


def test_what_is_committed_between_the_pins_is_left_out(lake: Lake) -> None:
    slices = lake.pin("slices")
    commit(lake, {"a": [9], "z": [1]})
    found = find_live_rows(lake, [slices, lake.pin("things")], crawls=[CRAWL])
    assert (found.miscounts, found.tables["things"].rows) == ([], 7)
    assert Counter(content(lake)) - Counter(
        (row["crawl"], row["target"], row["value"])
        for row in stream_live_rows(lake, found.tables["things"]).read_all().to_pylist()
    ) == Counter([("C", "a", 9), ("C", "z", 1), *(("D", "c'", n) for n in range(5))])
