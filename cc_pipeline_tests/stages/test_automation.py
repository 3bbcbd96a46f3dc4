"""What sensors and schedules decide, without Dagster."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.stages.automation import decide_crawls, missing_partitions, select_crawls

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


@given(
    done=st.sets(st.tuples(st.sampled_from("AB"), st.sampled_from("xyz"))),
    busy=st.sets(st.tuples(st.sampled_from("AB"), st.sampled_from("xyz"))),
    limit=st.integers(0, 10),
)
def test_missing_partitions_are_bounded_and_really_missing(done: set, busy: set, limit: int) -> None:
    found = missing_partitions("AB", "xyz", done, busy, limit)
    assert len(found) == min(limit, len({(c, d) for c in "AB" for d in "xyz"} - done - busy))
    assert not set(found) & (done | busy)
    assert list(found) == sorted(found)
