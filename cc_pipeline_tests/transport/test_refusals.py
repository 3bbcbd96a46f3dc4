"""A host that refuses: what a harvest costs, what is sent meanwhile, and how it ends. The clock is simulated."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import mean

import pytest

from cc_pipeline.transport import host_state
from cc_pipeline.transport.faults import FaultKind, Finding
from cc_pipeline.transport.host_state import (
    CAUTION,
    LONGEST_PAUSE,
    Admission,
    HostState,
    NextStep,
    Refusal,
)
from cc_pipeline.transport.limits import FRONT, SourceLimits
from cc_pipeline_tests.simulated import (
    EPOCH,
    Result,
    by_chance,
    fetch_all,
    limited_to,
    refusing,
    windowed,
)

WAIT = 370.0
OTHER_HOST = SourceLimits(rate=10.0, concurrency=8)
#: As many requests as a harvest of a crawl sends.
HARVEST = 303


@pytest.fixture(autouse=True)
def pauses_are_real(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_state, "FIRST_PAUSE", 5.0)


def keys(count: int) -> list[str]:
    return [f"f{number}" for number in range(count)]


def kinds(result: Result) -> set[FaultKind]:
    return {verdict.kind for verdict in result.verdicts.values() if isinstance(verdict, Finding)}


def harvest_seconds(share: float, seed: int = 1) -> float:
    result = fetch_all(keys(HARVEST), by_chance(share, seed))
    assert result.came == HARVEST
    return result.seconds


def test_five_requests_a_second_are_sent_and_no_more() -> None:
    sent: list[float] = []
    fetch_all(keys(HARVEST), lambda key, now: sent.append(now) or 200, spread=0.0)
    assert harvest_seconds(0) == pytest.approx(HARVEST / 5, rel=0.02)
    for first in sent:
        assert sum(first <= moment < first + 4 for moment in sent) <= 21


@pytest.mark.parametrize(("share", "most"), [(0.05, 1.1), (0.1, 1.3), (0.2, 2.0)])
def test_refusals_by_chance_cost_little(share: float, most: float) -> None:
    whole = harvest_seconds(0)
    assert mean(harvest_seconds(share, seed) for seed in range(12)) <= most * whole


@pytest.mark.parametrize("status", [503, 429])
@pytest.mark.parametrize(("rate", "spread"), [(0.3, 0.0), (1, 0.03), (1.7, 0.1), (2.5, 0.0), (3, 0.03), (4.8, 0.03)])
def test_a_limiter_without_burst_is_settled_with(rate: float, spread: float, status: int) -> None:
    result = fetch_all(keys(1_200 if rate > 1 else 500), limited_to(rate, status), spread=spread)
    later = result.statuses[len(result.statuses) // 2 :]
    assert later.count(status) <= 0.16 * len(later)


@pytest.mark.parametrize("side_by_side", [4, 1])
@pytest.mark.parametrize(
    ("begin", "seconds", "status"), [(20, 60, 503), (0, 60, 503), (20, 420, 403), (20, 60, 429), (20, 600, 502)]
)
def test_a_wave_costs_time_and_nothing_else(begin: float, seconds: float, status: int, side_by_side: int) -> None:
    result = fetch_all(keys(1_000), refusing(begin, seconds, status), side_by_side=side_by_side)
    assert result.came == 1_000
    assert result.statuses.count(status) <= side_by_side + 9
    assert result.refused_share <= 0.03


def test_a_window_of_an_address_is_kept_to_from_then_on() -> None:
    result = fetch_all(keys(2_000), windowed(400, 300), wait=WAIT)
    assert result.came == 2_000
    assert result.refused_share <= 0.03


@pytest.mark.parametrize(("wait", "longest"), [(0.0, 3.0), (WAIT, WAIT + 10)])
def test_who_does_not_wait_longer_ends_with_when_to_come_back(wait: float, longest: float) -> None:
    result = fetch_all(keys(100), lambda key, now: 503, wait=wait)
    assert kinds(result) == {FaultKind.REFUSED}
    assert result.seconds <= longest
    [detail] = {verdict.detail for verdict in result.verdicts.values() if isinstance(verdict, Finding)}
    assert "refuses requests (status 503); no request is sent before 20" in detail
    assert len(result.statuses) <= 4 + 6


@pytest.mark.parametrize(
    ("status", "kind", "sent"),
    [(403, FaultKind.FORBIDDEN, 3), (503, FaultKind.THROTTLED, 6), (500, FaultKind.SERVER_ERROR, 6)],
)
def test_an_object_that_is_refused_among_others_is_its_own_fault(status: int, kind: FaultKind, sent: int) -> None:
    result = fetch_all(keys(300), lambda key, now: status if key == "f7" else 200)
    assert (result.came, kinds(result), result.statuses.count(status)) == (299, {kind}, sent)
    assert result.seconds < 75


def test_an_object_that_is_forbidden_alone_is_its_own_fault_unless_the_host_refuses_addresses() -> None:
    result = fetch_all(["f7"], lambda key, now: 403, limits=OTHER_HOST)
    assert kinds(result) == {FaultKind.FORBIDDEN}
    assert result.seconds < 10
    result = fetch_all(["f7", "f8"], lambda key, now: 403 if key == "f7" else 200, side_by_side=1)
    assert (kinds(result), result.came) == ({FaultKind.FORBIDDEN}, 1)
    assert 600 < result.seconds < 700, "it might have been the address"


@pytest.mark.parametrize(("wait", "least", "most"), [(WAIT, 300, 360), (math.inf, 600, 680)])
def test_an_object_that_stays_refused_costs_no_other_and_is_waited_for_once(
    wait: float, least: float, most: float
) -> None:
    def rule(key: str, now: float) -> int:
        return 503 if key == "f7" else 200

    for side_by_side, latency in ((1, 0.3), (4, 0.3), (4, 8.0)):
        asked = [*["f7"] * 4, *keys(5)]
        result = fetch_all(asked, rule, wait=wait, side_by_side=side_by_side, latency=latency)
        assert (kinds(result), result.came) == ({FaultKind.THROTTLED}, 5)
        assert kinds(fetch_all(asked[:4], rule, wait=wait, side_by_side=side_by_side, latency=latency)) == {
            FaultKind.THROTTLED
        }
    # one at a time, nothing else tells whether it is the host
    result = fetch_all([*["f7"] * 4, "f1"], rule, wait=wait, side_by_side=1)
    assert (kinds(result), result.came) == ({FaultKind.THROTTLED}, 1)
    assert least < result.seconds < most


def refusal(now: float, key: str = "f1", *, sent: float | None = None, status: int = 503, after: float = 0) -> Refusal:
    return Refusal(key, now if sent is None else sent, now, f"status {status}", status == 403, after or None)


def refuses(now: float, limits: SourceLimits = OTHER_HOST, status: int = 503) -> HostState:
    """The state of a host that has just refused three objects."""
    state = HostState()
    for key in ("f1", "f2", "f3"):
        state, _ = state.refused(limits, refusal(now, key, status=status))
    return state


def test_one_request_is_sent_at_the_end_of_each_pause_and_pauses_double() -> None:
    state, now = refuses(EPOCH), EPOCH
    pauses = []
    for _ in range(14):
        _, waits = state.admit(OTHER_HOST, state.pause_until - 0.1, 5)
        assert waits.count == 0
        pauses.append(state.pause_until - now)
        now = state.pause_until
        state, admission = state.admit(OTHER_HOST, now, 5)
        _, others = state.admit(OTHER_HOST, now + 1, 5)
        assert (admission.count, others.count) == (1, 0)
        state, next_step = state.refused(OTHER_HOST, refusal(now, "f1" if len(pauses) % 2 else "f2"))
        assert next_step is NextStep.WAIT
    assert pauses[:4] == [5, 10, 20, 40]
    assert pauses[-1] == LONGEST_PAUSE
    state = state.answered(now + 1, now + 0.5)
    assert (state.is_refusing, state.pause) == (False, LONGEST_PAUSE / 2)
    assert state.admit(OTHER_HOST, now + 2, 5)[1].count > 0


def test_requests_in_flight_when_the_host_refused_are_no_news() -> None:
    state = refuses(EPOCH)
    for sent in (EPOCH - 1, EPOCH):
        assert state.refused(OTHER_HOST, refusal(EPOCH + 1, "f4", sent=sent))[0].pause_until == state.pause_until
        assert state.answered(EPOCH + 1, sent).is_refusing
    assert HostState().is_calm and not state.is_calm and state.answered(EPOCH + 9, EPOCH + 8).is_calm


def test_a_request_that_never_came_back_costs_one_pause() -> None:
    state = refuses(EPOCH)
    state, _ = state.admit(OTHER_HOST, EPOCH + 5, 1)
    assert state.admit(OTHER_HOST, EPOCH + 15, 1)[1].count == 1


def test_an_address_that_was_refused_is_careful_for_a_day() -> None:
    state = refuses(EPOCH, FRONT, 403).answered(EPOCH + 9, EPOCH + 8)
    assert state.rate_at(FRONT, EPOCH + CAUTION - 1) == FRONT.cautious
    assert state.rate_at(FRONT, EPOCH + CAUTION) == FRONT.rate
    assert refuses(EPOCH, FRONT, 503).rate_at(FRONT, EPOCH) == FRONT.rate
    assert refuses(EPOCH, OTHER_HOST, 403).rate_at(OTHER_HOST, EPOCH) == OTHER_HOST.rate


def test_a_pause_that_a_host_asks_for_is_kept_and_a_long_one_not_waited_for() -> None:
    for after, is_waited_for in ((290, True), (310, False)):
        result = fetch_all(["f1"], lambda key, now, after=after: 503 if now < after else 200, retry_after=after)
        assert (result.came == 1, len(result.statuses)) == (is_waited_for, 1 + is_waited_for)
        assert kinds(result) == (set() if is_waited_for else {FaultKind.REFUSED})


def test_refusals_of_a_bucket_of_ones_own_are_about_its_objects() -> None:
    own_bucket = SourceLimits(None, 4, pauses=False)
    state = HostState()
    for number in range(9):
        state, next_step = state.refused(own_bucket, refusal(EPOCH + number, f"f{number}", status=403))
        assert next_step is NextStep.SEND_AGAIN
    assert not state.row and state.admit(own_bucket, EPOCH, 7)[1].count == 7


def test_what_is_not_said_of_a_host_is_as_good_as_it_can_be() -> None:
    assert HostState() == HostState(0.0, (), 0.0, 0.0, 0.0, 0.0, 0, 0, 0, 0.0, 0.0, None, 0.0)
    assert Admission(1) == Admission(1, 0.0, None, None, is_requested_by_host=False)
    assert Refusal("f1", 1.0, 2.0, "why") == Refusal("f1", 1.0, 2.0, "why", False, None, math.inf)
    assert HostState().answered(EPOCH, EPOCH).answers == 1
    assert not replace(HostState(), pause=5.0).is_calm and not replace(HostState(), row=("f1",)).is_calm


def test_requests_that_come_late_are_sent_together() -> None:
    limits = SourceLimits(rate=100.0, concurrency=8)
    state, admission = HostState().admit(limits, EPOCH, 20)
    assert admission.count in (10, 11), "a tenth of a second is made up for"
    assert state.next_at == pytest.approx(EPOCH, abs=0.011)
    assert HostState().admit(limits, EPOCH, 3)[1].count == 3


def test_thirty_points_halve_the_rate_and_two_hundred_answers_double_it() -> None:
    for points, halvings, points_after, halvings_after in ((26, 0, 29, 0), (27, 0, 0, 1), (27, 6, 0, 6)):
        state = replace(HostState(), points=points, halvings=halvings, answers=7)
        state, _ = state.refused(OTHER_HOST, refusal(EPOCH))
        assert (state.points, state.halvings) == (points_after, halvings_after)
        assert (state.answers, state.changed_at) == ((0, EPOCH) if points_after == 0 else (7, 0))
    state = replace(HostState(), halvings=2, changed_at=EPOCH, points=9)
    counted = state.answered(EPOCH, EPOCH, 199)
    assert (counted.halvings, counted.answers, counted.points) == (2, 199, 0)
    assert state.answered(EPOCH, EPOCH, 4).points == 5
    counted = counted.answered(EPOCH + 1, EPOCH)
    assert (counted.halvings, counted.answers, counted.points, counted.changed_at) == (1, 0, 0, EPOCH + 1)


def test_a_lowered_rate_is_raised_again_after_an_hour_without_requests() -> None:
    state = replace(HostState(), halvings=2, changed_at=EPOCH)
    assert state.rate_at(FRONT, EPOCH) == 1.25
    assert state.answered(EPOCH + 10, EPOCH + 9).halvings == 2
    assert state.answered(EPOCH + 3_600, EPOCH + 3_599).halvings == 1


def test_times_from_a_clock_that_was_set_back_are_dropped() -> None:
    state = replace(refuses(EPOCH), pause=320.0, last_refusal_at=EPOCH, address_refused_at=EPOCH)
    assert state.repaired(EPOCH) == state
    for name, ahead in (("asked_until", LONGEST_PAUSE + 60), ("pause_until", LONGEST_PAUSE + 60), ("refused_at", 60)):
        for later, is_kept in ((0.0, True), (0.5, False)):
            ahead_state = replace(state, **{name: EPOCH + ahead + later})
            assert (ahead_state.repaired(EPOCH) == ahead_state) == is_kept, name
    earlier = EPOCH - 86_400
    repaired = state.repaired(earlier)
    assert max(repaired.pause_until, repaired.refused_at, repaired.last_refusal_at) <= earlier
    assert repaired.admit(OTHER_HOST, earlier + 1, 1)[1].count == 1
    assert HostState.from_text(state.as_text()) == state
    # one that was set back a little holds no request either
    state, _ = HostState().admit(FRONT, EPOCH, 1)
    for now in (EPOCH - 50, EPOCH - 1_800, earlier):
        assert state.repaired(now).admit(FRONT, now, 1)[1].count == 1
    # nor one of a host that refused, whose next answer counts
    repaired = refuses(EPOCH).repaired(EPOCH - 1_800)
    assert repaired.admit(OTHER_HOST, EPOCH - 1_800, 1)[1].count == 1
    assert not repaired.answered(EPOCH - 1_798, EPOCH - 1_799).is_refusing


def test_a_user_may_reset_a_host() -> None:
    refused = refuses(EPOCH, FRONT, 403)
    state = refused.reset()
    assert state == replace(refused, row=(), pause=0.0, pause_until=0.0, asked_until=0.0)
    assert state.admit(FRONT, EPOCH + 1, 1)[1].count == 1
    assert state.rate_at(FRONT, EPOCH + 1) == FRONT.cautious, "that it refused the address stays known"
