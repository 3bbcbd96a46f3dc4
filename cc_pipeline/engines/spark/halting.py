"""When one worker's circuit breaker opens, all stop asking: a note in the lake says so.

The note is ``records/<crawl>/leases/<commit>.stopped``, beside the lease of the fetch. Each worker looks for it before
its first request and some times a minute. A worker that stops gives what it has; what was not asked for is unsettled,
as with any breaker, so the ledger balances and the next run asks for it. No task is killed: a cancelled job would
lose what its tasks have fetched.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from cc_pipeline.errors import CcPipelineError
from cc_pipeline.records.leases import stop_note
from cc_pipeline.records.storage import RecordStorage

#: Seconds between two looks: while one goes on, at most as many requests as the worker's rate has in that time.
_EVERY: Final = 10.0


class Halting:
    """Whether the fetch ``commit`` of a crawl has stopped; asked before each range (``records.asking.run.Halt``)."""

    def __init__(
        self, storage: RecordStorage, crawl: str, commit: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._storage = storage
        self._key = stop_note(storage, crawl, commit)
        self._clock = clock
        self._next = float("-inf")
        self._told = False
        self.stopped = False

    def __call__(self, is_refused: bool) -> bool:
        # a refusal that is new here is told at once
        due = self._clock() >= self._next or (is_refused and not self.stopped)
        if due and not self._told and (is_refused or not self.stopped):
            self._next = self._clock() + _EVERY
            self.stopped = self.stopped or is_refused
            # a place that does not answer now is asked again later
            with suppress(CcPipelineError):
                if is_refused:
                    self._storage.transport.put(self._key, b"{}")
                    self._told = True
                else:
                    self.stopped = self._told = self._storage.transport.exists(self._key)
        return self.stopped
