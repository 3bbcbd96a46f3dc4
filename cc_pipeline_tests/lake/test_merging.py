"""Compaction changes no answer: it drops what counts no more, loses no row and doubles none, whoever else commits."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake import compaction, files, layout
from cc_pipeline.lake.compaction import Bounds, compact, is_due, merge_files
from cc_pipeline.lake.files import write_rows
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.layout import StoredFile, find_due_merges, list_stored_files, split_into_runs
from cc_pipeline.lake.slices import (
    Base,
    SlicesChanged,
    commit_written,
    current_rows,
    draw_generations,
    empty_slices,
    read_base,
    read_liveness,
    read_purged,
    remove_purged,
)
from cc_pipeline.lake.target_definitions import delete_definitions
from cc_pipeline.maintenance.leftovers import list_generations
from cc_pipeline_tests.lake.things import (
    CRAWL,
    MAKE,
    THINGS,
    build_rows,
    commit,
    content,
    define,
    lake_in,
    new_generations,
    slices_in,
)

MB = 1 << 20
WEEK = timedelta(days=7, hours=1)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    # a name that is escaped wherever somebody escapes it
    return lake_in(tmp_path / "my läke")


def stored_files(lake: Lake, table: str = "things") -> list[StoredFile]:
    return lake.pin(table).stored_files()


def stored_rows(lake: Lake, table: str = "things") -> int:
    return sum(file.rows for file in stored_files(lake, table))


def compact_all(lake: Lake, table: str = "things", max_small_files: int = 1) -> int:
    return compact(lake, table, Bounds(max_small_files))


@contextmanager
def later(by: timedelta) -> Iterator[None]:
    """Time goes on: what was an hour or a week ago is reckoned from then."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + by

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cc_pipeline.lake.compaction.datetime", Clock)
        patch.setattr("cc_pipeline.lake.slices.datetime", Clock)
        yield


def append_orphan(lake: Lake, *values: int, target: str = "orphan") -> int:
    """Rows of a run that was killed before its commit."""
    generations = new_generations(CRAWL, [target])
    batches = build_rows(CRAWL, {target: values}).to_batches()
    lake.append("things", write_rows(lake, "things", CRAWL, batches, generations).files)
    return generations[target]


def whole_rows(lake: Lake, table: str) -> list[str]:
    return sorted(map(str, lake.read(table).to_pylist()))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.dictionaries(st.sampled_from("abcde"), st.integers(0, 6), min_size=1)),
        st.tuples(st.sampled_from(["orphan", "purge", "empty"]), st.sampled_from("abcde")),
        st.tuples(st.sampled_from(["hours", "days", "merge", "drop"]), st.integers(1, 9)),
    ),
    min_size=3,
    max_size=12,
)


@settings(max_examples=8, deadline=None)
@given(STEPS)
@example(
    [
        ("days", 2),
        ("commit", {"d": 3, "a": 1, "c": 0, "e": 0, "b": 4}),
        ("merge", 5),
        ("commit", {"c": 3, "e": 5, "a": 5, "b": 4, "d": 0}),
        ("orphan", "a"),
        ("commit", {"c": 3, "a": 1, "e": 3}),
        ("purge", "e"),
    ]
)
def test_whatever_was_committed_superseded_purged_or_lost_the_rows_that_count_stay(
    steps: Sequence[tuple[str, object]],
) -> None:
    folder = tempfile.mkdtemp()
    lake, gone = lake_in(folder), timedelta()
    expected: dict[str, list[int]] = {}
    try:
        define(lake, *(f"{name}.example" for name in "abcde"))
        # twice: rows that were superseded before their target was purged are orphans by then
        for number, (kind, value) in enumerate([*steps, ("days", 9), ("drop", 1), ("drop", 1)]):
            with later(gone):
                if kind == "commit":
                    rows = {f"{name}.example": [number * 10 + n for n in range(count)] for name, count in value.items()}
                    commit(lake, rows)
                    expected |= rows
                elif kind == "orphan":
                    append_orphan(lake, -1, -2, target=f"{value}.example")
                elif kind == "purge":
                    delete_definitions(lake, [f"{value}.example"])
                    define(lake, f"{value}.example")
                    expected.pop(f"{value}.example", None)
                elif kind == "empty":
                    empty_slices(lake, MAKE, slices_in(CRAWL, [f"{value}.example"]))
                    expected.pop(f"{value}.example", None)
                elif kind in ("hours", "days"):
                    gone += timedelta(**{kind: int(str(value))})
                else:
                    before = [whole_rows(lake, table) for table in MAKE.tables]
                    for table in (*MAKE.tables, "slices", "targets"):
                        compact(lake, table, Bounds(int(str(value)), drops_dead=kind == "drop"))
                    for table in MAKE.tables:
                        compact(lake, table, Bounds(purged=list_generations(read_purged(lake))))
                    assert [whole_rows(lake, table) for table in MAKE.tables] == before
            for table in MAKE.tables:
                assert content(lake, table) == sorted((CRAWL, t, n) for t, values in expected.items() for n in values)
        # of what counts no more, less than one row of five is left
        for table in MAKE.tables:
            assert 0.8 * stored_rows(lake, table) <= sum(map(len, expected.values()))
    finally:
        shutil.rmtree(folder)


