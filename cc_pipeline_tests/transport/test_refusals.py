"""A source that refuses for a while, or one object for good, or everything: what is sent, and what comes of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cc_pipeline.transport.budget import Budget
from cc_pipeline.transport.circuit_breaker import RefusalPolicy
from cc_pipeline.transport.rates import SourceLimits
from cc_pipeline.transport.states import budget_state, reset_breaker

from cc_pipeline import progress
from cc_pipeline.errors import SourceRefuses
from cc_pipeline.transport import budget, rate_limiter
from cc_pipeline.transport import circuit_breaker as states_of_refusals
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes, RetryPolicy
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.faultserver import FaultServer, Hit, Rule, asked_again
from cc_pipeline_tests.frontmanners import Manners, Wave
from cc_pipeline_tests.refusal_events import forbidden, gave

#: As by default, a hundred times as fast.
POLICY = RefusalPolicy(probes=(0.05, 0.15, 0.6), wait=20.0)
QUICK = RetryPolicy(base=0.001, longest=0.005)
CLOSED = [Rule("403", times=None)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "bucket"
    place.mkdir()
    for number in range(10):
        (place / f"f{number}").write_bytes(bytes(1_000))
    return place


@contextmanager
def over(url: str, **options: object) -> Iterator[Transport]:
    given: dict[str, object] = {"retry": QUICK, "refusals": POLICY, "concurrency": 4} | options
    with Transport(url, SourceOptions(**given)) as transport:
        yield transport


def ranges(count: int) -> list[ByteRange]:
    return [ByteRange(f"f{number % 10}", number // 10, 4) for number in range(count)]


def refused(server: FaultServer) -> list[Hit]:
    return [hit for hit in server.hits if hit.status == 403]


@pytest.mark.parametrize(("seconds", "probes", "rate"), [(0.03, 0, None), (0.3, 2, 500.0)])
def test_a_window_of_refusals_costs_time_and_nothing_else(
    folder: Path, tmp_path: Path, seconds: float, probes: int, rate: float | None
) -> None:
    with (
        FaultServer(folder, latency=0.005, manners=Manners(wave=Wave(50, seconds, 403))) as server,
        over(server.url, rate=rate, budget_path=tmp_path / "budget.sqlite") as transport,
    ):
        came = list(transport.read_many(ranges(200)))
    assert all(isinstance(one, RangeBytes) for one in came)
    assert len(came) == 200
    assert asked_again(server.hits) == {}
    # those under way, and a probe now and then
    assert 1 <= len(refused(server)) <= 4 + probes


def test_another_process_waits_too_and_goes_on_when_a_person_says_so(folder: Path, tmp_path: Path) -> None:
    budget, slow = tmp_path / "budget.sqlite", RefusalPolicy(probes=(200.0,), wait=3600.0)
    with FaultServer(folder, rules=CLOSED) as server:
        with (
            over(server.url, rate=500.0, budget_path=budget, refusals=RefusalPolicy((200.0,), 0.0)) as one,
            pytest.raises(SourceRefuses),
        ):
            one.read("f1", 0, 4)
        server.set_rules([])
        before = len(server.hits)
        with over(server.url, rate=500.0, budget_path=budget, refusals=slow) as other:
            [state] = budget_state(budget)
            assert state.breaker_open

            def try_at_once() -> None:
                assert len(server.hits) == before
                assert reset_breaker(budget, state.host)

            timer = threading.Timer(0.1, try_at_once)
            timer.start()
            assert other.read("f2", 0, 4).attempts == 1
            timer.join()
        assert len(server.hits) == before + 1


def test_one_object_that_is_refused_is_its_own_fault(folder: Path) -> None:
    with FaultServer(folder, rules=[Rule("403", "f7", times=None)]) as server, over(server.url) as transport:
        outcomes = list(transport.read_many(ranges(300)))
        faults = [one for one in outcomes if isinstance(one, RangeFault)]
        assert {(one.key, one.kind) for one in faults} == {("f7", FaultKind.FORBIDDEN)}
        assert len(faults) == 30
        assert not [hit for hit in refused(server) if hit.key != "f7"]
        # one of them finds out for all, by two requests
        assert max(one.attempts for one in faults) == 2
        assert len(refused(server)) == 30 + 1
        # a place that is mended is asked as before
        server.set_rules([])
        assert transport.read("f7", 0, 4).attempts == 1


def test_an_object_that_is_refused_alone_is_compared_with_one_that_came(folder: Path) -> None:
    with FaultServer(folder, rules=[Rule("403", "f7", times=None)]) as server, over(server.url) as transport:
        transport.read("f1", 0, 4)
        with pytest.raises(RangeFault) as raised:
            transport.read("f7", 0, 4)
        assert raised.value.kind is FaultKind.FORBIDDEN
        assert [(hit.method, hit.key) for hit in server.hits] == [
            ("GET", "f1"), ("GET", "f7"), ("HEAD", "f1"), ("GET", "f7"),
        ]  # fmt: skip


def test_another_process_knows_what_came_before(folder: Path, tmp_path: Path) -> None:
    with FaultServer(folder) as server:
        with over(server.url, rate=500.0, budget_path=tmp_path / "budget.sqlite") as one:
            one.read("f1", 0, 4)
        server.set_rules([Rule("403", "f7", times=None)])
        with (
            over(server.url, rate=500.0, budget_path=tmp_path / "budget.sqlite") as other,
            pytest.raises(RangeFault) as raised,
        ):
            other.read("f7", 0, 4)
        assert raised.value.kind is FaultKind.FORBIDDEN
        assert [hit.key for hit in server.hits if hit.method == "HEAD"] == ["f1"]


def test_what_came_before_is_asked_for_again_after_it_was_refused_once(folder: Path) -> None:
    denied = Rule("403", "f7", times=None)
    with FaultServer(folder) as server, over(server.url) as transport:
        transport.read("f1", 0, 4)
        server.set_rules([denied, Rule("403", "f1", times=1)])
        with pytest.raises(RangeFault) as raised:
            transport.read("f7", 0, 4)
        assert raised.value.kind is FaultKind.FORBIDDEN
        # who waits asks in between, should it be the other one that is refused by now
        assert [hit.key for hit in server.hits] == ["f1", "f7", "f1", "f7", "f1", "f7"]


def test_what_came_long_ago_is_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget_, now = budget.Budget(tmp_path / "b.sqlite", "example.org", SourceLimits(10.0, 8)), time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    for days, sample in ((6, "f1"), (8, "")):
        budget_.note_sample("f1")
        now += days * 86_400
        budget_.apply_event(forbidden())
        now += 6
        lease = budget_.reserve_slots(1)
        assert isinstance(lease, budget.SlotReservation)
        assert (lease.is_probe, lease.sample) == (True, sample)
        budget_.apply_event(gave(now))
    budget_.close()


@pytest.mark.parametrize("wait", [0.0, 0.3])
def test_a_source_that_refuses_everything_ends_with_when_to_come_back(folder: Path, wait: float) -> None:
    with FaultServer(folder, rules=CLOSED) as server:
        policy = RefusalPolicy(probes=(0.05, 0.15, 0.6), wait=wait)
        with over(server.url, refusals=policy) as transport:
            outcomes = list(transport.read_many(ranges(100)))
        assert {one.kind for one in outcomes if isinstance(one, RangeFault)} == {FaultKind.BREAKER_OPEN}
        assert len(outcomes) == 100
        fault = outcomes[0]
        assert isinstance(fault, SourceRefuses)
        assert "no request is sent before 20" in fault.problem
        assert "credentials" in fault.advice
        # on a busy machine more probes may be due before all are told
        assert len(server.hits) <= 4 + 4


def test_a_long_pause_is_told_at_once_and_not_waited_for(folder: Path, tmp_path: Path) -> None:
    with FaultServer(folder, rules=[Rule("503", times=None, retry_after=3_000)]) as server:
        attended = RefusalPolicy(wait=1e6)
        with over(server.url, refusals=attended, rate=100.0, budget_path=tmp_path / "b.sqlite") as transport:
            with pytest.raises(
                SourceRefuses, match=r"refuses requests .status 503, SlowDown.; no request is sent before"
            ):
                transport.read("f1", 0, 4)
            assert len(server.hits) == 1
            with pytest.raises(SourceRefuses):
                transport.read("f2", 0, 4)
        assert len(server.hits) == 1


def test_who_watches_sees_how_long_it_takes_and_what_to_do(folder: Path) -> None:
    told: list[str] = []

    def sink(stage: str, done: int, total: int | None, detail: str) -> None:
        assert stage == progress.WAITING
        told.append(detail)

    with (
        FaultServer(folder, rules=[Rule("403", times=1)]) as server,
        progress.progress_to(sink),
        over(server.url, refusals=RefusalPolicy(probes=(0.1,), wait=20.0)) as transport,
    ):
        transport.read("f1", 0, 4)
        server.set_rules([Rule("403", "f2", times=1)])
        transport.read("f2", 0, 4)
    assert "the host has never answered, so check the credentials): next try in 0 s, at " in told[0]
    told = [one for one in told if "credentials" not in one and one]
    assert "accepts no requests now (status 403, AccessDenied): next try in 0 s, at " in told[0]
    assert "A run that is stopped keeps what it has fetched" in told[0]
    assert "status.commoncrawl.org" not in told[0], "it is no host of theirs"
    with progress.progress_to(sink):
        progress.report_refusal("data.commoncrawl.org", "status 403", 15, "12:00:00 UTC")
    assert "status.commoncrawl.org" in told[-1]


def test_the_rate_is_halved_after_a_refusal_and_found_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states_of_refusals, "CLIMB", 0.3)
    budget = tmp_path / "budget.sqlite"

    def rate() -> float | None:
        [state] = budget_state(budget)
        return state.rate

    with (
        FaultServer(folder, rules=[Rule("403", "f1", times=1)]) as server,
        over(server.url, rate=400.0, budget_path=budget) as transport,
    ):
        transport.read("f1", 0, 4)
        transport.read("f1", 0, 4)
        assert rate() == 200.0
        until = time.monotonic() + 20
        while rate() != 400.0:
            assert time.monotonic() < until
            list(transport.read_many(ranges(10)))


def test_who_waits_for_other_processes_is_told(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "_WARN_AFTER", 0.3)
    told: list[str] = []
    heard = threading.Event()

    def hear(stage: str, done: int, total: int | None, detail: str) -> None:
        told.append(detail)
        heard.set()

    path = tmp_path / "budget.sqlite"
    with (
        FaultServer(folder) as server,
        progress.progress_to(hear),
        over(server.url, rate=50, concurrency=1, budget_path=path) as transport,
    ):
        other = Budget(path, transport.host, transport.limits)
        assert other.renew(0) == 1

        def close_once_heard() -> None:
            heard.wait(60)
            other.close()

        threading.Thread(target=close_once_heard).start()
        transport.read("f1", 0, 4)
    assert "other processes use all requests that " in told[0]
    assert told[-1] == "", "it is over"


def test_a_place_of_ones_own_pauses_nothing(folder: Path) -> None:
    with (
        FaultServer(folder, rules=[Rule("403", "f7", times=None)]) as server,
        over(server.url, refusals=RefusalPolicy(probes=())) as transport,
    ):
        with pytest.raises(RangeFault) as raised:
            transport.read("f7", 0, 4)
        assert (raised.value.kind, raised.value.attempts, len(server.hits)) == (FaultKind.FORBIDDEN, 2, 2)
        assert transport.read("f1", 0, 4).attempts == 1


def test_who_does_not_wait_learns_that_one_object_is_refused_all_the_same(folder: Path) -> None:
    with (
        FaultServer(folder, rules=[Rule("403", "f7", times=None)]) as server,
        over(server.url, refusals=RefusalPolicy(probes=(60.0,), wait=0.0)) as transport,
    ):
        transport.read("f1", 0, 4)
        with pytest.raises(RangeFault) as raised:
            transport.read("f7", 0, 4)
        assert raised.value.kind is FaultKind.FORBIDDEN
        assert transport.read("f2", 0, 4).attempts == 1
        server.set_rules(CLOSED)
        with pytest.raises(SourceRefuses):
            transport.read("f3", 0, 4)


def test_a_pause_that_a_place_of_ones_own_asks_for_is_waited_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states_of_refusals, "SHORT_PAUSE", 0.1)
    with (
        FaultServer(folder, rules=[Rule("503", times=1, retry_after=1)]) as server,
        over(server.url, refusals=RefusalPolicy(probes=(), wait=20.0)) as transport,
    ):
        assert transport.read("f1", 0, 4).attempts == 2
        first, second = server.hits
        assert second.at >= first.at + 0.9


@pytest.mark.parametrize(("kind", "noted"), [("503", None), ("429", "status 429, SlowDown")])
def test_one_refusal_keeps_the_rate(folder: Path, tmp_path: Path, kind: str, noted: str | None) -> None:
    path = tmp_path / "budget.sqlite"
    with FaultServer(folder, rules=[Rule(kind, "f0", times=1, ranges=("bytes=0-3",))]) as server:
        with over(server.url, rate=500.0, budget_path=path) as transport:
            for number in range(5):
                transport.read("f0", number, 4)
        assert [hit.status for hit in server.hits] == [int(kind), 206, 206, 206, 206, 206]
    [state] = budget_state(path)
    assert (state.rate, state.last_refusal) == (500.0, noted)


@pytest.mark.parametrize("rate", [None, 200.0])
def test_a_wave_of_refusals_is_waited_for_as_a_403_is(
    folder: Path, tmp_path: Path, rate: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # four refusals in a row are a wave, however fast they come: before any request has used up its attempts
    monkeypatch.setattr(states_of_refusals, "SLOW_WAVE", 0.0)
    with FaultServer(folder, latency=0.005, manners=Manners(wave=Wave(50, 0.4, 503))) as server:
        with over(server.url, rate=rate, budget_path=tmp_path / "budget.sqlite") as transport:
            came = list(transport.read_many(ranges(200)))
        assert all(isinstance(one, RangeBytes) for one in came)
        assert len(came) == 200
        assert asked_again(server.hits) == {}
        # how many are refused meanwhile: test_refusal_states.py
        assert any(hit.fault == "wave" for hit in server.hits)


def test_a_wave_that_meets_one_request_at_a_time_is_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states_of_refusals, "SLOW_WAVE", 0.0)
    patient = RetryPolicy(attempts=6, base=0.001, longest=0.005)
    with FaultServer(folder, rules=[Rule("503", times=12)]) as server, over(server.url, retry=patient) as transport:
        # six attempts alone would have ended by then
        assert transport.read("f1", 0, 4).data == bytes(4)
        assert len([hit for hit in server.hits if hit.status == 503]) == 12


def test_an_object_that_always_fails_is_told_from_a_wave(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states_of_refusals, "SLOW_WAVE", 0.0)
    with FaultServer(folder, rules=[Rule("503", "f7", times=None)]) as server, over(server.url) as transport:
        transport.read("f1", 0, 4)
        with pytest.raises(RangeFault) as raised:
            transport.read("f7", 0, 4)
        assert (raised.value.kind, raised.value.attempts) == (FaultKind.THROTTLED, 6)
        assert {hit.key for hit in server.hits if hit.method == "HEAD"} == {"f1"}
        assert transport.read("f2", 0, 4).attempts == 1


def test_an_object_that_stayed_refused_is_asked_for_once_more_and_again_when_time_has_passed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, later = time.monotonic, 0.0
    monkeypatch.setattr(time, "monotonic", lambda: clock() + later)
    with FaultServer(folder, rules=[Rule("503", "f7", times=None)]) as server, over(server.url) as transport:
        for tries in (QUICK.attempts, 1, 0, 0):
            server.hits.clear()
            with pytest.raises(RangeFault, match="throttled") as raised:
                transport.read("f7", 0, 4)
            assert sum(hit.key == "f7" for hit in server.hits) == raised.value.attempts == tries
            transport.read("f1", 0, 4)
        server.set_rules([])
        later = 301.0
        transport.read("f7", 0, 4)
        server.set_rules([Rule("503", "f7", times=2)])
        assert transport.read("f7", 0, 4).attempts == 3


def test_one_answer_of_an_object_that_was_refused_is_enough(folder: Path) -> None:
    with FaultServer(folder, rules=[Rule("503", "f7", times=QUICK.attempts)]) as server, over(server.url) as transport:
        with pytest.raises(RangeFault, match="throttled"):
            transport.read("f7", 0, 4)
        transport.read("f7", 0, 4)
        server.set_rules([Rule("503", "f7", times=2)])
        assert transport.read("f7", 0, 4).attempts == 3


def test_an_object_that_many_ask_for_slows_nobody_down(folder: Path, tmp_path: Path) -> None:
    """A row of its refusals would be a wave of the host, and the next one would halve the rate of all."""
    budget = tmp_path / "budget.sqlite"
    rules = [Rule("503", "f7", times=None)]
    with FaultServer(folder, rules=rules) as server, over(server.url, rate=20.0, budget_path=budget) as transport:
        transport.read("f1", 0, 4)
        for _ in range(60):
            with pytest.raises(RangeFault, match="throttled"):
                transport.read("f7", 0, 4)
        [state] = budget_state(budget)
        assert (state.breaker_open, state.rate) == (False, 20.0)
        assert sum(hit.key == "f7" for hit in server.hits) == QUICK.attempts + 1
