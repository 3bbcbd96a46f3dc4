"""The machine of refusals, driven by simulated and recorded fronts: no clock but the one that is passed in."""

from __future__ import annotations

import random
import sqlite3
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from cc_pipeline.transport.budget import read_state
from cc_pipeline.transport.circuit_breaker import (
    LOWERED_RATE_LIFE,
    Blocked,
    BreakerOpen,
    Cause,
    Comparing,
    Event,
    Failed,
    Gave,
    HostRules,
    Memory,
    RefusalPolicy,
    Sent,
    Serving,
    Slowed,
    State,
    Tally,
    as_text,
    blocked_elsewhere,
    from_text,
    remembered,
    reset_by_user,
)
from cc_pipeline.transport.rates import FRONT
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.transport import circuit_breaker
from cc_pipeline.transport.faults import FaultKind, Refusal, judge_status
from cc_pipeline_tests.frontmanners import Front as Recorded
from cc_pipeline_tests.frontmanners import Manners, Request, Wave

POLICY = RefusalPolicy(probes=(5.0, 15.0, 60.0), wait=370.0)
RULES = HostRules(FRONT.rate, POLICY, cautious=FRONT.cautious)
LATENCY = 0.08
#: The status that a front answers with to a request at a moment.
Front = Callable[[float], int]


def forbidden(now: float, **values: object) -> Failed:
    return Failed(**{"now": now, "sent": now, "kind": FaultKind.FORBIDDEN, "reason": "status 403",
                     "refusal": Refusal.ADDRESS, **values})  # type: ignore[arg-type]  # fmt: skip


def busy(now: float, **values: object) -> Failed:
    return Failed(**{"now": now, "sent": now, "kind": FaultKind.THROTTLED, "reason": "status 503, SlowDown",
                     "refusal": Refusal.CHANCE, **values})  # type: ignore[arg-type]  # fmt: skip


@dataclass
class Drive:
    """One client with a clock of its own, which sends as the machine says."""

    front: Front
    rules: HostRules = RULES
    state: State = field(default_factory=Serving)
    now: float = 1_000_000.0
    statuses: list[tuple[float, int]] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    came: int = 0

    def until(self, is_done: Callable[[], bool]) -> Drive:
        while not is_done():
            self._send()
        return self

    def for_requests(self, count: int) -> Drive:
        """Until so many requests got what they asked for."""
        done = self.came + count
        return self.until(lambda: self.came >= done)

    def for_seconds(self, seconds: float) -> Drive:
        end = self.now + seconds
        return self.until(lambda: self.now >= end)

    @property
    def refused(self) -> int:
        return len(self.statuses) - self.came

    @property
    def rate(self) -> float:
        rate = self.state.rate_at(self.rules, self.now)
        assert rate is not None
        return rate

    def _send(self) -> None:
        self._go_to(remembered(self.state, self.now))
        admitted = self.state.admits(self.now)
        if isinstance(admitted, BreakerOpen):
            self.now = admitted.until
            return
        sent = self.now
        self._go_to(self.state.next(Sent(sent, 1), self.rules))
        status = self.front(sent)
        self.statuses.append((sent, status))
        self.came += status == 206
        self._go_to(self.state.next(_event(status, sent), self.rules))
        pause = max(0.0, self.state.memory.pause_until - self.now)
        self.now = sent + max(LATENCY, 1 / self.rate, pause)

    def _go_to(self, state: State) -> None:
        if not self.states or self.states[-1] != type(state).__name__:
            self.states.append(type(state).__name__)
            assert from_text(as_text(state)) == state
        self.state = state


def _event(status: int, sent: float) -> Event:
    if status == 206:
        return Gave(sent + LATENCY, 1, sent)
    found = judge_status(status, {}, b"")
    return Failed(sent + LATENCY, sent, found.kind, found.detail, found.refusal, found.retry_after)


def recorded(manners: Manners) -> Front:
    """The front of the tests, whose headers and bodies are those that others have recorded."""
    moments = [0.0]
    recorded = Recorded(manners, clock=lambda: moments[-1])

    def front(now: float) -> int:
        moments.append(now)
        refusal = recorded.refuse(Request("cc-index/table/a.parquet", address="192.0.2.1"))
        if refusal is None:
            return 206
        (status, headers, body), _ = refusal
        found = judge_status(status, {name.lower(): text for name, text in headers.items()}, body)
        assert found.refusal is (Refusal.ADDRESS if status == 403 else Refusal.CHANCE)
        return status

    return front