def test_dead_rows_of_an_hour_ago_are_dropped_and_recent_ones_stay(lake: Lake) -> None:
    define(lake, "a.example", "b.example")
    commit(lake, {"a.example": range(10), "b.example": range(10)})
    commit(lake, {"a.example": [1]})
    assert compact(lake, "things", Bounds()) == 0
    assert stored_rows(lake) == 21
    # a reader that pinned the slices before finds its rows
    with later(timedelta(minutes=59)):
        compact_all(lake)
        assert stored_rows(lake) == 21
    with later(timedelta(minutes=61)):
        compact_all(lake)
    assert stored_rows(lake) == 11
    # a purge waits for nobody
    delete_definitions(lake, ["b.example"])
    assert compact(lake, "things", Bounds()) == 0, "a purge reads first which records they name"
    compact(lake, "things", Bounds(purged=list_generations(read_purged(lake))))
    assert (stored_rows(lake), content(lake)) == (1, [(CRAWL, "a.example", 1)])


def test_a_purge_drops_the_generations_that_it_read_alone_and_merges_nothing(lake: Lake) -> None:
    define(lake, "a.example", "b.example", "c.example")
    for crawl in (CRAWL, "D"):
        for target in ("a.example", "b.example", "c.example"):
            commit(lake, {target: range(5)}, crawl)
    delete_definitions(lake, ["a.example"])
    purged = read_purged(lake)
    # by another process, which has not read yet what its rows name
    delete_definitions(lake, ["b.example"])
    generations = {CRAWL: list_generations(purged)[CRAWL]}
    [counts] = read_liveness(lake, "things", CRAWL).alive
    generations[CRAWL].add(counts)
    assert compact(lake, "things", Bounds(1, purged=generations)) == 1
    assert Counter(file.crawl for file in stored_files(lake)) == {CRAWL: 2, "D": 3}
    # nor is what was purged, or committed, since then taken for done
    remove_purged(lake, CRAWL, purged.filter(pc.equal(purged["crawl"], CRAWL)))
    left = {(row["crawl"], row["target"]) for row in read_purged(lake).to_pylist()}
    assert left == {("D", "a.example"), ("D", "b.example"), (CRAWL, "b.example")}


def test_a_purged_row_that_was_committed_since_it_was_read_is_not_taken_away(lake: Lake) -> None:
    define(lake, "a.example")
    commit(lake, {"a.example": [1]})
    base = read_base(lake, MAKE, slices_in(CRAWL, ["a.example"]))
    delete_definitions(lake, ["a.example"])
    purged = read_purged(lake)
    with pytest.MonkeyPatch.context() as patch:
        # the purge came between the look at the epoch and the commit
        patch.setattr("cc_pipeline.lake.slices.read_epochs", lambda *_: base.epochs)
        commit(lake, {"a.example": [2]}, base=base)
    remove_purged(lake, CRAWL, purged)
    assert read_purged(lake).num_rows == 2
    remove_purged(lake, CRAWL, read_purged(lake))
    assert read_purged(lake).num_rows == 0


