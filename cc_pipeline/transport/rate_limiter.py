"""The rate limiter that every request passes before it is sent, by the state of its host (``host_state.py``).

Belongs here: waiting, on one event loop. The state of a limited host is in a file that all processes share, and its
requests in flight have slots among them. An unlimited host (this machine) has its state in memory, and no slots.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

from cc_pipeline import progress
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.transport import host_state
from cc_pipeline.transport.faults import ENVIRONMENT_KINDS, FaultKind, Finding
from cc_pipeline.transport.host_file import HostFile, naming
from cc_pipeline.transport.host_state import Admission, HostState, NextStep, Refusal
from cc_pipeline.transport.limits import SourceLimits
from cc_pipeline.transport.slots import Slots

T = TypeVar("T")

#: Seconds that a request waits for a host that refuses, by default. They include the sixth pause, which ends when no
#: earlier request is left in a window of 300 s.
WAIT = 370.0
#: The same for a command at a terminal: until the user stops it. No run takes longer than these seconds.
WAIT_ATTENDED: Final = 7 * 86_400.0
#: Maximum seconds of a ``Retry-After`` that a request waits, unless it waits for ever; and those of one that needs no
#: message.
_LONGEST_ASKED: Final = 300.0
_SHORT_ASKED: Final = 2.0
#: Maximum seconds that a request waits for its host while no other object is refused.
_LONGEST_ALONE: Final = 640.0
#: Maximum seconds that a request waits for the answer to the one that ended a pause, here or in another process.
_LONGEST_TEST: Final = 60.0
#: Seconds between two looks at a host that refuses: another process, or the user, may know that it answers again.
_CHECK_SECONDS: Final = 1.0
#: Seconds between two looks for a free slot, and without one after which a message is shown.
_SLOT_SECONDS: Final = 0.05
_WARN_AFTER: Final = 5.0


class HostUnavailable(Exception):
    """The host refuses for longer than the request waits: for ``seconds``. The message says why."""

    def __init__(self, admission: Admission, now: float) -> None:
        self.seconds = max(0.0, admission.next_time - now)
        super().__init__(
            f"the host refuses requests ({admission.reason}); "
            f"no request is sent before {_moment(admission.next_time, '%Y-%m-%d %H:%M:%S')}"
        )


class RateLimiter:
    """Lets requests pass one by one. Belongs to one event loop.

    ``wait`` is the number of seconds a request waits for a host that refuses (0: not at all; ``math.inf``: for ever,
    and for any ``Retry-After``). ``path`` is the file of host states (``None``: in memory). A thread reads it, so that
    a busy disk never stops the loop. ``clock`` returns the time.
    """

    def __init__(
        self,
        host: str,
        limits: SourceLimits,
        wait: float,
        path: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._host, self._limits, self._wait, self._clock = host, limits, wait, clock
        self._path = None if limits.rate is None else path
        self._file: HostFile | None = None
        self._slots: Slots | None = None
        self._thread: ThreadPoolExecutor | None = None
        # the last known state; in memory, the state
        self._state = HostState()
        self._is_free = limits.rate is None
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pump: asyncio.Task[None] | None = None
        self._in_flight = 0
        self._held_slots: list[int] = []
        # set when a request ends, and when the state may have changed
        self._news = asyncio.Event()
        # answers that the file does not have yet
        self._answers, self._last_sent = 0, 0.0
        # since when the host refuses, and other processes have all slots, as waiting requests know it
        self._waited_since = self._slotless_since = 0.0

    async def enter(self) -> None:
        """Returns once one request may be sent. Raises ``HostUnavailable`` if the host refuses for longer than the
        request waits, ``EnvironmentFault`` if the file cannot be used."""
        if self._is_free and self._in_flight < self._limits.concurrency and not self._waiting:
            self._in_flight += 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._let_pass())
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.leave()  # it was admitted at the same moment
            raise

    def leave(self) -> None:
        """A request has ended, whatever its result."""
        self._in_flight -= 1
        if self._slots is not None:
            self._slots.give_back(self._held_slots.pop())
        self._news.set()

    def answered(self, sent: float) -> None:
        """Notes that a request sent at ``sent`` was answered by the host, whatever the answer says of the object."""
        if self._is_free:
            return
        self._answers, self._last_sent = self._answers + 1, max(self._last_sent, sent)
        if not self._state.is_calm:
            task = asyncio.create_task(self._record_answers())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def failed(self, finding: Finding, key: str, sent: float) -> NextStep:
        """Notes the fault of a request for ``key`` sent at ``sent``. Returns what follows if it is about the host; else
        ``SEND_AGAIN``."""
        if not finding.is_refusal:
            if finding.kind not in ENVIRONMENT_KINDS or finding.kind is FaultKind.REDIRECTED:
                self.answered(sent)
            return NextStep.SEND_AGAIN
        now = self._clock()
        wait = min(self._wait, _LONGEST_ALONE) - (now - (self._waited_since or now))
        is_forbidden = finding.kind is FaultKind.FORBIDDEN
        refusal = Refusal(key, sent, now, finding.detail, is_forbidden, finding.retry_after, wait)
        next_step = await self._change(lambda state: state.refused(self._limits, refusal))
        self._news.set()
        return next_step

    async def close(self) -> None:
        """Frees slots and file, after everything was told."""
        if self._pump is not None:
            self._pump.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._thread is not None:
            self._thread.shutdown()
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.close()
        if self._file is not None:
            self._file.close()

    async def _record_answers(self) -> None:
        # an error of the file also meets the next request, which raises it
        with suppress(EnvironmentFault):
            await self._change(lambda state: (state, None))
        self._news.set()

    async def _let_pass(self) -> None:
        try:
            while self._waiting:
                self._news.clear()
                if await self._has_room():
                    await self._let_some_pass()
        except Exception as error:
            self._end_waiting(error)
        finally:
            if self._slots is not None:
                self._slots.leave_queue()

    async def _has_room(self) -> bool:
        """Whether one more request may be in flight; waits a moment if not."""
        if self._in_flight < self._limits.concurrency:
            if self._path is None:
                return True
            slot = self._open_slots().take()
            if slot is not None:
                if self._slotless_since:
                    self._slotless_since = 0.0
                    progress.end_wait()
                self._held_slots.append(slot)
                return True
            self._report_no_slot()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), None if self._path is None else _SLOT_SECONDS)
        return False

    async def _let_some_pass(self) -> None:
        """Lets requests pass, or waits until the rate or a pause allows the next one. The first has a slot by now."""
        max_count = 1 if self._path is not None else min(len(self._waiting), self._limits.concurrency - self._in_flight)
        count = 0
        try:
            admission = await self._change(lambda state: state.admit(self._limits, self._clock(), max_count))
            count = admission.count
        finally:
            if not count and self._slots is not None:
                self._slots.give_back(self._held_slots.pop())
        for _ in range(count):
            self._release()
        if not count and admission.reason is None:
            await asyncio.sleep(admission.next_time - self._clock())
        elif not count:
            await self._wait_for_host(admission)

    def _release(self) -> None:
        self._in_flight += 1
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.leave()  # all were cancelled meanwhile

    async def _wait_for_host(self, admission: Admission) -> None:
        """Waits a moment for a host that refuses, and reports the remaining time; or ends all waiting requests."""
        now = self._clock()
        self._waited_since = min(self._waited_since or now, now)
        if self._exceeds_wait(admission, now):
            self._end_waiting(HostUnavailable(admission, now))
            return
        remaining = admission.next_time - now
        if not (admission.is_requested_by_host and remaining <= _SHORT_ASKED):
            reason, moment = admission.reason or "", _moment(admission.next_time, "%H:%M:%S")
            progress.report_refusal(self._host, reason, remaining, moment)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), min(remaining, _CHECK_SECONDS))

    def _exceeds_wait(self, admission: Admission, now: float) -> bool:
        remaining, waited = admission.next_time - now, now - self._waited_since
        if self._wait == math.inf or (admission.is_requested_by_host and remaining <= _SHORT_ASKED):
            return False
        if admission.is_requested_by_host and remaining > _LONGEST_ASKED:
            return True
        is_tested = admission.tested_at is not None and now - admission.tested_at < _LONGEST_TEST
        is_nearly_over = self._wait > 0 and (is_tested or remaining <= host_state.FIRST_PAUSE)
        return waited + remaining > self._wait and not is_nearly_over

    def _end_waiting(self, error: Exception) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(error)

    def _report_no_slot(self) -> None:
        now = self._clock()
        self._slotless_since = self._slotless_since or now
        if not self._in_flight and now - self._slotless_since >= _WARN_AFTER:
            text = (
                f"other processes use all requests that {self._host} may get at a time ({self._limits.concurrency}): "
                "this process waits until one of them ends"
            )
            progress.report(progress.WAITING, 1, None, text)

    def _open_slots(self) -> Slots:
        if self._slots is None:
            assert self._path is not None
            folder = self._path.with_suffix(".slots") / self._host.replace("/", "_")
            with naming(self._path):
                self._slots = Slots(folder, self._limits.concurrency)
        return self._slots

    async def _change(self, change: Callable[[HostState], tuple[HostState, T]]) -> T:
        """Changes the state of the host, after the answers that are not in it yet."""
        count, self._answers, last_sent = self._answers, 0, self._last_sent

        def change_all(state: HostState) -> tuple[HostState, T]:
            return change(state.answered(self._clock(), last_sent, count) if count else state)

        if self._path is None:
            self._state, value = change_all(self._state)
            is_asked_to_wait = self._clock() < self._state.asked_until
            self._is_free = self._limits.rate is None and self._state.is_calm and not is_asked_to_wait
        else:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="cc-pipeline-budget")
            loop = asyncio.get_running_loop()
            self._state, value = await loop.run_in_executor(self._thread, self._change_file, change_all)
        if self._waited_since and not self._state.is_refusing and self._clock() >= self._state.asked_until:
            self._waited_since = 0.0
            progress.end_wait()
        return value

    def _change_file(self, change: Callable[[HostState], tuple[HostState, T]]) -> tuple[HostState, T]:
        if self._file is None:
            assert self._path is not None
            self._file = HostFile(self._path, self._host, self._limits)
        return self._file.change(change)


def _moment(seconds: float, pattern: str) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime(f"{pattern} UTC")
