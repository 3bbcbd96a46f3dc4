"""A commit of slices is a compare-and-swap: nothing is lost, doubled, or committed in part, whoever else commits."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake import slices as slices_module
from cc_pipeline.lake.files import write_rows
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import Slice
from cc_pipeline.lake.slices import (
    Base,
    SliceRow,
    SlicesChanged,
    commit_written,
    current_rows,
    draw_generations,
    empty_slices,
    find_stale,
    invalidate_slices,
    list_slices,
    read_base,
    read_liveness,
    read_slice_rows,
)
from cc_pipeline.lake.streaming import count_rows, stream_crawl, stream_slices
from cc_pipeline.lake.target_definitions import (
    change_subset_epoch,
    delete_definitions,
    find_part_slugs,
    read_targets,
    register,
)
from cc_pipeline_tests.lake.things import (
    CRAWL,
    MAKE,
    NEXT,
    build_rows,
    commit,
    content,
    define,
    lake_in,
    new_generations,
    slices_in,
)

X, Y = "x.example", "y.example"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = lake_in(tmp_path / "lake")
    define(lake, X, Y)
    return lake


def base_of(lake: Lake, *targets: str) -> Base:
    return read_base(lake, MAKE, slices_in(CRAWL, targets))


def state(lake: Lake, target: str) -> SliceRow:
    [row] = read_slice_rows(lake, slices_in(CRAWL, [target]), (MAKE,)).values()
    return row


def test_a_commit_replaces_its_slices_and_no_others(lake: Lake) -> None:
    commit(lake, {X: [1, 2], Y: [3]})
    commit(lake, {X: [7]}, "D")
    [row] = commit(lake, {X: [5], "z": []})[:1]
    assert (row.seq, row.tables["things"].rows, row.metrics["rows:things"]) == (2, 1, 1)
    assert content(lake) == content(lake, "words") == [("C", X, 5), ("C", Y, 3), ("D", X, 7)]
    assert list_slices(lake, MAKE) == [*slices_in("C", [X, Y, "z"]), Slice("D", X)]
    assert list_slices(lake, NEXT) == []
    assert list_slices(lake, MAKE, {"crawl": "D"}) == [Slice("D", X)]


def test_of_two_commits_from_one_state_the_second_is_refused_and_others_of_its_group_are_made(lake: Lake) -> None:
    commit(lake, {X: [1]})
    base = base_of(lake, X, Y)
    commit(lake_in(lake.root), {X: [2]})
    with pytest.raises(SlicesChanged, match=r"x\.example in C was written by another run") as refused:
        commit(lake, {X: [3], Y: [4]}, base=base)
    assert (refused.value.slices, refused.value.relocate) == ({Slice(CRAWL, X)}, False)
    assert content(lake) == [("C", X, 2), ("C", Y, 4)]
    assert content(lake, "words") == content(lake)


def test_a_stage_is_refused_where_the_stage_before_has_other_rows_than_were_read(lake: Lake) -> None:
    [before] = commit(lake, {X: [1]})
    expected = {(Slice(CRAWL, X), MAKE.label): before}
    commit(lake, {X: [1]}, stage=NEXT, base=replace(read_base(lake, NEXT, slices_in(CRAWL, [X])), expected=expected))
    # rows that were superseded may have been dropped while they were read, whatever their content
    [same] = commit(lake, {X: [1]})
    assert (same.content, same.tables == before.tables) == (before.content, False)
    base = replace(read_base(lake, NEXT, slices_in(CRAWL, [X])), expected=expected)
    with pytest.raises(SlicesChanged):
        commit(lake, {X: [9]}, stage=NEXT, base=base)
    invalidate_slices(lake, MAKE, slices_in(CRAWL, [X]))
    commit(lake, {X: [2]}, stage=NEXT, base=replace(base, expected={(Slice(CRAWL, X), MAKE.label): same}))
    assert content(lake, "others") == [("C", X, 2)]


def test_what_the_caller_compares_is_compared_at_the_commit(lake: Lake) -> None:
    def find_changed(slices: object) -> list[Slice]:
        return slices_in(CRAWL, [Y])

    with pytest.raises(SlicesChanged, match="redefined, removed, blocked") as refused:
        commit(lake, {X: [1], Y: [2]}, base=replace(base_of(lake, X, Y), find_changed=find_changed))
    assert refused.value.relocate
    assert content(lake) == [("C", X, 1)]


def test_rows_of_a_purged_target_count_no_more_and_a_late_commit_of_it_is_refused(lake: Lake) -> None:
    commit(lake, {X: [1], Y: [2]})
    base = base_of(lake, X)
    delete_definitions(lake, [X])
    assert content(lake) == [("C", Y, 2)]
    assert list_slices(lake, MAKE) == slices_in(CRAWL, [Y])
    with pytest.raises(SlicesChanged) as refused:
        commit(lake, {X: [3]}, base=base)
    assert refused.value.relocate
    # defined anew it begins with nothing, and a run of before still commits nothing
    define(lake, X)
    assert read_slice_rows(lake, slices_in(CRAWL, [X])) == {}
    with pytest.raises(SlicesChanged):
        commit(lake, {X: [3]}, base=base)
    [row] = commit(lake, {X: [4]})
    assert row.seq == 1
    assert content(lake) == [("C", X, 4), ("C", Y, 2)]


def test_a_commit_that_a_purge_overtakes_at_the_last_moment_is_stored_and_invisible(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Lake.swap

    def purge_first(own: Lake, table: str, *given: object, **named: object) -> bool:
        if table == "slices":
            delete_definitions(lake_in(lake.root), [X])
        return plain(own, table, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Lake, "swap", purge_first)
    commit(lake, {X: [1], Y: [2]})
    assert content(lake) == [("C", Y, 2)]
    define(lake, X)
    assert content(lake) == [("C", Y, 2)]
    assert len(read_liveness(lake, "things", CRAWL).purged) == 1


def test_a_purge_between_the_reads_of_a_state_hides_its_rows(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(lake, {X: [1], Y: [2]})
    read_newest, purged = slices_module.read_newest, [X, Y]

    def purge_behind(*given: Any) -> pa.Table:
        rows = read_newest(*given)
        delete_definitions(lake_in(lake.root), [purged.pop(0)])
        return rows

    monkeypatch.setattr(slices_module, "read_newest", purge_behind)
    assert {slice_.target for slice_, _ in read_slice_rows(lake, slices_in(CRAWL, [X, Y]))} == {Y}
    assert list_slices(lake, MAKE) == []


def test_the_epoch_of_a_subset_hides_slices_of_this_subset_alone(lake: Lake) -> None:
    part = f"{X}~crawldiagnostics"
    commit(lake, {X: [1], part: [2]})
    change_subset_epoch(lake, X, "crawldiagnostics")
    assert content(lake) == [("C", X, 1)]
    commit(lake, {part: [3]})
    assert content(lake) == [("C", X, 1), ("C", part, 3)]
    assert read_targets(lake, [X])[X].slug == X
    delete_definitions(lake, [X])
    assert content(lake) == []


@pytest.mark.parametrize("kind", ["divided set", "subset alone", "subset that was dropped and made again"])
def test_a_lost_definition_gets_the_epochs_of_the_slices_that_are_stored(lake: Lake, kind: str) -> None:
    target = parse_target(
        f"set:big = {', '.join(f'm{number}.org' for number in range(100))}" if kind == "divided set" else "example.org"
    )
    register(lake, [target])
    names = find_part_slugs(lake, [target.slug])[target.slug][:2]
    names = names if kind == "divided set" else [f"{name}~robotstxt" for name in names]
    commit(lake, {name: [1, 2] for name in names})
    if kind.endswith("again"):
        commit(lake, {target.slug: [1]})
        change_subset_epoch(lake, target.slug, "robotstxt")
        commit(lake, {name: [3] for name in names})
    before = content(lake)
    shutil.rmtree(f"{lake.root}/tables/targets")
    again = lake_in(lake.root)
    assert content(again) == []
    register(again, [target])
    assert content(again) == before


@pytest.mark.parametrize("answer", ["refused", "raised"])
def test_a_commit_whose_answer_was_lost_is_found_and_nothing_doubles(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    plain, lost = Lake.swap, []

    def lose(own: Lake, table: str, *given: object, **named: object) -> bool:
        done = plain(own, table, *given, **named)  # type: ignore[arg-type]
        if table == "slices" and not lost:
            lost.append(done)
            if answer == "raised":
                raise EnvironmentFault("no answer", "Again.")
            return False
        return done

    monkeypatch.setattr(Lake, "swap", lose)
    if answer == "raised":
        with pytest.raises(EnvironmentFault, match="no answer"):
            commit(lake, {X: [1, 1]}, made_of="it")
        # whoever comes next finds it
        assert find_stale(lake, MAKE, {Slice(CRAWL, X): {"of": "it"}}) == []
    else:
        [row] = commit(lake, {X: [1, 1]}, made_of="it")
        found = state(lake, X)
        assert (row.attempt, row.seq, row.tables) == (found.attempt, 1, found.tables)
    assert lost == [True]
    assert content(lake) == [("C", X, 1), ("C", X, 1)]
    assert current_rows(lake).num_rows == 1


def test_a_commit_that_always_meets_others_gives_up(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices_module, "TRIES", 3)
    monkeypatch.setattr(Lake, "swap", lambda *given, **named: False)
    with pytest.raises(EnvironmentFault, match="could not commit to slices") as refused:
        commit(lake, {X: [1]})
    assert not isinstance(refused.value, SlicesChanged)
    monkeypatch.undo()
    assert content(lake) == []


def count_up(root: str, times: int, worker: int) -> int:
    """Adds one to a slice that all share, and to one of its own; returns how often another was first."""
    lake, refused = lake_in(root), 0
    for _ in range(times):
        while True:
            base = read_base(lake, MAKE, slices_in(CRAWL, [X, f"w{worker}"]))
            row = base.replaced.get(Slice(CRAWL, X))
            now = int(row.input["of"]) if row else 0
            try:
                commit(lake, {X: range(now + 1)}, made_of=str(now + 1), base=base)
                commit(lake, {f"w{worker}": [now]}, base=base)
                break
            except SlicesChanged:
                refused += 1
    return refused


def test_workers_leave_chains_without_a_fork(lake: Lake) -> None:
    workers, times = 2, 3
    with multiprocessing.get_context("spawn").Pool(workers) as processes:
        processes.starmap(count_up, [(lake.root, times, worker) for worker in range(workers)])
    assert [value for _, target, value in content(lake) if target == X] == [*range(workers * times)]
    assert state(lake, X).seq == workers * times
    handle = lake.handle(lake.specs["slices"])
    assert handle is not None
    stored = handle.to_pyarrow_table(columns=["target", "stage", "epoch", "seq"]).to_pylist()
    chains: dict[tuple[str, ...], list[int]] = {}
    for row in stored:
        chains.setdefault((row["target"], row["stage"], str(row["epoch"])), []).append(row["seq"])
    assert all(sorted(numbers) == [*range(1, len(numbers) + 1)] for numbers in chains.values())


def test_rows_are_read_once_they_are_committed_and_not_before(lake: Lake) -> None:
    commit(lake, {X: [1]})
    slices = slices_in(CRAWL, [X])
    base, generations = base_of(lake, X), draw_generations(slices)
    numbers = {slice_.target: number for slice_, number in generations.items()}
    written = {
        table: write_rows(lake, table, CRAWL, build_rows(CRAWL, {X: [8, 9]}).to_batches(), numbers)
        for table in MAKE.tables
    }

    reads: list[Callable[[], list[int]]] = [
        lambda: [row["value"] for row in lake.read("things", {"target": X}).to_pylist()],
        lambda: [n for batch in stream_slices(lake, "things", CRAWL, [X], ["value"]) for n in batch[0].to_pylist()],
        lambda: [n for batch in stream_crawl(lake, "things", CRAWL, ["value"]) for n in batch[0].to_pylist()],
    ]
    for table in MAKE.tables:
        lake.append(table, written[table].files)
        assert [sorted(read()) for read in reads] == [[1], [1], [1]]
        assert count_rows(lake, "things", {"crawl": CRAWL}) == {(CRAWL, X): 1}
    # a reader that began before sees what counted then
    begun = stream_slices(lake, "things", CRAWL, [X], ["value"])
    first = next(begun)
    commit_written(lake, MAKE, {slice_: {} for slice_ in slices}, written, generations, base)
    assert first[0].to_pylist() == [1]
    assert [*begun] == []
    assert [sorted(read()) for read in reads] == [[8, 9], [8, 9], [8, 9]]
    # of an append twice, as after a lost answer, the log has each file once
    lake.append("things", written["things"].files)
    assert sorted(reads[0]()) == [8, 9]


def test_what_is_excluded_from_a_crawl_are_generations_whether_they_count_or_not(lake: Lake) -> None:
    commit(lake, {X: [1]})
    superseded = read_liveness(lake, "things", CRAWL).alive
    commit(lake, {X: [3], Y: [2]})
    written = write_rows(lake, "things", CRAWL, build_rows(CRAWL, {"z": [4]}).to_batches(), new_generations(CRAWL, "z"))
    lake.append("things", written.files)
    found = stream_crawl(lake, "things", CRAWL, ["value"], excluded=superseded)
    assert sorted(n for batch in found for n in batch[0].to_pylist()) == [2, 3, 4]


def test_invalid_slices_keep_their_rows_and_are_to_be_made_again(lake: Lake) -> None:
    commit(lake, {X: [1], Y: [2]}, made_of="it")
    inputs = {slice_: {"of": "it"} for slice_ in slices_in(CRAWL, [X, Y, "z"])}
    assert find_stale(lake, MAKE, inputs) == slices_in(CRAWL, ["z"])
    invalidate_slices(lake, MAKE, slices_in(CRAWL, [X, "z"]))
    assert find_stale(lake, MAKE, inputs) == slices_in(CRAWL, [X, "z"])
    assert content(lake) == [("C", X, 1), ("C", Y, 2)]
    empty_slices(lake, MAKE, [*slices_in(CRAWL, [X, "z"])])
    assert content(lake) == [("C", Y, 2)]
    assert list_slices(lake, MAKE) == slices_in(CRAWL, [Y])