def test_files_with_dead_rows_alone_are_removed_unread_and_files_with_few_are_left(lake: Lake) -> None:
    commit(lake, {"a": range(5)})
    [dead] = stored_files(lake)
    commit(lake, {f"t{n}": range(10) for n in range(10)})
    commit(lake, {"a": [7], "t3": []})
    (Path(lake.address("things")) / dead.path).unlink()
    with later(timedelta(hours=2)):
        assert compact(lake, "things", Bounds()) == 1
    assert sorted(file.rows for file in stored_files(lake)) == [1, 100]
    commit(lake, {"t4": []})
    with later(timedelta(hours=4)):
        assert compact(lake, "things", Bounds()) == 1
    assert sorted(file.rows for file in stored_files(lake)) == [1, 80]
    assert is_due(lake, "things", Bounds(1))


def test_orphans_are_left_alone_for_a_week_then_condemned_and_dropped(lake: Lake) -> None:
    commit(lake, {"a": [1]})
    base, slices = read_base(lake, MAKE, slices_in(CRAWL, ["b"])), slices_in(CRAWL, ["b"])
    generations = draw_generations(slices)
    batches = build_rows(CRAWL, {"b": [5]}).to_batches()
    numbers = {slice_.target: number for slice_, number in generations.items()}
    written = {table: write_rows(lake, table, CRAWL, batches, numbers) for table in MAKE.tables}
    lake.append("things", written["things"].files)
    with later(timedelta(days=6, hours=23)):
        assert compact_all(lake) == 0
    assert stored_rows(lake) == 2
    with later(WEEK):
        assert compact_all(lake) == 1
    assert stored_rows(lake) == 1
    with pytest.raises(SlicesChanged):
        commit_written(lake, MAKE, {slices[0]: {}}, written, generations, base)
    assert content(lake) == [(CRAWL, "a", 1)]


