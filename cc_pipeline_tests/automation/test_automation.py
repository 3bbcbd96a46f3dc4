"""What sensors and schedules decide, without Dagster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.automation.due import (
    MAX_FAILURES,
    MAX_FAILURES_OF_DUE,
    Bounds,
    Failures,
    Pair,
    count_failures,
    decide_backfill,
    select_crawls,
)
from cc_pipeline.automation.staleness import assess_crawl
from cc_pipeline.extraction.crawl_plan import CrawlPlan
from cc_pipeline.extraction.fetch_counts import SliceFetchCounts
from cc_pipeline.extraction.fetch_notes import build_fetch_notes
from cc_pipeline.extraction.plan import Index, Plan, Reason, ReasonKind, SlicePlan
from cc_pipeline.extraction.slice_selection import TargetSlices
from cc_pipeline.extraction.slice_state import SliceState
from cc_pipeline.lake.slice import Slice
from cc_pipeline.lake.slices import SliceRow, TableState

LISTED = ["C5", "C4", "C3", "C2", "C1"]


def test_a_selection_keeps_the_listed_order_and_ignores_strangers() -> None:
    assert select_crawls(LISTED, ("C1", "C4", "nope")) == ("C4", "C1")
    assert select_crawls(LISTED, ("all",)) == tuple(LISTED)
    assert select_crawls([], ("newest",)) == ()


NOW = datetime(2026, 1, 1, tzinfo=UTC)
PAIRS = [(crawl, domain) for crawl in ("C2", "C1") for domain in "abcd"]
BOUNDS = Bounds(9, 9, 9)


@given(
    failures=st.dictionaries(st.sampled_from(PAIRS), st.tuples(st.integers(1, 14), st.integers(0, 200))),
    due=st.sets(st.sampled_from(PAIRS)),
    partitions=st.integers(0, 9),
    runs=st.integers(0, 4),
    per_run=st.integers(1, 5),
)
def test_a_tick_is_bounded_and_every_pair_is_started_left_delayed_or_waits(
    failures: dict[Pair, tuple[int, int]], due: set[Pair], partitions: int, runs: int, per_run: int
) -> None:
    counts = {pair: Failures(times, NOW - timedelta(hours=hours)) for pair, (times, hours) in failures.items()}
    found = decide_backfill(PAIRS, due, counts, newest="C2", now=NOW, bounds=Bounds(partitions, runs, per_run))
    started = [pair for run in found.runs for pair in run.pairs]
    assert len(set(started)) == len(started) <= partitions and len(found.runs) <= runs
    assert len(started) + found.remaining + len(found.abandoned) + len(found.delayed) == len(PAIRS)
    for run in found.runs:
        assert len(run.pairs) <= per_run
        for pair in run.pairs:
            assert (run.kind == "repair") == (pair in due or pair in counts)
            if run.kind != "repair":
                assert (run.kind == "watch") == (pair[0] == "C2")
            assert pair in due or pair not in counts or counts[pair].next_try <= NOW
    assert all(counts[pair].times >= MAX_FAILURES for pair in found.abandoned)
    assert all(counts[pair].times < MAX_FAILURES for pair in found.delayed)


def test_a_partition_that_fails_is_tried_less_and_less_often_and_alone_in_the_end() -> None:
    [pair], now, failures, tries = PAIRS[:1], NOW, dict[Pair, Failures](), list[datetime]()
    while now < NOW + timedelta(days=16):
        found = decide_backfill([pair], (), failures, newest="C2", now=now, bounds=BOUNDS)
        if found.runs:
            tries.append(now)
            failures = count_failures(failures, [(now, [pair])], {pair})
        now += timedelta(minutes=30)
    hours = [(later - earlier) / timedelta(hours=1) for earlier, later in pairwise(tries)]
    assert hours == [0.5, 2, 8, 168, 168]
    counts = {pair: Failures(MAX_FAILURES - 1, NOW - timedelta(days=1)) for pair in PAIRS[:2]}
    found = decide_backfill(PAIRS[:4], (), counts, newest="C2", now=NOW, bounds=BOUNDS)
    assert [len(run.pairs) for run in found.runs] == [2, 1, 1]


def test_one_that_ends_its_process_does_not_keep_the_others_from_being_made() -> None:
    """A killed process counts against all partitions of its run: nobody knows whose fault it was."""
    pairs = [("C", f"target-{number:03d}") for number in range(200)]
    bad, made, failures, now = {pairs[10], pairs[150]}, set[Pair](), dict[Pair, Failures](), NOW
    for _ in range(9 * 48):
        now += timedelta(minutes=30)
        left = [pair for pair in pairs if pair not in made]
        found = decide_backfill(left, (), failures, newest="C", now=now, bounds=Bounds(2_000, 10, 200))
        ended = []
        for run in found.runs:
            stop = next((place for place, pair in enumerate(run.pairs) if pair in bad), len(run.pairs))
            made |= set(run.pairs[:stop])
            ended.append((now, run.pairs[stop:]))
        failures = count_failures(failures, ended, {*pairs} - made)
    assert set(pairs) - made == bad


def test_what_is_due_and_fails_before_its_captures_are_asked_for_is_left_in_the_end() -> None:
    pair, failures, started = PAIRS[0], dict[Pair, Failures](), 0
    for step in range(48):
        now = NOW + timedelta(minutes=30 * step)
        found = decide_backfill([pair], {pair}, failures, newest="C2", now=now, bounds=BOUNDS)
        started += len(found.runs)
        failures = count_failures(failures, [(now, run.pairs) for run in found.runs], {pair})
    assert started == MAX_FAILURES_OF_DUE and found.abandoned == (pair,)


def test_a_failure_is_forgotten_with_what_is_wanted_no_more() -> None:
    failures = {PAIRS[0]: Failures(2, NOW), PAIRS[1]: Failures(1, NOW)}
    counted = count_failures(failures, [(NOW, PAIRS[:3])], {PAIRS[0], PAIRS[2]})
    assert {pair: failed.times for pair, failed in counted.items()} == {PAIRS[0]: 3, PAIRS[2]: 1}


def looked(todo: SlicePlan, note: SliceRow | None = None, harvested: bool = True) -> CrawlPlan:
    here = Slice("C1", "set-x~16-0003")
    asked = TargetSlices("C1", {"set-x": (MINE, here)}, {"set-x": ()})
    index = Index({"parquet": "abc"} if harvested else {})
    standings = {MINE: SliceState(rows={} if note is None else {"fetch": note}), here: SliceState()}
    return CrawlPlan(asked, {}, standings, {("C1", "warc"): index}, Plan((todo,) if todo.first_reason else ()))


MINE = Slice("C1", "set-x~16-0001")


@pytest.mark.parametrize("why", list(ReasonKind))
def test_automation_makes_again_what_needs_no_agreement(why: ReasonKind) -> None:
    by_itself = {
        ReasonKind.NEW,
        ReasonKind.DEFINITION,
        ReasonKind.MEMBERS,
        ReasonKind.INDEX,
        ReasonKind.GAP_FILLED,
        ReasonKind.CAPTURES,
        ReasonKind.RECORDS,
        ReasonKind.INCOMPLETE_ROWS,
    }
    by_itself.add(ReasonKind.BLOCKED)
    for todo in (
        SlicePlan(MINE, locate=Reason(why)),
        SlicePlan(MINE, fetch=Reason(why)),
        SlicePlan(MINE, parse=Reason(why)),
    ):
        assert assess_crawl(looked(todo), NOW).stale == ({"set-x"} if why in by_itself else set())
    assert assess_crawl(looked(SlicePlan(MINE, locate=Reason(why)), harvested=False), NOW).stale == set()


def test_pending_captures_are_due_when_their_note_says_so() -> None:
    def stands(minutes: int, pending: int = 9) -> tuple[set[str], set[str]]:
        counts = SliceFetchCounts(slice_=MINE, planned=9, fetched=9 - pending, pending=pending, lost=0)
        ask_time = NOW - timedelta(minutes=minutes)
        note = build_fetch_notes({MINE: counts}, {MINE: None}, ask_time)[MINE]
        row = SliceRow(MINE, "fetch", 0, 1, tables={"records": TableState(1, 9)}, note=note)
        found = assess_crawl(looked(SlicePlan(MINE), row), NOW)
        return set(found.due), set(found.waiting)

    assert stands(20) == (set(), {"set-x"})
    assert stands(30) == ({"set-x"}, set())
    assert stands(-20) == ({"set-x"}, set()), "a time in the future is no time"
    assert stands(40, pending=0) == (set(), set())
