"""The rate limiter that every request passes before it is sent: it limits concurrent requests, and asks the budget."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import ParamSpec, TypeVar

from cc_pipeline import progress
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.transport.budget import FULL_HOUSE, SLOT_LIFE, Budget
from cc_pipeline.transport.circuit_breaker import Blocked, BreakerOpen, Event, Failed, Gave, RefusalPolicy, is_answer
from cc_pipeline.transport.faults import Finding, Refusal

P = ParamSpec("P")
T = TypeVar("T")
#: Seconds between two renewals of this process's share of the concurrent requests.
_RENEWAL = 1.0


#: Seconds without a share of the budget, or without a slot, after which a message is shown.
_WARN_AFTER = 5.0
#: Seconds between two checks whether a blocked host answers again: another process, or the user, may know it.
_CHECK_SECONDS = 1.0


class HostUnavailable(Exception):
    """The host refuses for longer than the request waits. The message says why and until when."""

    def __init__(self, closed: BreakerOpen) -> None:
        self.until = closed.until
        super().__init__(
            f"the host refuses requests ({closed.reason}); "
            f"no request is sent before {_moment(closed.until, '%Y-%m-%d %H:%M:%S')}"
        )

    @property
    def seconds(self) -> float:
        """The seconds until the next request may be sent."""
        return max(0.0, self.until - time.time())


class RateLimiter:
    """Lets requests pass one by one as the budget allows. Belongs to one event loop.

    A separate thread reads the budget's file, so that a busy disk never stops the loop.
    """

    def __init__(
        self,
        open_budget: Callable[[], Budget],
        refusals: RefusalPolicy | None = None,
    ) -> None:
        """``refusals`` says how long requests wait for a host that refuses.

        ``well`` counts how often the host answered after it had refused. ``sample`` is an object that it gave, at most
        a week ago. ``denied`` are objects that it refuses permanently. If there are any, the next refusal may be about
        one as well, so it is probed at once."""
        self.well = 0
        self.sample = ""
        self.denied: set[str] = set()
        self._has_reported_sample = self._took_sample = False
        self._open_budget = open_budget
        self._refusals = refusals or RefusalPolicy()
        self.waits = bool(self._refusals.probes)
        self._budget: Budget | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cc-pipeline-budget")
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._retry_event = asyncio.Event()
        self._in_flight = 0
        self._request_share = 0
        self._renewed = 0.0
        # since when the host refuses, as this process knows it (0: it does not), and since when requests wait for it
        self._refused_at = 0.0
        self._waited_since = 0.0
        # since when other processes use all concurrent requests
        self._without_share_since = 0.0
        # since when all slots were missed, and the maximum delay of the last reservation's slots in seconds
        self._missed_since = self._lateness = 0.0
        # until when the host refuses, and when that was first seen
        self._closed_until = self._seen_at = 0.0
        # successes since the last report, and whether the next reservation need not report any
        self._success_count = 0
        self._last_success_sent = 0.0
        self._is_calm = True
        self._news: deque[Callable[[Budget], object]] = deque()
        self._reporter: asyncio.Task[None] | None = None

    async def enter(self) -> bool:
        """Returns once one request may be sent, with whether it is the probe of a blocked host.
        Raises ``HostUnavailable`` if the host refuses for longer than the request waits."""
        admission: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(admission)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._let_pass())
        try:
            return await admission
        except asyncio.CancelledError:
            if admission.done() and not admission.cancelled() and admission.exception() is None:
                self.leave()  # it was admitted at the same moment
            raise

    @property
    def has_blocked_requests(self) -> bool:
        """Whether a request waits for another one to end."""
        return bool(self._waiting) and self._in_flight >= self._request_share

    def leave(self) -> None:
        """The request has ended, whatever its outcome."""
        self._in_flight -= 1
        self._room.set()
        self._retry_event.set()

    def succeeded(self, sent: float, key: str = "") -> None:
        """Notes that a request for ``key`` (empty: of another host), sent at ``sent`` (seconds since the epoch),
        succeeded."""
        self._success_count += 1
        self._last_success_sent = max(self._last_success_sent, sent)
        self.sample = key or self.sample
        self.denied.discard(key)
        if key and not self._has_reported_sample:
            self._has_reported_sample = self._took_sample = True
            self._report(partial(Budget.note_sample, key=key))
        if self._refused_at and sent >= self._refused_at:
            self._report_successes()
            self._is_well()

    def failed(self, finding: Finding, sent: float, key: str, *, is_repeat: bool = False) -> None:
        """A request for ``key`` sent at ``sent`` failed, ``is_repeat``: not for the first time."""
        refusal = finding.refusal
        if refusal is Refusal.ADDRESS and (not self._refusals.probes or key in self.denied):
            refusal = None
        shows_it_well = self._refused_at and sent >= self._refused_at and is_answer(finding.kind, finding.refusal)
        if refusal is None and not shows_it_well:
            return
        self._report_successes()
        now = time.time()
        if refusal is Refusal.ADDRESS:
            self._refused_at = self._refused_at or now
        # a request that does not wait can still probe with a known object
        probes_at_once = bool(self.denied) or (
            bool(self.sample) and self._refusals.wait < self._refusals.first_probe_delay
        )
        self._report_event(
            Failed(now, sent, finding.kind, finding.detail, refusal, finding.retry_after, probes_at_once, is_repeat)
        )
        if shows_it_well:
            self._is_well()

    def _report_successes(self) -> None:
        if self._success_count:
            self._report_event(Gave(time.time(), self._success_count, self._last_success_sent))
            self._success_count, self._last_success_sent = 0, 0.0

    def _report_event(self, event: Event) -> None:
        self._is_calm = False
        self._report(partial(self._note_state, event))

    def _note_state(self, event: Event, budget: Budget) -> None:
        """Reports an event. If the host is blocked from then on, slots that were reserved before are void."""
        state = budget.apply_event(event)
        if isinstance(state, Blocked) and not self._refused_at:
            self._refused_at = event.now

    def _is_well(self) -> None:
        if self._waited_since:
            progress.report(progress.WAITING, 0)
        self.well += 1
        self._refused_at = self._waited_since = 0.0
        self._retry_event.set()

    async def close(self) -> None:
        """Releases this process's share, after all reports were sent."""
        if self._pump is not None:
            self._pump.cancel()
        if self._reporter is not None:
            await asyncio.wait([self._reporter])
        if self._budget is not None:
            await self._ask(self._budget.close)
        self._thread.shutdown()

    def _report(self, news: Callable[[Budget], object]) -> None:
        self._news.append(news)
        if self._reporter is None or self._reporter.done():
            self._reporter = asyncio.create_task(self._send_reports())

    async def _send_reports(self) -> None:
        """Sends reports to the other processes through the budget file."""
        # an error of the budget file also meets the next request, which raises it
        with suppress(EnvironmentFault):
            while self._news:
                budget = await self._the_budget()
                await self._ask(self._news.popleft(), budget)

    async def _let_pass(self) -> None:
        try:
            budget = await self._the_budget()
            while self._waiting:
                await self._pass_on(budget)
        except Exception as error:
            self._refuse_all(error)

    async def _pass_on(self, budget: Budget) -> None:
        await self._renew(budget)
        room = self._request_share - self._in_flight
        if room <= 0:
            await self._wait_for_room(budget)
            return
        if self._without_share_since:
            self._without_share_since = 0.0
            progress.report(progress.WAITING, 0)
        request_count = min(room, len(self._waiting))
        free = budget.limits.rate is None and not budget.limits.shared
        if free and self._is_calm:
            # no other process shares the host, and it answers
            for _ in range(request_count):
                self._release()
        else:
            await self._pass_on_lease(budget, request_count)

    async def _pass_on_lease(self, budget: Budget, max_slots: int) -> None:
        requested_at = time.time()
        # it is in the future if the clock was set back
        self._refused_at = min(self._refused_at, requested_at)
        if self._reporter is not None:
            # the budget must know earlier results before it gives slots
            await asyncio.wait([self._reporter])
        successes, self._success_count = self._success_count, 0
        self._is_calm = True
        lease = await self._ask(budget.reserve_slots, max_slots, successes, self._last_success_sent)
        if isinstance(lease, BreakerOpen):
            self._is_calm = False
            await self._wait_for(lease, budget.host)
            return
        # events reported meanwhile are news to the next reservation
        self._is_calm = self._is_calm and lease.is_calm
        if lease.is_probe:
            self._refused_at = self._refused_at or requested_at
            if not self._took_sample:
                self.sample, self._took_sample = lease.sample, True
        elif self._refused_at and self._refused_at < requested_at:
            self._is_well()
        for number in range(lease.count):
            due = lease.start + number * lease.spacing
            delay = due - time.time()
            if delay > 0.0005:
                await self._wait_for_slot(delay, budget.host)
            now = time.time()
            self._lateness = max(self._lateness, now - due)
            # a late probe is still sent: no other request probes, and the next probe waits twice as long
            if lease.spacing and now - due > SLOT_LIFE and not lease.is_probe:
                self._warn_of_missed_slots(budget.host)
                continue  # a missed slot is void
            if self._missed_since:
                self._missed_since = 0.0
                progress.report(progress.WAITING, 0)
            if self._refused_at >= requested_at and not lease.is_probe:
                return  # it has refused meanwhile
            self._release(is_probe=lease.is_probe)

    async def _wait_for_slot(self, delay: float, host: str) -> None:
        """Waits for a slot; other processes may have all slots of many seconds."""
        if delay >= _WARN_AFTER:
            text = (
                f"other processes send requests to {host} too: the next request of this process is due in {delay:.0f} s"
            )
            progress.report(progress.WAITING, round(delay), None, text)
        await asyncio.sleep(delay)
        if delay >= _WARN_AFTER:
            progress.report(progress.WAITING, 0)

    def _warn_of_missed_slots(self, host: str) -> None:
        now = time.monotonic()
        self._missed_since = self._missed_since or now
        if now - self._missed_since >= _WARN_AFTER:
            text = (
                f"this machine is too busy: for {now - self._missed_since:.0f} s it missed every time slot for "
                f"requests to {host}, the last by {self._lateness:.2f} s; the process keeps trying"
            )
            progress.report(progress.WAITING, round(_RENEWAL), None, text)

    async def _wait_for(self, closed: BreakerOpen, host: str) -> None:
        """Waits a moment for a host that refuses or asked for a pause, and reports the remaining time; or ends all
        waiting requests."""
        now = time.time()
        self._refused_at = self._refused_at or now
        self._waited_since = min(self._waited_since or now, now)
        if self._closed_until != closed.until:
            self._closed_until, self._seen_at = closed.until, now
        waited, remaining = now - self._waited_since, closed.until - now
        policy = self._refusals
        is_given_up = policy.gives_up(waited, remaining)
        # a probe that was due just now may be in flight, here or in another process
        is_probed = self._in_flight > 0 or now - self._seen_at < policy.first_probe_delay
        if is_given_up and not (self.waits and is_probed and policy.waits_for_probes(waited, remaining)):
            self._refuse_all(HostUnavailable(closed))
            return
        reason = (
            f"{closed.reason}; the host has never answered, so check the credentials"
            if closed.never_answered
            else closed.reason
        )
        progress.report_refusal(host, reason, remaining, _moment(closed.until, "%H:%M:%S"))
        self._retry_event.clear()
        with suppress(TimeoutError):
            check_seconds = min(_CHECK_SECONDS, policy.first_probe_delay) if is_given_up else _CHECK_SECONDS
            await asyncio.wait_for(self._retry_event.wait(), max(0.0, min(remaining, check_seconds)))

    def _release(self, *, is_probe: bool = False) -> None:
        while self._waiting:
            admission = self._waiting.popleft()
            if not admission.done():
                self._in_flight += 1
                admission.set_result(is_probe)
                return

    def _refuse_all(self, error: Exception) -> None:
        while self._waiting:
            admission = self._waiting.popleft()
            if not admission.done():
                admission.set_exception(error)

    async def _wait_for_room(self, budget: Budget) -> None:
        self._room.clear()
        if self._request_share > self._in_flight:
            return
        if not self._request_share and not self._in_flight:
            self._warn_of_full_concurrency(budget)
        try:
            await asyncio.wait_for(self._room.wait(), FULL_HOUSE if not self._in_flight else _RENEWAL)
        except TimeoutError:
            self._renewed = 0.0

    def _warn_of_full_concurrency(self, budget: Budget) -> None:
        """Shows a message if other processes use all concurrent requests, which may take hours."""
        now = time.monotonic()
        self._without_share_since = self._without_share_since or now
        if now - self._without_share_since >= _WARN_AFTER:
            text = (
                f"other processes use all requests that {budget.host} may get at a time ({budget.limits.concurrency}): "
                "this process waits until another process ends"
            )
            progress.report(progress.WAITING, round(_RENEWAL), None, text)

    async def _renew(self, budget: Budget) -> None:
        limits = budget.limits
        if not limits.shared:
            self._request_share = limits.concurrency
            return
        now = time.monotonic()
        if now - self._renewed < _RENEWAL and self._request_share:
            return
        self._renewed = now
        self._request_share = await self._ask(budget.renew, self._in_flight)

    async def _the_budget(self) -> Budget:
        if self._budget is None:
            self._budget = await self._ask(self._open_budget)
        return self._budget

    async def _ask(self, question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, partial(question, *args, **kwargs))
        except (sqlite3.Error, OSError) as error:
            raise EnvironmentFault(
                f"the request budget, budget.sqlite in the home, cannot be used: {error}",
                "Check that the home can be written to. If the file is damaged, delete it: it is created again",
            ) from error


def _moment(seconds: float, pattern: str) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime(f"{pattern} UTC")
