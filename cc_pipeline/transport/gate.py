"""The gate that every request passes before it is sent: it limits how many are sent at once, and asks the budget."""

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

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.transport.budget import SLOT_LIFE, Budget
from cc_pipeline.transport.faults import FaultKind, Finding
from cc_pipeline.transport.outage import ANSWERS, TROUBLE, Closed, OutagePolicy

P = ParamSpec("P")
T = TypeVar("T")
#: Seconds between two renewals of this process's share of the concurrent requests.
_RENEWAL = 1.0
#: Seconds until the next renewal when this process has no share yet, because other processes have all of it.
_FULL_HOUSE = 0.2


class GateClosed(Exception):
    """The circuit breaker is open, or the host is out. The message says why and until when."""

    def __init__(self, closed: Closed) -> None:
        self.until = closed.until
        super().__init__(_words(closed))

    @property
    def seconds(self) -> float:
        """How long it stays so."""
        return max(0.0, self.until - time.time())


class Gate:
    """Lets requests pass one by one as the budget allows. Belongs to one event loop.

    The budget's file is asked on a thread of its own, so that a busy disk never stops the loop.
    """

    def __init__(self, open_budget: Callable[[], Budget], outage: OutagePolicy | None = None) -> None:
        """``outage``, as the budget has it: a host that fails often enough in a row is left alone."""
        self._open_budget = open_budget
        self._outage = outage
        self._in_a_row = 0
        self._objects: set[str] = set()
        self._was_out = False
        self._budget: Budget | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cc-pipeline-budget")
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._in_flight = 0
        self._granted = 0
        self._renewed = 0.0
        self._pause_until = 0.0
        self._closed: Closed | None = None
        self._refusals = 0
        self._had_refusals = False
        self._news: deque[tuple[Finding | None, float]] = deque()
        self._told_out: Finding | None = None
        self._told_well = False
        self._reporter: asyncio.Task[None] | None = None

    async def enter(self) -> None:
        """Returns when one request may be sent. Raises ``GateClosed`` while the breaker is open."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._let_pass())
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.leave()  # the gate let it pass at the same moment
            raise

    def leave(self) -> None:
        """The request has ended, whatever its outcome."""
        self._in_flight -= 1
        self._room.set()

    def succeeded(self) -> None:
        """A request got what it asked for."""
        if self._had_refusals:
            self._had_refusals = False
            self._report(None)
        if self._outage is not None:
            self._answered()

    def failed(self, finding: Finding, sent: float, key: str) -> None:
        """A request for ``key`` sent at ``sent`` (seconds since the epoch) failed.

        When the source asks for it, all processes slow down.
        """
        if finding.kind is FaultKind.FORBIDDEN:
            self._had_refusals = True
            self._report(finding, sent)
        elif finding.kind is FaultKind.THROTTLED or finding.retry_after is not None:
            wait = 1.0 if finding.retry_after is None else finding.retry_after
            self._pause_until = max(self._pause_until, time.time() + wait)
            self._report(finding, sent)
        if self._outage is not None:
            if finding.kind in ANSWERS:
                self._answered()
            elif finding.kind in TROUBLE:
                self.gave_nothing(finding, key)

    def gave_nothing(self, finding: Finding, key: str) -> None:
        """A request for ``key`` brought nothing, be it by the fault of a host that this one redirects to."""
        if self._outage is not None:
            self._in_a_row += 1
            if len(self._objects) < self._outage.objects:
                self._objects.add(key)
            if self._outage.is_out(self._in_a_row, len(self._objects), finding.kind):
                # each time anew: another process, or a person, may have found it well meanwhile
                self._start_anew()
                self._was_out, self._told_out, self._told_well = True, finding, False
                self._wake()

    def _answered(self) -> None:
        """The host gave something, if only that it has no such object."""
        self._start_anew()
        if self._was_out:
            self._was_out, self._told_out, self._told_well = False, None, True
            self._wake()

    def _start_anew(self) -> None:
        self._in_a_row = 0
        self._objects.clear()

    async def close(self) -> None:
        """Gives this process's share back."""
        for task in (self._pump, self._reporter):
            if task is not None:
                task.cancel()
        if self._budget is not None:
            await self._ask(self._budget.close)
        self._thread.shutdown()

    def _report(self, finding: Finding | None, sent: float = 0.0) -> None:
        self._news.append((finding, sent))
        self._wake()

    def _wake(self) -> None:
        if self._reporter is None or self._reporter.done():
            self._reporter = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        """Tells the other processes through the budget file. News that arrives meanwhile is written in one go."""
        # an error of the budget file also meets the next request, which raises it
        with suppress(EnvironmentFault):
            await self._tell_all()

    async def _tell_all(self) -> None:
        while self._news or self._told_out is not None or self._told_well:
            budget = await self._the_budget()
            await self._tell_of_outages(budget)
            news, self._news = self._news, deque()
            if not news:
                continue
            findings = [finding for finding, _ in news if finding is not None]
            waits = [finding.retry_after for finding in findings if finding.retry_after is not None]
            longest = max(waits, default=None)
            forbidden = [finding for finding in findings if finding.kind is FaultKind.FORBIDDEN]
            if forbidden:
                # what is told together was under way together, and counts once
                sent = max(at for finding, at in news if finding is not None and finding.kind is FaultKind.FORBIDDEN)
                self._closed = await self._ask(budget.forbidden, 1, forbidden[-1].detail, longest, sent)
            elif findings:
                await self._ask(budget.slow_down, findings[-1].detail, longest)
            else:
                await self._ask(budget.succeeded)

    async def _tell_of_outages(self, budget: Budget) -> None:
        out, self._told_out = self._told_out, None
        if out is not None:
            await self._ask(budget.out, f"{out.kind.value}: {out.detail}", out.retry_after)
        well, self._told_well = self._told_well, False
        if well:
            await self._ask(budget.answers)

    async def _let_pass(self) -> None:
        try:
            budget = await self._the_budget()
            while self._waiting:
                await self._renew(budget)
                room = self._granted - self._in_flight
                if room <= 0:
                    await self._wait_for_room()
                    continue
                wanted = min(room, len(self._waiting))
                if budget.limits.rate is None and not budget.limits.shared and self._outage is None:
                    await self._pass_freely(wanted)
                else:
                    await self._pass_on_lease(budget, wanted)
        except Exception as error:
            self._refuse_all(error)

    async def _pass_freely(self, wanted: int) -> None:
        """For a place that no other process counts against: only answers to this process slow it down."""
        if self._closed is not None and self._closed.until > time.time():
            self._refuse_all(GateClosed(self._closed))
            return
        delay = self._pause_until - time.time()
        if delay > 0:
            await asyncio.sleep(delay)
        for _ in range(wanted):
            self._release()

    async def _pass_on_lease(self, budget: Budget, wanted: int) -> None:
        lease = await self._ask(budget.lease, wanted)
        if isinstance(lease, Closed):
            self._was_out = self._outage is not None
            self._refuse_all(GateClosed(lease))
            return
        if lease.asks:
            # one failure of the request that finds out is enough
            self._start_anew()
            self._was_out = True
        for number in range(lease.count):
            due = lease.start + number * lease.spacing
            delay = due - time.time()
            if delay > 0.0005:
                await asyncio.sleep(delay)
            now = time.time()
            # the one that finds out is late rather than lost: nobody else asks, and the next waits twice as long
            late = now - due > SLOT_LIFE and not lease.asks
            if lease.spacing and (late or now < self._pause_until):
                continue  # a missed slot is void, or the place has asked for a pause meanwhile
            self._release()

    def _release(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                self._in_flight += 1
                turn.set_result(None)
                return

    def _refuse_all(self, error: Exception) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(error)

    async def _wait_for_room(self) -> None:
        self._room.clear()
        if self._granted > self._in_flight:
            return
        try:
            await asyncio.wait_for(self._room.wait(), _FULL_HOUSE if not self._in_flight else _RENEWAL)
        except TimeoutError:
            self._renewed = 0.0

    async def _renew(self, budget: Budget) -> None:
        limits = budget.limits
        if not limits.shared:
            self._granted = limits.concurrency
            return
        now = time.monotonic()
        if now - self._renewed < _RENEWAL and self._granted:
            return
        self._renewed = now
        self._granted = await self._ask(budget.renew, self._in_flight)

    async def _the_budget(self) -> Budget:
        if self._budget is None:
            self._budget = await self._ask(self._open_budget)
        return self._budget

    async def _ask(self, question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, partial(question, *args, **kwargs))
        except (sqlite3.Error, OSError) as error:
            raise EnvironmentFault(
                f"the request budget cannot be used: {error}",
                "Check that the home can be written to. If its budget.sqlite is damaged, delete it",
            ) from error


def _words(closed: Closed) -> str:
    until = datetime.fromtimestamp(closed.until, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"refused repeatedly ({closed.why}); nothing is sent before {until}"