def by_chance(share: float, seed: int, status: int = 503) -> Front:
    chance = random.Random(seed)
    return lambda _: status if chance.random() < share else 206


def bucket_of(rate: float, status: int) -> Front:
    """A front that gives ``rate`` a second, and refuses what is above it."""
    tokens, last = 5.0, 0.0

    def front(now: float) -> int:
        nonlocal tokens, last
        tokens, last = min(5.0, tokens + (now - last) * rate), now
        if tokens < 1:
            return status
        tokens -= 1
        return 206

    return front


def firewall(most: int, seconds: float = 300.0) -> Front:
    """A sliding window that counts refused requests too, as that of Common Crawl's front."""
    asked: deque[float] = deque()

    def front(now: float) -> int:
        while asked and asked[0] < now - seconds:
            asked.popleft()
        asked.append(now)
        return 403 if len(asked) > most else 206

    return front


def waves(status: int, *spans: tuple[float, float]) -> Front:
    """All of some spans of seconds after the beginning is refused."""
    began: list[float] = []

    def front(now: float) -> int:
        began[:] = began or [now]
        return status if any(start <= now - began[0] < end for start, end in spans) else 206

    return front


@pytest.mark.parametrize(("share", "most"), [(0.0, 1.0), (0.05, 1.1), (0.1, 1.3), (0.2, 1.7)])
def test_lone_refusals_cost_little_whatever_their_share(share: float, most: float) -> None:
    seconds = []
    for seed in range(20):
        drive = Drive(by_chance(share, seed, (503, 502, 504)[seed % 3]))
        seconds.append(drive.for_requests(303).now - 1_000_000.0)
    none = 303 / 5.0
    assert sum(seconds) / len(seconds) <= none * most + 0.1


def test_one_in_ten_is_never_doubted_for_long() -> None:
    drive = Drive(by_chance(0.1, 45)).for_requests(3_000)
    assert drive.now - 1_000_000.0 <= 3_000 / 5.0 / 0.9 * 1.05
    assert drive.state.memory.rate is None


def test_a_share_that_does_not_follow_the_rate_is_believed() -> None:
    drive = Drive(by_chance(0.3, 7)).for_requests(1_000)
    assert drive.states == ["Serving", "Comparing", "Serving"]
    assert drive.state.memory.chance == pytest.approx(0.3, abs=0.2)
    assert drive.rate == 5.0


@pytest.mark.parametrize(("status", "most_refused"), [(503, 0.08), (429, 0.01)])
@pytest.mark.parametrize("capacity", [0.7, 1.5, 3.0])
def test_a_rate_that_is_refused_is_found_and_kept(capacity: float, status: int, most_refused: float) -> None:
    drive = Drive(bucket_of(capacity, status)).for_requests(600)
    assert drive.rate <= capacity * 2
    assert drive.now - 1_000_000.0 <= 600 / capacity * 1.25
    before = drive.refused
    drive.for_seconds(1_800)
    # it tries to be faster now and then, and finds out that it is not
    assert (drive.refused - before) / 1_800 <= most_refused


def test_a_better_day_is_found_within_minutes() -> None:
    drive = Drive(bucket_of(1.5, 429)).for_requests(60)
    assert drive.rate <= 1.5
    drive.front = lambda _: 206
    drive.for_seconds(240)
    assert drive.rate == 5.0


def test_what_was_learnt_is_forgotten_after_hours() -> None:
    drive = Drive(bucket_of(1.0, 429)).for_requests(30)
    assert isinstance(drive.state, Slowed)
    assert remembered(drive.state, drive.now + LOWERED_RATE_LIFE - 60) == drive.state
    assert isinstance(remembered(drive.state, drive.now + LOWERED_RATE_LIFE + 60), Serving)
    assert LOWERED_RATE_LIFE <= 12 * 3_600, "hours, and not a week"


def test_one_429_pauses_and_three_halve_the_rate() -> None:
    state: State = Serving()
    for number in range(1, 4):
        assert state.rate_at(RULES, number) == 5.0
        asks = Failed(number, number, FaultKind.THROTTLED, "status 429", Refusal.RATE, 10.0)
        state = state.next(asks, RULES)
        assert state.admits(number) == BreakerOpen(number + 10.0, "status 429")
    assert isinstance(state, Slowed)
    assert state.rate_at(RULES, 3) == 2.5
    # those that were under way by then say nothing new
    late = Failed(3.5, 2.5, FaultKind.THROTTLED, "status 429", Refusal.RATE)
    for _ in range(9):
        state = state.next(late, RULES)
    assert state.rate_at(RULES, 3) == 2.5