def test_an_orphan_that_is_committed_just_before_it_is_condemned_stays(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    condemn = compaction.condemn

    def commit_first(*given: object) -> set[int]:
        commit_written(lake_in(lake.root), MAKE, {slices[0]: {}}, written, generations, base)
        return condemn(*given)  # type: ignore[arg-type]

    slices = slices_in(CRAWL, ["b"])
    base, generations = Base({slices[0]: 0}, {}), draw_generations(slices)
    numbers = {slice_.target: number for slice_, number in generations.items()}
    batches = build_rows(CRAWL, {"b": [5, 6]}).to_batches()
    written = {table: write_rows(lake, table, CRAWL, batches, numbers) for table in MAKE.tables}
    lake.append("things", written["things"].files)
    lost = append_orphan(lake, 9)
    monkeypatch.setattr(compaction, "condemn", commit_first)
    with later(WEEK):
        compact_all(lake)
    assert content(lake) == [(CRAWL, "b", 5), (CRAWL, "b", 6)]
    assert lost not in read_liveness(lake, "things", CRAWL).every
    assert min(file.rows for file in stored_files(lake)) == 2


def test_merging_superseded_rows_of_slices_drops_them_after_a_week(lake: Lake) -> None:
    for value in range(6):
        commit(lake, {"a": [value], f"b{value}": [value]})
    assert compact_all(lake, "slices") == 6
    assert compact_all(lake, "slices") == 0
    assert stored_rows(lake, "slices") == 12
    # a reader of the older rows may still be at it, and compaction wants to know when they were superseded
    with later(timedelta(days=6)):
        assert compact(lake, "slices", Bounds()) == 0
    before = current_rows(lake, columns=["tables", "input"]).sort_by("target").to_pylist()
    with later(WEEK):
        assert compact(lake, "slices", Bounds()) == 1
        assert compact(lake, "slices", Bounds()) == 0
    assert stored_rows(lake, "slices") == 7
    assert current_rows(lake, columns=["tables", "input"]).sort_by("target").to_pylist() == before
    [row] = commit(lake, {"a": [9]})
    assert row.seq == 7


@pytest.mark.parametrize("small", [0, 256 << 10])
@pytest.mark.parametrize("seed", range(3))
def test_files_that_overlap_become_sorted_and_a_slice_of_several_files_is_together(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, seed: int, small: int
) -> None:
    monkeypatch.setattr(compaction, "_SMALL_FILE", small)
    monkeypatch.setattr("cc_pipeline.lake.streaming._MAX_BATCH_ROWS", 7)
    monkeypatch.setattr("cc_pipeline.lake.streaming._BATCH_ROWS", 3)
    chance = random.Random(seed)
    named = [f"t{number:02}" for number in range(20)]
    written: list[StoredFile] = []
    for number in range(6):
        values = {name: [number * 100 + n for n in range(chance.randint(1, 30))] for name in chance.sample(named, 6)}
        batches = build_rows(CRAWL, values).to_batches()
        written += write_rows(lake, "things", CRAWL, batches, new_generations(CRAWL, values)).files
    assert len(split_into_runs(written)) > 2
    found = [*merge_files(lake, THINGS, written)]
    rows = pa.Table.from_batches(found)
    targets = rows["target"].to_pylist()
    assert targets == sorted(targets)
    # the rows of a slice in a file stay side by side, in their order
    generations = pc.run_end_encode(rows["generation"].combine_chunks()).values.to_pylist()
    assert len(generations) == len({*generations})
    by_file = {
        file.path: pq.ParquetFile(f"{lake.address('things')}/{file.path}").read(["target", "value", "generation"])
        for file in written
    }
    assert Counter(rows["value"].to_pylist()) == Counter(
        n for own in by_file.values() for n in own["value"].to_pylist()
    )
    for own in by_file.values():
        of_file = rows.filter(pc.is_in(rows["generation"], own["generation"].combine_chunks()))
        assert of_file["value"].to_pylist() == own["value"].to_pylist()


@pytest.mark.parametrize("other", ["commits", "merges", "is this one"])
def test_a_merge_beside_others_is_committed_once(lake: Lake, monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    for target in "abcd":
        commit(lake, {target: range(3)})
    others, plain, met = lake_in(lake.root), Lake.swap, []

    def meet(own: Lake, table: str, *given: object, **named: object) -> bool:
        if own is lake and table == "things" and not met:
            met.append(True)
            if other == "is this one":  # whose answer was lost
                assert plain(own, table, *given, **named)  # type: ignore[arg-type]
                return False
            if other == "commits":
                commit(others, {"e": [7], "b": [8]})
            else:
                assert compact(others, "things", Bounds(3)) == 4
        return plain(own, table, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Lake, "swap", meet)
    assert compact(lake, "things", Bounds(3)) == (0 if other == "merges" else 4)
    assert met
    assert len(stored_files(lake)) == (2 if other == "commits" else 1)
    rows = {"a": 3, "b": 3, "c": 3, "d": 3} | ({"b": 1, "e": 1} if other == "commits" else {})
    assert Counter(target for _, target, _ in content(lake)) == rows


def test_a_merge_is_no_change_of_rows(lake: Lake) -> None:
    for target in "abcd":
        commit(lake, {target: range(3)})
    before = lake.pin("things")
    compact_all(lake)
    after = lake.pin("things")
    assert before.rows == after.rows
    assert before.version < after.version


def test_files_that_differ_from_the_log_are_not_merged(lake: Lake) -> None:
    for target in "abcd":
        commit(lake, {target: range(3)})
    [file] = [file for file in stored_files(lake) if file.first == "b"]
    path = Path(lake.address("things")) / file.path
    rows = pq.ParquetFile(path).read()
    pq.write_table(rows.slice(1), path)
    version = lake.version("things")
    with pytest.raises(EnvironmentFault, match="would change the number of rows"):
        compact_all(lake)
    path.unlink()
    with pytest.raises(EnvironmentFault, match="could not read"):
        compact_all(lake)
    assert lake.version("things") == version


def test_files_and_row_groups_end_at_their_bounds(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FILE_BYTES", 10_000)
    monkeypatch.setattr(files, "_ROW_GROUP_BYTES", 20_000)
    monkeypatch.setattr(files, "BATCH_ROWS", 50)
    for number in range(8):
        commit(lake, {f"t{number}": range(number * 1_000, number * 1_000 + 400)})
    before = content(lake)
    compact_all(lake, max_small_files=2)
    assert content(lake) == before
    merged = list_stored_files(THINGS, lake.prepare("things"))
    assert len(merged) > 2
    assert len(split_into_runs(merged)) == 1
    assert max(file.size for file in merged) < 50_000
    for path in lake.pin("things").files:
        stored = pq.ParquetFile(path).metadata
        assert max(stored.row_group(n).total_byte_size for n in range(stored.num_row_groups)) < 40_000


def test_what_is_due_is_read_from_the_log_alone(lake: Lake) -> None:
    assert not is_due(lake, "things", Bounds(1)), "no table yet"
    for target in "abc":
        commit(lake, {target: [1]})
    for path in lake.pin("things").files:
        Path(path).rename(f"{path}.away")
    assert is_due(lake, "things", Bounds(2))
    assert not is_due(lake, "things", Bounds(3))
    assert not is_due(lake, "whole", Bounds(0))


def test_time_that_is_up_begins_no_merge(lake: Lake) -> None:
    for target in "abc":
        commit(lake, {target: [1]})
    assert compact(lake, "things", Bounds(1, until=0)) == 0
    assert compact(lake, "things", Bounds(1, max_bytes=10)) == 0
    assert compact(lake, "things", Bounds(1, drops_dead=False)) == 3


def stored(first: str, last: str, size: int, crawl: str = "C") -> StoredFile:
    bounds = {"target": (first, last)}
    return StoredFile(f"{crawl}-{first}-{last}-{size}", {"crawl": crawl}, size, 1, 0, bounds, first, last)


def test_small_files_are_merged_by_crawl_when_there_are_many() -> None:
    few = [stored("a", "a", MB, "A") for _ in range(layout.MAX_SMALL_FILES)]
    many = [stored("a", "a", MB, "B") for _ in range(layout.MAX_SMALL_FILES + 1)]
    large = [stored("a", "a", 9 * MB, "B")]
    assert find_due_merges([*few, *many, *large]) == [many]


def test_a_run_of_large_files_is_never_merged_again_and_deep_ones_are() -> None:
    base = [stored(f"{n:03}", f"{n + 1:03}", 16 * MB) for n in range(100)]
    assert find_due_merges(base) == []
    over = [stored("000", "100", 16 * MB) for _ in range(layout.MAX_OVERLAPPING_RUNS)]
    [deep] = find_due_merges([*base, *over])
    assert sorted(deep, key=str) == sorted(over, key=str), "the large run is left alone"
    # of one large slice: every reader of it reads all its files
    assert find_due_merges([stored("a", "a", 16 * MB) for _ in range(100)]) == []
    assert find_due_merges([*base, *over[1:]]) == []


def test_rows_are_merged_a_few_times_only_however_many_commits_there_are() -> None:
    """A life of 1,500 commits of 1 MB each: what merging writes grows with the logarithm of what there is."""
    live: list[StoredFile] = []
    written = 0
    for number in range(1_500):
        slug = f"{number * 7919 % 1_511:06}"
        live.append(stored(slug, slug, MB))
        while steps := find_due_merges(live):
            size = sum(file.size for file in steps[0])
            written += size
            gone = {id(file) for file in steps[0]}
            live = [file for file in live if id(file) not in gone]
            parts = -(-size // layout.FILE_BYTES)
            bounds = [f"{1_511 * n // parts:06}" for n in range(parts + 1)]
            live += [stored(bounds[n], bounds[n + 1], min(16 * MB, size - n * 16 * MB)) for n in range(parts)]
        deep = len(split_into_runs([file for file in live if file.size >= layout.SMALL_BYTES]))
        assert deep <= layout.MAX_OVERLAPPING_RUNS
    assert len(live) < 1_500 / 16 * 1.5 + layout.MAX_SMALL_FILES
    assert written / (1_500 * MB) < 6


def test_a_bound_of_bytes_still_merges_the_smallest() -> None:
    some = [stored("a", "b", n * MB) for n in (1, 2, 3, 4)]
    assert find_due_merges(some, 1, 6 * MB) == [some[:3]]
    assert find_due_merges(some, 1, 2 * MB) == []
    wide = [stored("a", "z", 16 * MB + n) for n in range(12)]
    assert find_due_merges(wide, max_bytes=100 * MB) == [wide[:6]]
