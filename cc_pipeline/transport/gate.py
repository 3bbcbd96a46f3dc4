"""What every request passes before it is sent: how many at once, and whether the budget allows it now."""

from __future__ import annotations

import asyncio
from typing import Protocol

from cc_pipeline.transport.faults import Finding


class Gate(Protocol):
    """``enter`` returns when a request may be sent (raises ``GateClosed`` when none may be for long)."""

    async def enter(self) -> None: ...

    def leave(self) -> None: ...

    def succeeded(self) -> None: ...

    def failed(self, finding: Finding) -> None: ...

    async def close(self) -> None: ...


class GateClosed(Exception):
    """The breaker is open: ``detail`` says why and until when."""


class OpenGate:
    """Only the number of requests at once is bounded."""

    def __init__(self, concurrency: int) -> None:
        self._free = asyncio.Semaphore(concurrency)

    async def enter(self) -> None:
        await self._free.acquire()

    def leave(self) -> None:
        self._free.release()

    def succeeded(self) -> None:
        """Nothing to learn from it."""

    def failed(self, finding: Finding) -> None:
        """Nothing to learn from it."""

    async def close(self) -> None:
        """Nothing is kept."""