@pytest.mark.parametrize("status", [503, 504, 403])
def test_a_minute_of_nothing_but_refusals_is_waited_for(status: int) -> None:
    drive = Drive(waves(status, (10, 70))).for_requests(300)
    assert drive.states[:2] == ["Serving", "Blocked"]
    assert drive.refused <= 10
    # four in a second, and the probes after 5, 15 and 60 s
    assert drive.now - 1_000_000.0 <= 72 + 250 / drive.rate + 5


def test_a_wave_keeps_the_rate_and_one_soon_after_halves_it() -> None:
    drive = Drive(waves(503, (10, 20), (1_000, 1_010))).for_seconds(1_100)
    assert drive.rate == 5.0
    drive = Drive(waves(503, (10, 20), (60, 70))).for_seconds(90)
    assert drive.rate == 2.5


def test_a_firewall_that_counts_what_it_refuses_is_outlasted() -> None:
    drive = Drive(firewall(400)).for_requests(2_000)
    blocks = drive.states.count("Blocked")
    assert blocks >= 1
    assert drive.refused <= 20 * blocks
    closed = [later - at for (at, _), (later, _) in zip(drive.statuses, drive.statuses[1:], strict=False)]
    assert max(closed) <= 60.1


@pytest.mark.parametrize(
    ("trouble", "states", "most_refused", "most_seconds"),
    [
        (Manners(), ["Serving"], 0, 61),
        (Manners(lone_503=0.05), ["Serving"], 30, 70),
        (Manners(lone_503=0.1), ["Serving"], 50, 80),
        (Manners(wave=Wave(100, 60, 503)), ["Serving", "Blocked", "Serving"], 10, 122),
        (Manners(wave=Wave(100, 60, 403)), ["Serving", "Blocked", "Serving"], 10, 160),
        (Manners(most=200, window=300), ["Serving", "Blocked", "Serving"], 8, 390),
        (Manners(most=200, window=300, check_every=30), ["Serving", "Blocked", "Serving"], 8, 420),
    ],
)
def test_a_harvest_of_303_requests_at_the_front(
    trouble: Manners, states: list[str], most_refused: int, most_seconds: float
) -> None:
    drive = Drive(recorded(trouble)).for_requests(303)
    assert drive.states == states
    assert drive.refused <= most_refused
    assert drive.now - 1_000_000.0 <= most_seconds


def test_a_day_after_a_refusal_by_address_800_in_300_seconds() -> None:
    drive = Drive(firewall(1_000)).for_requests(5_000)
    assert drive.states == ["Serving", "Blocked", "Serving"]
    memory = drive.state.memory
    assert memory.asked_before == pytest.approx(1_000, abs=60)
    since = [at for at, _ in drive.statuses if at > memory.refused_at]
    assert all(sum(at <= one < at + 300 for one in since) <= 800 for at in since[::50])
    assert drive.states.count("Blocked") == 1
    assert drive.rate == FRONT.cautious
    drive.now += 86_400
    assert drive.rate == 5.0
    hand_set = HostRules(20.0, POLICY, cautious=FRONT.cautious)
    assert drive.state.rate_at(hand_set, memory.refused_at + 60) == FRONT.cautious
    # a host of others has no such rule
    assert HostRules(10.0, POLICY).cautious is None


def test_probes_come_when_they_are_due() -> None:
    drive = Drive(lambda _: 403).for_seconds(330)
    began = drive.statuses[0][0]
    assert [at - began for at, _ in drive.statuses[1:]] == pytest.approx([5, 15, 60, 120, 180, 240, 300], abs=0.5)


