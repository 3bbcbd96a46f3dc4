"""What sensors and schedules decide, without Dagster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.automation.due import (
    MAX_FAILURES,
    MAX_FAILURES_OF_DUE,
    Bounds,
    decide_backfill,
    decide_crawls,
    estimate_pace,
    format_duration,
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


def decide(
    registered: set[str],
    requested: set[str],
    selection: tuple[str, ...] = ("newest",),
    cap: int = 100,
    unpublished: set[str] | None = None,
):
    return decide_crawls(LISTED, registered, requested, selection, lambda c: c not in (unpublished or set()), cap)


def test_the_first_tick_registers_all_and_runs_only_the_newest() -> None:
    decision = decide(set(), set())
    assert decision.register == ("C1", "C2", "C3", "C4", "C5")
    assert decision.run == ("C5",)


def test_the_second_tick_has_nothing_to_do() -> None:
    decision = decide(set(LISTED), {"C5"})
    assert (decision.register, decision.run, decision.waiting) == ((), (), ())


def test_a_crawl_waits_until_it_is_published() -> None:
    decision = decide(set(LISTED), set(), unpublished={"C5"})
    assert decision.run == ()
    assert decision.waiting == ("C5",)


def test_new_keys_per_tick_are_capped_newest_first() -> None:
    decision = decide(set(), set(), cap=2)
    assert decision.register == ("C4", "C5")


def test_only_crawls_that_would_run_are_asked_for() -> None:
    asked: list[str] = []
    decide_crawls(LISTED, LISTED, {"C5"}, ("C5", "C2"), lambda c: not asked.append(c), 10)
    assert asked == ["C2"]


def test_a_selection_keeps_the_listed_order_and_ignores_strangers() -> None:
    assert select_crawls(LISTED, ("C1", "C4", "nope")) == ("C4", "C1")
    assert select_crawls(LISTED, ("all",)) == tuple(LISTED)
    assert select_crawls([], ("newest",)) == ()


NOW = datetime(2026, 1, 1, tzinfo=UTC)
PAIRS = [(crawl, domain) for crawl in ("C2", "C1") for domain in "abcd"]
decide_few = partial(decide_backfill, newest="C2", seconds=lambda _: 1.0, bounds=Bounds(9, 99.0, 9, 9))


@given(
    failures=st.dictionaries(st.sampled_from(PAIRS), st.tuples(st.integers(1, 14), st.integers(0, 24))),
    due=st.sets(st.sampled_from(PAIRS)),
    partitions=st.integers(0, 9),
    seconds=st.integers(-5, 40),
    runs=st.integers(0, 4),
    per_run=st.integers(1, 5),
)
def test_a_tick_is_bounded_and_every_pair_is_asked_for_left_resting_or_the_rest(
    failures: dict[tuple[str, str], tuple[int, int]],
    due: set[tuple[str, str]],
    partitions: int,
    seconds: int,
    runs: int,
    per_run: int,
) -> None:
    counts = {pair: (times, NOW - timedelta(hours=hours)) for pair, (times, hours) in failures.items()}
    found = decide_backfill(
        PAIRS,
        due,
        counts,
        newest="C2",
        now=NOW,
        seconds=lambda _: 3.0,
        bounds=Bounds(partitions, seconds, runs, per_run),
    )
    asked = [pair for run in found.runs for pair in run.pairs]
    assert len(set(asked)) == len(asked)
    assert len(asked) + found.remaining + len(found.abandoned) + len(found.delayed) == len(PAIRS)
    assert found.rest_seconds == 3.0 * found.remaining
    assert len(asked) <= partitions
    assert len(found.runs) <= runs
    assert all(len(run.pairs) <= per_run and run.seconds == 3.0 * len(run.pairs) for run in found.runs)
    assert len(asked) * 3 < max(0, seconds) + 3, "no more than the one that goes over the bound"
    for run in found.runs:
        for pair in run.pairs:
            assert (run.kind == "repair") == (pair in due or pair in counts)
            if run.kind != "repair":
                assert (run.kind == "watch") == (pair[0] == "C2")
    most = {pair: MAX_FAILURES_OF_DUE if pair in due else MAX_FAILURES for pair in PAIRS}
    assert all(counts[pair][0] >= most[pair] for pair in found.abandoned)
    assert all(counts[pair][0] < most[pair] for pair in asked if pair in counts)
    assert all(counts[pair][0] < MAX_FAILURES for pair in found.delayed)


def test_what_is_due_and_fails_before_its_captures_are_asked_for_is_left_in_the_end() -> None:
    [pair] = PAIRS[:1]
    asked, now = 0, NOW
    for _ in range(48):
        counts = {pair: (asked, now - timedelta(minutes=20))} if asked else {}
        found = decide_few([pair], {pair}, counts, now=now)
        asked, now = asked + len(found.runs), now + timedelta(minutes=30)
    assert asked == MAX_FAILURES_OF_DUE
    assert found.abandoned == (pair,)


def test_what_no_run_got_to_is_due_at_once_and_is_never_left() -> None:
    """A disk that is full for two weeks: each run ends before it tries anything."""
    [pair] = PAIRS[:1]
    runs: list[datetime] = []
    now = NOW
    while now < NOW + timedelta(days=14):
        early = {pair: (len(runs), runs[-1])} if runs else {}
        for due in ((), {pair}):
            found = decide_few([pair], due, {}, early, now=now)
            assert found.abandoned == found.delayed == ()
            assert bool(found.runs) != bool(found.postponed)
        runs += [now] * len(found.runs)
        now += timedelta(minutes=30)
    hours = [(later - earlier) / timedelta(hours=1) for earlier, later in pairwise(runs)]
    assert hours[:3] == [0.5, 0.5, 2], "with the next tick, then at growing distances"
    assert set(hours[3:]) == {8}


def test_the_last_try_of_a_partition_is_alone() -> None:
    counts = {("C2", domain): (MAX_FAILURES - 1, NOW - timedelta(days=1)) for domain in "ab"}
    found = decide_few(PAIRS[:4], (), counts, now=NOW)
    assert [(run.kind, run.pairs) for run in found.runs] == [
        ("watch", (("C2", "c"), ("C2", "d"))),
        ("repair", (("C2", "a"),)),
        ("repair", (("C2", "b"),)),
    ]


def fetches(*rows: tuple[str, str, int]) -> pa.Table:
    return pa.table({name: [row[place] for row in rows] for place, name in enumerate(("crawl", "target", "rows"))})


def test_the_pace_comes_from_ended_runs_and_from_what_a_target_has_elsewhere() -> None:
    known = fetches(("C1", "a", 100), ("C2", "a", 300), ("C1", "set-x~2-0000", 30), ("C1", "set-x~2-0001", 10))
    before = estimate_pace(known, [], rate=10.0)
    assert not before.is_measured
    assert before.seconds("a") == 22.0, "200 captures on average and the fixed cost, ten a second"
    assert before.captures["set-x"] == 40, "the parts of a set together"
    assert before.default_captures == 120
    measured = estimate_pace(known, [(100.0, 4), (180.0, 3)], rate=10.0)
    assert measured.is_measured
    assert measured.seconds("unknown") == 40.0, "a usual partition takes what partitions took"
    assert measured.seconds("a") > measured.seconds("set-x")
    assert estimate_pace(fetches(), [], None).total([("C1", "a")] * 2) == 4.8
    assert [format_duration(seconds) for seconds in (1, 600, 5400, 864_000)] == [
        "about 1 min", "about 10 min", "about 1.5 h", "about 10 days",
    ]  # fmt: skip


def test_one_that_ends_its_runs_keeps_the_others_from_nothing() -> None:
    """What ends a run leaves all behind it untried: nobody knows whose fault it was, and each is asked for again."""
    pairs = [("C", f"target-{number:03d}") for number in range(200)]
    bad = {pairs[10], pairs[11], pairs[150]}
    made: set[tuple[str, str]] = set()
    unreached: dict[tuple[str, str], tuple[int, datetime]] = {}
    now = datetime(2026, 11, 1, tzinfo=UTC)
    bounds = Bounds(2_000, 3_600.0, 10, 200)
    for _ in range(6 * 48):
        now += timedelta(minutes=30)
        left = [pair for pair in pairs if pair not in made]
        found = decide_backfill(left, (), {}, unreached, newest="C", now=now, seconds=lambda _: 1.0, bounds=bounds)
        for run in found.runs:
            reached = sorted(run.pairs)
            stop = next((place for place, pair in enumerate(reached) if pair in bad), len(reached))
            made |= set(reached[:stop])
            unreached |= {pair: (unreached.get(pair, (0, now))[0] + 1, now) for pair in reached[stop:]}
    assert set(pairs) - made == bad


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
        input_ = {"version": "1", "digest_policy": "record", "captures": "0", "state": "pending"}
        asked_at = NOW - timedelta(minutes=minutes)
        note = build_fetch_notes({MINE: counts}, {MINE: input_}, {MINE: None}, asked_at)[MINE]
        row = SliceRow(MINE, "fetch", 0, 1, tables={"records": TableState(1, 9)}, note=note)
        found = assess_crawl(looked(SlicePlan(MINE), row), NOW)
        return set(found.due), set(found.waiting)

    assert stands(20) == (set(), {"set-x"})
    assert stands(30) == ({"set-x"}, set())
    assert stands(-20) == ({"set-x"}, set()), "a time in the future is no time"
    assert stands(40, pending=0) == (set(), set())
