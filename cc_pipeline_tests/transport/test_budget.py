"""The machine's budget: never above the rate, shared by processes, slowed down and shut together."""

from __future__ import annotations

import json
import math
import multiprocessing
import sqlite3
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import pairwise
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from cc_pipeline.transport.budget import Budget, OpenBreaker, SlotReservation, openings, take_over
from cc_pipeline.transport.circuit_breaker import CLOCK_JUMP, BreakerOpen, RefusalPolicy
from cc_pipeline.transport.rates import (
    JITTER,
    OWN_BUCKET_RATE,
    SourceLimits,
    chosen_limits,
    default_limits,
    refuse_nameless,
    shared_among,
    slot_spacing,
    window_of,
)
from cc_pipeline.transport.states import budget_state, reset_breaker
from hypothesis import example, given
from hypothesis import strategies as st

from cc_pipeline.errors import UserInputError
from cc_pipeline.transport import circuit_breaker
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.ranges import ByteRange, RangeBytes
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.refusal_events import asked_for_less, busy, forbidden, gave

HOST = "example.org"
#: Beyond the jitter that a budget allows for, so many seconds late a server notes a request where its machine is busy.
LATE = 0.3


def most_in(times: Sequence[float], seconds: float) -> int:
    ordered = sorted(times)
    best = first = 0
    for last, now in enumerate(ordered):
        while ordered[first] <= now - seconds:
            first += 1
        best = max(best, last - first + 1)
    return best


@given(st.floats(0.2, 5_000), st.lists(st.floats(0, JITTER), min_size=1, max_size=50))
@example(0.96875, [0.0, 0.0625])
@example(0.999, [JITTER, 0.0])
@example(40.0, [JITTER, 0.0])
def test_slots_stay_under_the_rate_even_when_requests_are_late(rate: float, lateness: list[float]) -> None:
    spacing = slot_spacing(rate)
    count = int(rate * window_of(rate) * 1.5) + 3
    arrivals = [n * spacing + lateness[n % len(lateness)] for n in range(count)]
    window = window_of(rate)
    assert most_in(arrivals, window) <= max(1.0, rate * window * 1.05)
    # and the price of that is small
    assert 1 / spacing >= rate * 0.9
    assert 1 / slot_spacing(5.0) == pytest.approx(5.0, rel=1e-5)