def test_a_refusal_that_may_be_of_one_object_is_probed_at_once() -> None:
    blocked = Serving().next(forbidden(10, probes_at_once=True), RULES)
    assert blocked.admits(10) is False
    probed = blocked.next(Sent(10, 1), RULES)
    well = probed.next(Gave(11, 1, 10.5), RULES)
    assert well.rate_at(RULES, 11) == 5.0, "it was the object"
    again = probed.next(forbidden(11), RULES)
    assert isinstance(again.admits(11), BreakerOpen)
    ended = again.next(Gave(20, 1, 19), RULES)
    assert ended.rate_at(RULES, 20) == FRONT.cautious
    # refused again within the day, and at once at a host of others
    ended = ended.next(forbidden(30), RULES).next(Gave(40, 1, 39), RULES)
    assert ended.rate_at(RULES, 40) == 795 / 600
    other = HostRules(10.0, POLICY)
    assert Serving().next(forbidden(10), other).next(Gave(20, 1, 19), other).rate_at(other, 20) == 5.0


def test_who_was_under_way_at_a_refusal_tells_no_news() -> None:
    state = Serving().next(forbidden(10), RULES).next(Gave(9.9, 1, 9.0), RULES)
    assert isinstance(state, Blocked), "it was sent before"
    state = state.next(Sent(15, 1), RULES).next(Gave(15.1, 1, 15), RULES)
    assert isinstance(state, Serving)
    assert state.next(forbidden(15.2, sent=14.9), RULES) == state
    assert isinstance(state.next(forbidden(15.3, sent=15.1), RULES), Blocked)


def test_any_answer_but_an_error_of_the_host_ends_a_block() -> None:
    blocked = Serving().next(forbidden(10), RULES).next(Sent(15, 1), RULES)
    for kind, refusal, over in (
        (FaultKind.NOT_FOUND, None, True),
        (FaultKind.SHORT_BODY, None, True),
        (FaultKind.TIMEOUT, None, False),
        (FaultKind.ERROR_DOCUMENT, Refusal.CHANCE, False),
    ):
        state = blocked.next(Failed(16, 15, kind, "", refusal), RULES)
        assert isinstance(state, Blocked) is not over, kind


def test_a_place_of_ones_own_is_never_blocked() -> None:
    rules = HostRules(None, RefusalPolicy(probes=()))
    state: State = Serving()
    for number in range(100):
        state = state.next(busy(number), rules)
    assert isinstance(state, Serving)
    assert state.rate_at(rules, 100) is None


def test_objects_that_never_come_are_no_wave_while_they_are_asked_for_again() -> None:
    state: State = Serving()
    for number in range(3):
        state = state.next(busy(number), RULES)
    for number in range(30):
        state = state.next(busy(3 + number / 5, is_repeat=True), RULES)
    assert isinstance(state, Serving)
    assert isinstance(state.next(busy(3 + circuit_breaker.SLOW_WAVE, is_repeat=True), RULES), Blocked)


def test_what_another_machine_or_a_person_says() -> None:
    told = blocked_elsewhere(Serving(), 10, 60, 2, "status 403")
    assert told.admits(20) == BreakerOpen(60, "status 403")
    assert blocked_elsewhere(told, 5, 90, 1, "status 403") == told
    reset = reset_by_user(told, 30)
    assert reset.admits(30) is True
    assert blocked_elsewhere(reset, 10, 60, 2, "status 403") == reset, "a person closed it"
    assert isinstance(blocked_elsewhere(reset, 31, 60, 0, "status 403"), Blocked)
    wave = blocked_elsewhere(told, 20, 60, 0, "status 503", Cause.WAVE)
    assert wave.rate_at(RULES, 30) == FRONT.cautious, "a wave elsewhere takes nothing back"


def test_the_rate_of_a_blocked_host_is_the_one_that_follows() -> None:
    blocked = Serving().next(forbidden(10), RULES)
    assert blocked.rate_at(RULES, 11) == FRONT.cautious
    assert blocked.rate_at(replace(RULES, cautious=None), 11) == 2.5
    of_one_object = Serving().next(forbidden(10, probes_at_once=True), RULES)
    assert of_one_object.rate_at(RULES, 11) == FRONT.rate


def test_a_person_who_has_a_host_asked_at_once_does_not_lift_its_caution() -> None:
    reset = reset_by_user(Serving().next(forbidden(10), RULES), 20)
    assert reset.rate_at(RULES, 20) == FRONT.cautious
    assert reset.rate_at(RULES, 10 + circuit_breaker.CAUTION) == FRONT.rate
    of_one_object = reset_by_user(Serving().next(forbidden(10, probes_at_once=True), RULES), 20)
    assert of_one_object.rate_at(RULES, 20) == FRONT.rate


