"""The machine's budget: never above the rate, shared by processes, slowed down and shut together."""

from __future__ import annotations

import math
import multiprocessing
import sqlite3
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cc_pipeline.errors import UserInputError
from cc_pipeline.transport.budget import Budget, Lease
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.outage import Closed, OutagePolicy
from cc_pipeline.transport.place import PlaceOptions
from cc_pipeline.transport.ranges import ByteRange, RangeBytes
from cc_pipeline.transport.rates import (
    JITTER,
    OWN_BUCKET_RATE,
    SourceLimits,
    chosen_limits,
    default_limits,
    refuse_nameless,
    shared_among,
    slot_spacing,
)
from cc_pipeline.transport.refusals import CLOCK_JUMP, RefusalPolicy
from cc_pipeline.transport.states import budget_state, reset_breaker
from cc_pipeline_tests.faultserver import FaultServer, Rule

HOST = "example.org"


def most_in_a_second(times: Sequence[float]) -> int:
    ordered = sorted(times)
    best = first = 0
    for last, now in enumerate(ordered):
        while ordered[first] <= now - 1:
            first += 1
        best = max(best, last - first + 1)
    return best


@given(st.floats(0.2, 5_000), st.lists(st.floats(0, JITTER), min_size=1, max_size=50))
@example(0.96875, [0.0, 0.0625])
@example(0.999, [JITTER, 0.0])
@example(40.0, [JITTER, 0.0])
def test_slots_stay_under_the_rate_even_when_requests_are_late(rate: float, lateness: list[float]) -> None:
    spacing = slot_spacing(rate)
    count = int(rate * 1.5) + 3
    arrivals = [n * spacing + lateness[n % len(lateness)] for n in range(count)]
    assert most_in_a_second(arrivals) <= max(1.0, rate * 1.05)
    # and the price of that is small
    assert 1 / spacing >= rate * 0.85 or rate < 9


