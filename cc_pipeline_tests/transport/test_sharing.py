"""What a home's budget and those of workers elsewhere tell each other: breakers that opened, shares that are lent."""

from __future__ import annotations

import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from cc_pipeline.transport.budget import (
    EVERY_HOST,
    REMOTE_SHARE_LIFE,
    Budget,
    OpenBreaker,
    SlotReservation,
    openings,
    share_budget,
    take_over,
)
from cc_pipeline.transport.circuit_breaker import BreakerOpen, RefusalPolicy
from cc_pipeline.transport.rates import SourceLimits, shared_among
from cc_pipeline.transport.states import budget_state, reset_breaker

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.transport import budget as sharing
from cc_pipeline_tests.refusal_events import forbidden

HOST = "example.org"
LIMITS = SourceLimits(rate=12.0, concurrency=8)
POLICY = RefusalPolicy(probes=(50.0, 150.0))


def refused(path: Path) -> None:
    budget = Budget(path, HOST, LIMITS, POLICY)
    budget.apply_event(forbidden(why="403 from it"))
    budget.close()


def lease_in(path: Path, host: str = HOST) -> SlotReservation | BreakerOpen:
    budget = Budget(path, host, LIMITS, POLICY)
    try:
        return budget.reserve_slots(100)
    finally:
        budget.close()


def test_a_breaker_that_opened_elsewhere_is_open_here_as_long(tmp_path: Path) -> None:
    here, there = tmp_path / "here" / "budget.sqlite", tmp_path / "there.sqlite"
    refused(there)
    [told] = openings(there)
    take_over(here, [told])
    closed = lease_in(here)
    assert isinstance(closed, BreakerOpen)
    assert (closed.until, closed.reason) == (told.until, "403 from it")
    [state] = budget_state(here)
    assert state.breaker_open
    # it is told on as it is
    assert openings(here) == (told,)


def test_one_request_finds_out_once_it_is_time(tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    refused(tmp_path / "there.sqlite")
    [told] = openings(tmp_path / "there.sqlite")
    take_over(path, [replace(told, since=told.since - 60, until=told.until - 60)])
    # one that may be asked says nothing of a host that nothing was asked of from here
    assert budget_state(path) == ()
    probe = lease_in(path)
    assert isinstance(probe, SlotReservation)
    assert probe.is_probe
    assert isinstance(lease_in(path), BreakerOpen)
    [still] = openings(path)
    assert (still.since, still.probes) == (told.since - 60, 1)


def test_what_is_known_already_does_not_close_it_again(tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    refused(path)
    told = openings(path)
    assert reset_breaker(path, HOST)
    assert openings(path) == ()
    take_over(path, told)
    assert isinstance(lease_in(path), SlotReservation), "a person closed it"
    take_over(path, [replace(one, since=one.since + 1) for one in told])
    assert isinstance(lease_in(path), BreakerOpen), "it opened since"
    assert openings(tmp_path / "none.sqlite") == ()


def test_what_is_lent_is_not_spent_here(tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    budget = Budget(path, HOST, LIMITS)
    share = shared_among(LIMITS, 4)

    def spacing() -> float:
        found = budget.reserve_slots(1)
        assert isinstance(found, SlotReservation)
        return found.spacing

    alone, mine = spacing(), budget.renew(0)
    assert mine == 8
    with share_budget(path, [HOST], 3):
        assert spacing() >= 1 / (LIMITS.rate or 0) * 4
        # all shares together are no more than there is
        assert budget.renew(0) + 3 * share.concurrency == 8
        other = Budget(path, HOST, LIMITS)
        assert isinstance(lease_in(path, "other.example"), SlotReservation)
        assert budget.renew(0) + other.renew(0) + 3 * share.concurrency <= 8
        other.close()
    assert spacing() == alone
    assert budget.renew(0) == 8
    with share_budget(path, [EVERY_HOST], 3):
        assert spacing() > alone
    budget.close()


def test_a_host_keeps_one_request_however_many_share(tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    budget = Budget(path, HOST, LIMITS)
    with share_budget(path, [HOST], 100):
        assert budget.renew(0) == 1
    budget.close()


def test_what_a_killed_process_lent_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "budget.sqlite"
    sharing._write_remote_shares(path, [HOST], 3)
    budget = Budget(path, HOST, LIMITS)
    assert budget.renew(0) < 8
    later = time.time() + REMOTE_SHARE_LIFE + 1
    monkeypatch.setattr(time, "time", lambda: later)
    assert budget.renew(0) == 8
    budget.close()


def test_it_is_lent_for_as_long_as_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_RENEWAL", 0.02)
    path = tmp_path / "budget.sqlite"
    budget = Budget(path, HOST, LIMITS)
    with share_budget(path, [HOST], 3):
        budget._db.execute("update lent set until = 0")
        deadline = time.monotonic() + 30
        while budget.renew(0) == 8:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    budget.close()


def test_a_file_that_is_none_is_said_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(EnvironmentFault, match="budget"):
        openings(path)


def test_what_two_lend_at_once_adds_up_and_each_takes_back_its_own(tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    budget = Budget(path, HOST, LIMITS)
    with share_budget(path, [HOST], 3):
        with share_budget(path, [HOST], 2):
            assert budget._remote_shares(time.time()) == 5
        assert budget._remote_shares(time.time()) == 3, "the other one's end takes nothing of it back"
        with share_budget(path, [EVERY_HOST, HOST], 3):
            assert budget._remote_shares(time.time()) == 6
    assert budget.renew(0) == 8
    budget.close()


def test_many_at_once_tell_of_refusals_and_lend_and_nothing_is_lost(tmp_path: Path) -> None:
    path, workers, rounds = tmp_path / "budget.sqlite", 6, 8
    began = time.time()
    together = threading.Barrier(workers)

    def work(worker: int) -> None:
        together.wait()
        for number in range(rounds):
            since = began + number * workers + worker
            told = [
                OpenBreaker(host, since, since + 100, number + 1, f"{worker}") for host in (HOST, f"{worker}.example")
            ]
            with share_budget(path, [HOST], worker + 1):
                take_over(path, told)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    known = {opening.host: opening for opening in openings(path)}
    last = began + rounds * workers - 1
    assert (known[HOST].since, known[HOST].until, known[HOST].reason) == (last, last + 100, f"{workers - 1}")
    assert known.keys() == {HOST, *(f"{worker}.example" for worker in range(workers))}
    assert all(known[f"{worker}.example"].probes == rounds for worker in range(workers))
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("select * from lent").fetchall() == []