def test_a_wave_that_turns_into_a_403_is_a_refusal_by_address() -> None:
    state: State = Serving()
    while not isinstance(state, Blocked):
        state = state.next(busy(10), RULES)
    state = state.next(Sent(16, 1), RULES).next(forbidden(16), RULES).next(Sent(40, 1), RULES)
    state = state.next(Gave(41, 1, 40), RULES)
    assert not isinstance(state, Blocked)
    assert state.rate_at(RULES, 41) == FRONT.cautious


def test_a_damaged_state_is_no_state_of_a_host_that_serves() -> None:
    for text in ("", "{}", '{"state": "Serving"}', '{"state": "Odd", "memory": {}}', "[]", '{"state": []}'):
        with pytest.raises(sqlite3.DatabaseError, match=r"the state of example\.org cannot be read"):
            read_state("example.org", text)


_EVENTS = st.lists(
    st.tuples(
        st.floats(0, 400),
        st.sampled_from(["gave", "late", "sent", "403", "503", "429", "500", "404", "timeout"]),
        st.integers(0, 5),
    ),
    max_size=80,
)
_KINDS = {
    "403": (FaultKind.FORBIDDEN, Refusal.ADDRESS), "503": (FaultKind.THROTTLED, Refusal.CHANCE),
    "429": (FaultKind.THROTTLED, Refusal.RATE), "500": (FaultKind.SERVER_ERROR, None),
    "404": (FaultKind.NOT_FOUND, None), "timeout": (FaultKind.TIMEOUT, None),
}  # fmt: skip


@given(_EVENTS, st.sampled_from([None, 0.5, 5.0, 100.0]))
def test_no_order_of_events_asks_more_than_allowed_or_never_again(
    events: list[tuple[float, str, int]], rate: float | None
) -> None:
    rules = HostRules(rate, POLICY, FRONT.cautious)
    state, now = remembered(Serving(), 0.0), 1_000.0
    for seconds, name, number in events:
        now += seconds
        before = state
        if name == "gave":
            state = state.next(Gave(now, number, now), rules)
        elif name == "late":
            state = state.next(Gave(now, number, now - seconds - 300), rules)
        elif name == "sent":
            if not isinstance(state.admits(now), BreakerOpen):
                state = state.next(Sent(now, number), rules)
        else:
            kind, refusal = _KINDS[name]
            state = state.next(Failed(now, now, kind, name, refusal, float(number) or None), rules)
        assert from_text(as_text(state)) == state
        slowed = state.rate_at(rules, now)
        assert slowed is None if rate is None else slowed is not None and 0 < slowed <= rate
        assert type(state).__name__ == type(before).__name__ or name != "sent"
    # whatever came, what is due is told, and good answers bring everything back
    for _ in range(400):
        now += 61
        admitted = state.admits(now)
        if isinstance(admitted, BreakerOpen):
            assert admitted.until <= now + 3_600 + 600
            now = admitted.until
        state = state.next(Sent(now, 1), rules).next(Gave(now + 1, 40, now + 0.5), rules)
        now += 1
    assert isinstance(state, Serving)
    assert not isinstance(state, Slowed)
    now += 86_400
    assert state.rate_at(rules, now) == rate


@given(st.floats(1, 1e9))
def test_a_clock_set_back_closes_no_host(back: float) -> None:
    now = 2e9
    for state in (
        Serving().next(forbidden(now, retry_after=3_000.0), RULES),
        Serving().next(Failed(now, now, FaultKind.THROTTLED, "429", Refusal.RATE, 3_000.0), RULES),
        Slowed(Memory(rate=1.0, learnt_at=now, ended=now, wave_ended=now, chance_at=now, climbed_at=now)),
    ):
        earlier = now - back
        known = remembered(state, earlier)
        admitted = known.admits(earlier)
        assert not isinstance(admitted, BreakerOpen) or admitted.until <= earlier + 3_600 + circuit_breaker.CLOCK_JUMP
        if back > 4_000:
            assert not isinstance(admitted, BreakerOpen)
        assert known.rate_at(RULES, earlier) == state.rate_at(RULES, now)


def test_a_tally_forgets_by_half() -> None:
    tally = Tally().with_answers(10_000)
    assert tally.answers == circuit_breaker.WINDOW, "what came long ago outweighs nothing"
    assert tally.with_answers(1).answers == circuit_breaker.WINDOW // 2 + 1
    assert isinstance(Comparing(Memory(), 0.3, 5.0).next(Gave(1, 60, 1), RULES), Slowed)