def test_leases_of_several_processes_never_overlap(tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    one, other = (Budget(path, HOST, SourceLimits(40.0, 8)) for _ in range(2))
    slots: list[float] = []
    for number in range(30):
        lease = (one, other)[number % 2].lease(5)
        assert isinstance(lease, Lease)
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


def test_throttling_slows_everybody_down_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    one, other = (Budget(path, HOST, SourceLimits(100.0, 8)) for _ in range(2))
    before = other.lease(1)
    one.slow_down("status 503", 3.0)
    one.slow_down("status 503", None)  # of the same second: halves nothing more
    paused = other.lease(1)
    assert isinstance(before, Lease)
    assert isinstance(paused, Closed)
    assert paused.until >= before.start + 2.5
    (state,) = budget_state(path)
    assert state.paused_until is not None
    assert state.full_rate == 100.0
    assert state.rate == pytest.approx(50.0, rel=0.05)
    assert not state.breaker_open
    with sqlite3.connect(path) as db:
        db.execute("update hosts set pause_until = 0, next_slot = 0")
    assert spacing(other) == slot_spacing(50.0)
    one.earned(time.time() - 60)
    assert spacing(other) == slot_spacing(50.0), "requests of before say nothing"
    one.earned(time.time())
    assert spacing(other) == slot_spacing(100.0)
    one.close()
    other.close()


def spacing(budget: Budget) -> float:
    lease = budget.lease(1)
    assert isinstance(lease, Lease)
    return lease.spacing


def learning(path: Path) -> Budget:
    return Budget(path, HOST, default_limits("https://data.commoncrawl.org"))


def test_a_rate_is_earned_halved_by_refusals_and_kept_for_a_week(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "budget.sqlite"
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    budget = learning(path)
    rates = []
    for _ in range(4):
        now += 60
        lease = budget.lease(1)
        assert isinstance(lease, Lease)
        rates.append(lease.spacing)
        assert lease.earns == (len(rates) < 4)
        budget.earned(now)
    assert rates == [slot_spacing(rate) for rate in (2.0, 4.0, 8.0, 10.0)]
    budget.refused("status 403", None)
    budget.close()
    now += 3 * 86_400
    budget = learning(path)
    budget.well(now)
    assert spacing(budget) == slot_spacing(5.0), "of days ago"
    budget.close()
    now += 5 * 86_400
    budget = learning(path)
    assert spacing(budget) == slot_spacing(2.0), "of more than a week ago"
    budget.close()
    # a rate that a person set is no matter of learning, and forgets what was learnt
    budget = Budget(path, HOST, chosen_limits(default_limits("https://data.commoncrawl.org"), 8.0, None))
    assert spacing(budget) == slot_spacing(8.0)
    budget.close()


def test_a_refusal_stops_all_processes_but_for_a_probe_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "budget.sqlite"
    began = now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    policy = RefusalPolicy(probes=(5.0, 15.0, 60.0))
    one, other = (Budget(path, HOST, SourceLimits(100.0, 8), policy) for _ in range(2))
    one.refused("status 403", None, now - 1)
    probes = []
    while now < began + 250:
        now += 0.5
        lease = (one, other)[int(now) % 2].lease(50)
        if isinstance(lease, Lease):
            assert (lease.count, lease.asks) == (1, True)
            probes.append(now - began)
            one.refused("status 403", None, now)
            # of those that were under way with the first
            other.refused("status 403", None, began - 0.5)
        else:
            assert lease.why == "status 403"
    assert probes == pytest.approx([5, 15, 60, 120, 180, 240], abs=1)
    (state,) = budget_state(path)
    assert state.breaker_open
    assert state.rate == 50.0, "halved once"
    one.well(now)
    assert spacing(other) == slot_spacing(50.0)
    # an answer that was long under way closes nothing again
    one.refused("status 403", None, now - 1)
    assert isinstance(other.lease(1), Lease)
    now += 1
    one.refused("status 403", 100.0, now)
    closed = other.lease(1)
    assert isinstance(closed, Closed)
    assert closed.until == pytest.approx(now + 100)
    assert reset_breaker(path, HOST)
    assert isinstance(one.lease(1), Lease)
    assert not reset_breaker(path, "another.example")
    one.close()
    other.close()


def test_a_refusal_that_may_be_of_one_object_is_probed_at_once(tmp_path: Path) -> None:
    budget = Budget(tmp_path / "budget.sqlite", HOST, SourceLimits(100.0, 8), RefusalPolicy(probes=(50.0,)))
    budget.refused("status 403", None, at_once=True)
    probe = budget.lease(5)
    assert isinstance(probe, Lease)
    assert (probe.asks, probe.spacing) == (True, slot_spacing(100.0))
    budget.refused("status 403", None)
    closed = budget.lease(1)
    assert isinstance(closed, Closed)
    assert closed.until == pytest.approx(time.time() + 50, abs=5)
    budget.well(time.time())
    assert spacing(budget) == slot_spacing(50.0)
    budget.close()


def test_a_rate_that_is_set_leaves_alone_what_was_learnt(tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    learnt, by_hand = SourceLimits(10.0, 8, begin=2.0), SourceLimits(10.0, 8)
    one = Budget(path, HOST, learnt)
    one.earned(time.time())
    for limits in (SourceLimits(5.0, 8), by_hand):
        other = Budget(path, HOST, limits)
        assert spacing(other) == slot_spacing(limits.rate or 0)
        other.close()
    assert spacing(one) == slot_spacing(4.0)
    one.close()
    again = Budget(path, HOST, learnt)
    assert spacing(again) == slot_spacing(4.0)
    again.close()


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
    lease = budget.lease(1)
    assert isinstance(lease, Lease)
    assert lease.start < time.time() + 1
    budget.close()


def test_there_is_no_state_without_a_budget(tmp_path: Path) -> None:
    assert budget_state(tmp_path / "nothing.sqlite") == ()
    assert not reset_breaker(tmp_path / "nothing.sqlite", HOST)


def test_defaults_are_gentle_where_it_is_shared() -> None:
    public = default_limits("https://data.commoncrawl.org")
    assert public.rate is not None
    assert public.rate <= 20
    assert public.shared
    assert default_limits("https://data.commoncrawl.org/crawl-data") == public
    bucket = default_limits("s3://commoncrawl")
    assert bucket.rate == 100
    assert bucket.begin is None
    assert public.begin == 2
    assert default_limits("/some/folder").rate is None
    assert default_limits("http://127.0.0.1:8000/").rate is None
    assert default_limits("http://[::1]:8000/").rate is None
    assert default_limits("s3://mine", "http://localhost:9000").rate is None
    assert default_limits("https://127.0.0.1.example.org/").rate is not None
    assert chosen_limits(default_limits("/some/folder"), 5.0, 3) == SourceLimits(5.0, 3, shared=True)
    assert chosen_limits(public, 5.0, 3) == SourceLimits(5.0, 3)
    with pytest.raises(UserInputError, match="CC_PIPELINE_CONTACT"):
        refuse_nameless("s3://commoncrawl/", None, 101.0, "")
    refuse_nameless("s3://commoncrawl", None, 100.0, "")
    refuse_nameless("s3://commoncrawl", None, 2_000.0, "me@example.org")
    refuse_nameless("s3://mine", None, OWN_BUCKET_RATE, "")
    refuse_nameless("s3://commoncrawl", "http://10.0.0.7:9000", OWN_BUCKET_RATE, "")


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
    with Transport(url, PlaceOptions(rate=rate, hosts=hosts, concurrency=16, budget_path=path)) as transport:
        all_here.wait()
        end = time.time() + seconds
        while time.time() < end:
            for outcome in transport.read_many([ByteRange("f", n, 3) for n in range(8)]):
                assert isinstance(outcome, RangeBytes)


def used_together(folder: Path, rate: float, seconds: float, files: Sequence[Path], hosts: int, *rules: Rule) -> float:
    """The share of a rate that processes use which have these files, one each; no second sees more than the rate."""
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
    assert most_in_a_second(times) <= rate * 1.05
    return len(times) / (max(times) - min(times)) / rate


def test_hosts_with_files_of_their_own_stay_within_the_rate_together(tmp_path: Path) -> None:
    files = [tmp_path / str(number) / "budget.sqlite" for number in range(2)]
    assert used_together(tmp_path, 60.0, 1.5, files, 2) > 0.4


@pytest.mark.process
@pytest.mark.parametrize(("rate", "seconds"), [(50.0, 3.0), (5.0, 4.0)])
def test_four_processes_stay_within_the_rate(tmp_path: Path, rate: float, seconds: float) -> None:
    files = [tmp_path / "state" / "budget.sqlite"] * 4
    # the budget is used, not only kept
    assert used_together(tmp_path, rate, seconds, files, 1, Rule("500", share=0.2)) > 0.5


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
    budget.slow_down("status 503", None)
    budget.refused("status 403", 120.0)
    now -= back
    other = Budget(tmp_path / "budget.sqlite", HOST, SourceLimits(10.0, 8))
    lease = other.lease(5)
    assert isinstance(lease, Lease)
    assert lease.asks
    assert lease.spacing > slot_spacing(10.0)
    assert lease.start < now + CLOCK_JUMP + 2
    other.well(now)
    following = other.lease(5)
    assert isinstance(following, Lease)
    assert following.start > lease.start
    assert other.renew(0) == 8
    budget.close()
    other.close()


def test_a_probe_is_used_up_only_where_it_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    refusals, outages = RefusalPolicy(probes=(5.0, 50.0, 500.0)), OutagePolicy(first=100.0, longest=1_000.0)
    budget = Budget(tmp_path / "budget.sqlite", HOST, SourceLimits(100.0, 8), refusals, outages)
    budget.out("timeout", None)
    budget.refused("status 403", None, now)
    # a refusing host that is out too is left alone, and its probes are not counted
    for _ in range(9):
        now += 10
        assert isinstance(budget.lease(1), Closed)
    now += 11
    probe = budget.lease(5)
    assert isinstance(probe, Lease)
    assert (probe.count, probe.asks) == (1, True)
    budget.answers()
    # nor are those of an outage while the host refuses
    budget.refused("status 403", 150.0, now)
    budget.out("timeout", None)
    for _ in range(14):
        now += 10
        assert isinstance(budget.lease(1), Closed)
    now += 11
    assert isinstance(budget.lease(1), Lease)
    budget.close()