def test_leases_of_several_processes_never_overlap(tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    one, other = (Budget(path, HOST, SourceLimits(40.0, 8)) for _ in range(2))
    slots: list[float] = []
    for number in range(30):
        lease = (one, other)[number % 2].reserve_slots(5)
        assert isinstance(lease, SlotReservation)
        assert lease.count <= 2  # not more than a lease may reach ahead
        slots += [lease.start + n * lease.spacing for n in range(lease.count)]
    assert slots == sorted(slots)
    assert min(b - a for a, b in pairwise(slots)) > 0.99 * slot_spacing(40.0)
    one.close()
    other.close()


def test_concurrency_is_shared_and_never_exceeded(tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    budgets = [Budget(path, HOST, SourceLimits(None, 10)) for _ in range(3)]
    assert budgets[0].renew(0) == 10
    assert budgets[1].renew(0) == 0  # nothing is left yet
    assert budgets[0].renew(10) == 5
    assert budgets[1].renew(0) == 0  # ten are still under way: they count
    assert budgets[0].renew(5) == 5
    assert budgets[1].renew(0) == 5
    granted = [5, 5, 0]
    for _ in range(3):
        for number, budget in enumerate(budgets):
            granted[number] = budget.renew(granted[number])
            granted[number] = budget.renew(granted[number])
            assert sum(granted) <= 10
    assert granted == [3, 3, 3]
    budgets[0].close()
    assert [budget.renew(3) for budget in budgets[1:]] == [5, 5]
    for budget in budgets[1:]:
        budget.close()


def test_a_dead_process_gives_its_share_back(tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    dead, alive = (Budget(path, HOST, SourceLimits(None, 4)) for _ in range(2))
    assert dead.renew(0) == 4
    with sqlite3.connect(path) as db:
        db.execute("update holders set expires = expires - 60")
    assert alive.renew(0) == 4
    alive.close()


def spacing(budget: Budget) -> float:
    lease = budget.reserve_slots(1)
    assert isinstance(lease, SlotReservation)
    return lease.spacing


def test_a_refusal_by_address_makes_cautious_for_a_day_and_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "budget.sqlite"
    began = now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    host = "data.commoncrawl.org"
    budget = Budget(path, host, default_limits(f"https://{host}"))
    for _ in range(1_000):
        assert isinstance(budget.reserve_slots(1), SlotReservation)
        now += 0.2
    budget.apply_event(forbidden())
    now += 6
    lease = budget.reserve_slots(1)
    assert isinstance(lease, SlotReservation)
    assert lease.is_probe
    budget.apply_event(gave())
    assert spacing(budget) == slot_spacing(795 / 300)
    (state,) = budget_state(path)
    assert (state.rate, state.full_rate, state.requests_before) == (795 / 300, 5.0, 1_000)
    assert state.blocked_at is not None
    assert state.blocked_at.timestamp() == pytest.approx(began + 200, abs=1)
    now += 86_400
    assert spacing(budget) == slot_spacing(5.0)
    budget.close()


def test_a_wave_that_another_machine_met_is_no_refusal_of_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    host = "data.commoncrawl.org"
    there = Budget(tmp_path / "there.sqlite", host, default_limits(f"https://{host}"))
    while not isinstance(there.reserve_slots(1), BreakerOpen):
        there.apply_event(busy())
    there.close()
    [told] = openings(tmp_path / "there.sqlite")
    take_over(tmp_path / "here.sqlite", [OpenBreaker(**json.loads(json.dumps(asdict(told))))])
    here = Budget(tmp_path / "here.sqlite", host, default_limits(f"https://{host}"))
    assert isinstance(here.reserve_slots(1), BreakerOpen)
    now += 6
    assert isinstance(here.reserve_slots(1), SlotReservation)
    here.apply_event(gave())
    assert spacing(here) == slot_spacing(5.0)
    here.close()


def test_who_has_no_credentials_is_not_told_to_check_them(tmp_path: Path) -> None:
    for host, never in (("data.commoncrawl.org", False), ("cc.example.org", True)):
        budget = Budget(tmp_path / "budget.sqlite", host, default_limits(f"https://{host}"))
        budget.apply_event(forbidden())
        closed = budget.reserve_slots(1)
        assert isinstance(closed, BreakerOpen)
        assert closed.never_answered is never
        budget.close()


def test_a_refusal_stops_all_processes_but_for_a_probe_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "budget.sqlite"
    began = now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    policy = RefusalPolicy(probes=(5.0, 15.0, 60.0))
    one, other = (Budget(path, HOST, SourceLimits(100.0, 8), policy) for _ in range(2))
    one.apply_event(forbidden(now - 1))
    probes = []
    while now < began + 250:
        now += 0.5
        lease = (one, other)[int(now) % 2].reserve_slots(50)
        if isinstance(lease, SlotReservation):
            assert (lease.count, lease.is_probe) == (1, True)
            probes.append(now - began)
            one.apply_event(forbidden(now))
            # of those that were under way with the first
            other.apply_event(forbidden(began - 0.5))
        else:
            assert lease.reason == "status 403"
    assert probes == pytest.approx([5, 15, 60, 120, 180, 240], abs=1)
    (state,) = budget_state(path)
    assert state.breaker_open
    one.apply_event(gave(now))
    assert spacing(other) == slot_spacing(50.0)
    # an answer that was long under way closes nothing again
    one.apply_event(forbidden(now - 1))
    assert isinstance(other.reserve_slots(1), SlotReservation)
    now += 1
    one.apply_event(forbidden(now, 100.0))
    closed = other.reserve_slots(1)
    assert isinstance(closed, BreakerOpen)
    assert closed.until == pytest.approx(now + 100)
    assert reset_breaker(path, HOST)
    assert isinstance(one.reserve_slots(1), SlotReservation)
    assert not reset_breaker(path, "another.example")
    one.close()
    other.close()


def test_what_was_learnt_holds_for_whoever_asks_faster(tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    one = Budget(path, HOST, SourceLimits(10.0, 8))
    for _ in range(circuit_breaker.RATE_REFUSALS):
        one.apply_event(asked_for_less(0.0))
    for rate, used in ((2.0, 2.0), (20.0, 5.0)):
        other = Budget(path, HOST, SourceLimits(rate, 8))
        assert spacing(other) == slot_spacing(used)
        other.close()
    one.close()


def test_a_person_can_wait_for_ever_and_others_do_not() -> None:
    policy = RefusalPolicy(wait=130.0)
    assert not policy.gives_up(0, 120)
    assert policy.gives_up(60, 100)
    assert RefusalPolicy(wait=1e9).gives_up(0, 3600), "so long a pause is told instead"
    assert not RefusalPolicy(wait=math.inf).gives_up(1e9, 3600)
    assert RefusalPolicy(wait=0.0).gives_up(0, 0.1)


def test_a_clock_set_back_does_not_stop_anybody(tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    budget = Budget(path, HOST, SourceLimits(10.0, 8))
    with sqlite3.connect(path) as db:
        db.execute("update hosts set next_slot = ?", (time.time() + 86_400,))
    lease = budget.reserve_slots(1)
    assert isinstance(lease, SlotReservation)
    assert lease.start < time.time() + 1
    budget.close()


def test_there_is_no_state_without_a_budget(tmp_path: Path) -> None:
    assert budget_state(tmp_path / "nothing.sqlite") == ()
    assert not reset_breaker(tmp_path / "nothing.sqlite", HOST)


def test_defaults_are_gentle_where_it_is_shared() -> None:
    public = default_limits("https://data.commoncrawl.org")
    assert (public.rate, public.concurrency, public.shared) == (5.0, 4, True)
    assert public.cautious is not None
    assert public.cautious * 300 <= 800
    other = default_limits("https://data.example.org")
    assert (other.rate, other.concurrency, other.cautious) == (10.0, 8, None)
    assert default_limits("https://data.commoncrawl.org/crawl-data") == public
    bucket = default_limits("s3://commoncrawl")
    assert bucket.rate == 100
    assert default_limits("/some/folder").rate is None
    assert default_limits("http://127.0.0.1:8000/").rate is None
    assert default_limits("http://[::1]:8000/").rate is None
    assert default_limits("s3://mine", "http://localhost:9000").rate is None
    assert default_limits("https://127.0.0.1.example.org/").rate is not None
    assert chosen_limits(default_limits("/some/folder"), 5.0, 3) == SourceLimits(5.0, 3, shared=True)
    assert chosen_limits(public, 2.0, 3) == SourceLimits(2.0, 3, cautious=public.cautious)


@pytest.mark.parametrize(
    ("source", "endpoint", "rate", "concurrency", "contact", "named"),
    [
        ("s3://commoncrawl/", None, 101.0, None, "", "CC_PIPELINE_RATE is 101"),
        ("s3://commoncrawl", None, 100.0, 500, "", None),
        ("s3://commoncrawl", None, 2_000.0, None, "me@example.org", None),
        ("s3://mine", None, OWN_BUCKET_RATE, None, "", None),
        ("s3://commoncrawl", "http://10.0.0.7:9000", OWN_BUCKET_RATE, None, "", None),
        ("https://data.commoncrawl.org", None, 10.0, None, "", "CC_PIPELINE_RATE is 10: more than 5"),
        ("https://data.commoncrawl.org", None, None, 5, "", "CC_PIPELINE_CONCURRENCY is 5: more than 4"),
        ("https://data.commoncrawl.org", None, 5.0, 4, "", None),
        ("https://data.commoncrawl.org", None, 10.0, 8, "mailto:me@example.org", None),
        ("https://data.example.org", None, 50.0, 64, "", None),
    ],
)
def test_more_than_the_default_needs_a_contact(
    source: str, endpoint: str | None, rate: float | None, concurrency: int | None, contact: str, named: str | None
) -> None:
    if named is None:
        refuse_nameless(source, endpoint, rate, concurrency, contact)
        return
    with pytest.raises(UserInputError, match=named) as raised:
        refuse_nameless(source, endpoint, rate, concurrency, contact)
    assert "Set CC_PIPELINE_CONTACT" in str(raised.value)


@given(st.floats(0.2, 5_000), st.integers(1, 64), st.integers(1, 32))
def test_shares_of_hosts_add_up_to_the_whole(rate: float, concurrency: int, hosts: int) -> None:
    whole = SourceLimits(rate, concurrency)
    share = shared_among(whole, hosts)
    assert share.rate is not None
    assert share.rate * hosts == pytest.approx(rate)
    assert share.concurrency * hosts <= max(concurrency, hosts)
    assert share.concurrency >= 1
    assert share.shared
    assert shared_among(whole, 1) == whole
    assert shared_among(SourceLimits(None, concurrency), hosts).rate is None


def _reader(url: str, path: Path, rate: float, seconds: float, all_here: Barrier, hosts: int) -> None:
    with Transport(url, SourceOptions(rate=rate, hosts=hosts, concurrency=16, budget_path=path)) as transport:
        all_here.wait()
        end = time.time() + seconds
        while time.time() < end:
            for outcome in transport.read_many([ByteRange("f", n, 3) for n in range(8)]):
                assert isinstance(outcome, RangeBytes)


def used_together(folder: Path, rate: float, seconds: float, files: Sequence[Path], hosts: int, *rules: Rule) -> float:
    """The share of a rate that processes use which have these files, one each. No window sees more than the rate, but
    for requests that a busy server reads late."""
    (folder / "f").write_bytes(bytes(100))
    with FaultServer(folder, rules=rules) as server:
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(len(files))
        readers = [
            context.Process(target=_reader, args=(server.url, file, rate, seconds, barrier, hosts)) for file in files
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
            assert reader.exitcode == 0
        times = [hit.at for hit in server.hits]
    assert most_in(times, window_of(rate)) <= rate * (window_of(rate) + LATE) * 1.05
    return len(times) / (max(times) - min(times)) / rate


@pytest.mark.process
def test_hosts_with_files_of_their_own_stay_within_the_rate_together(tmp_path: Path) -> None:
    files = [tmp_path / str(number) / "budget.sqlite" for number in range(2)]
    assert used_together(tmp_path, 20.0, 3.0, files, 2) > 0.3


@pytest.mark.process
@pytest.mark.parametrize(("rate", "seconds"), [(30.0, 3.0), (5.0, 4.0)])
def test_four_processes_stay_within_the_rate(tmp_path: Path, rate: float, seconds: float) -> None:
    files = [tmp_path / "state" / "budget.sqlite"] * 4
    # the budget is used, not only kept; a busy machine misses slots
    assert used_together(tmp_path, rate, seconds, files, 1, Rule("500", share=0.2)) > 0.3


def test_many_may_make_the_file_at_once(tmp_path: Path) -> None:
    for round_ in range(25):
        together = threading.Barrier(8)

        def opened(path: Path, together: threading.Barrier) -> None:
            together.wait()
            Budget(path, HOST, SourceLimits(10.0, 8)).close()

        with ThreadPoolExecutor(8) as pool:
            path = tmp_path / f"{round_}.sqlite"
            for done in [pool.submit(opened, path, together) for _ in range(8)]:
                done.result()


@pytest.mark.parametrize("back", [70.0, 90.0, 40 * 86_400.0])
def test_a_clock_set_back_neither_lifts_the_rate_nor_stops_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: float
) -> None:
    budget = Budget(tmp_path / "budget.sqlite", HOST, SourceLimits(10.0, 8))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    assert budget.renew(0) == 8
    for _ in range(circuit_breaker.RATE_REFUSALS):
        budget.apply_event(asked_for_less())
    budget.apply_event(forbidden(retry_after=120.0))
    now -= back
    other = Budget(tmp_path / "budget.sqlite", HOST, SourceLimits(10.0, 8))
    lease = other.reserve_slots(5)
    assert isinstance(lease, SlotReservation)
    assert lease.is_probe
    assert lease.spacing > slot_spacing(10.0)
    assert lease.start < now + CLOCK_JUMP + 2
    other.apply_event(gave())
    following = other.reserve_slots(5)
    assert isinstance(following, SlotReservation)
    assert following.start > lease.start
    assert other.renew(0) == 8
    budget.close()
    other.close()
