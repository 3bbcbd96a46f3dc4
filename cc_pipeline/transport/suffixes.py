"""How the end of an object is read at a host: by a suffix range, or, where that is not understood, by its size.

Not every server answers ``bytes=-65536``: some send the whole object, the first bytes, or a refusal. Which of both a
host needs is found out by the first request for an end, which goes alone, and is kept in the budget's file for a day.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from cc_pipeline.stores.answer import Answer
from cc_pipeline.transport.budget import open_file
from cc_pipeline.transport.faults import ENVIRONMENT_KINDS, FaultKind, Finding, Verified

#: A verdict, the answer it is about, and how many requests it took.
Asked = tuple[Verified | Finding, Answer, int]
Way = Callable[[], Awaitable[Asked]]

#: What servers say to a kind of range that they do not know.
_REFUSALS: Final = frozenset(
    {FaultKind.WHOLE_OBJECT, FaultKind.WRONG_RANGE, FaultKind.RANGE_NOT_SATISFIABLE, FaultKind.CLIENT_ERROR}
)
_NOT_IMPLEMENTED: Final = 501
#: Of two refusals, the second one is told where it is one of these: it says what is wrong whatever was asked.
_PLAINER: Final = ENVIRONMENT_KINDS | {FaultKind.NOT_FOUND, FaultKind.WHOLE_OBJECT}
#: Seconds for which it is believed that a host has no suffix ranges; then one request asks again.
_HOLDS: Final = 86_400.0
#: Seconds for which others wait for what the first request finds out.
_PATIENCE: Final = 10.0


class Suffixes:
    """What is known of one host; ``memory`` is the budget's file. It belongs to one event loop at a time."""

    def __init__(self, host: str, memory: Path | None) -> None:
        self._host = host
        self._memory = memory
        self._until: float | None = None
        self._answers = False
        self._first: asyncio.Future[None] | None = None

    def judged(self, found: Verified | Finding, answer: Answer) -> Verified | Finding:
        """``found`` of a suffix range. Where the host has not answered one yet, a refusal is not asked for again."""
        if isinstance(found, Finding) and _is_refusal(found, answer) and not self._answers:
            return replace(found, final=True)
        return found

    async def read(self, by_suffix: Way, by_size: Way) -> Asked:
        """The end of an object, by the way that the host is known to understand, else by the other one."""
        if self._until is None:
            self._until = await asyncio.to_thread(self._remembered)
        if not self._answers and not self._has_none:
            if self._first is None:
                self._first = asyncio.get_running_loop().create_future()
                try:
                    return await self._ask(by_suffix, by_size)
                finally:
                    self._first.set_result(None)
            if not self._first.done():
                await asyncio.wait([self._first], timeout=_PATIENCE)
        return await self._ask(by_suffix, by_size)

    @property
    def _has_none(self) -> bool:
        return self._until is not None and time.time() < self._until

    async def _ask(self, by_suffix: Way, by_size: Way) -> Asked:
        by_size_first = self._has_none
        found, answer, sent = await (by_size if by_size_first else by_suffix)()
        if isinstance(found, Verified):
            self._answers = self._answers or not by_size_first
            return found, answer, sent
        if not _is_refusal(found, answer):
            return found, answer, sent
        other, its_answer, more = await (by_suffix if by_size_first else by_size)()
        if isinstance(other, Verified):
            # one object that fails at a host that answers for others says nothing about the host
            if by_size_first or not self._answers:
                await self._learn(answers=by_size_first)
            return other, its_answer, sent + more
        if other.kind in _PLAINER:
            return other, its_answer, sent + more
        return found, answer, sent + more

    async def _learn(self, *, answers: bool) -> None:
        self._answers, self._until = answers, 0.0 if answers else time.time() + _HOLDS
        await asyncio.to_thread(self._remember)

    def _remembered(self) -> float:
        """Until when the host is known to have none (seconds since the epoch); 0 where nothing is known."""
        if self._memory is None or not self._memory.exists():
            return 0.0
        # what cannot be read, or was written before the clock was set back, is found out again
        with (
            suppress(sqlite3.Error),
            closing(sqlite3.connect(f"{self._memory.resolve().as_uri()}?mode=ro", uri=True)) as db,
        ):
            row = db.execute("select until from no_suffixes where host = ?", (self._host,)).fetchone()
            return row[0] if row is not None and row[0] <= time.time() + _HOLDS else 0.0
        return 0.0

    def _remember(self) -> None:
        if self._memory is None:
            return
        with suppress(sqlite3.Error, OSError), closing(open_file(self._memory)) as db:
            db.execute("insert or replace into no_suffixes values (?, ?)", (self._host, self._until))


def _is_refusal(found: Finding, answer: Answer) -> bool:
    return found.kind in _REFUSALS or answer.status == _NOT_IMPLEMENTED
