"""A link of limited bandwidth that all connections of a fault server share."""

from __future__ import annotations

import asyncio
from collections import deque

#: Bytes of one answer that go out before the next answer has its turn: 0.26 ms of a gigabit link.
_TURN = 32 << 10


class Link:
    """Sends what connections answer at ``bits_per_second`` altogether, in turns; requests are not held up.

    Lateness of timers is made up for, so that the rate holds over all that is sent without a pause.
    """

    def __init__(self, bits_per_second: float) -> None:
        if bits_per_second <= 0:
            raise ValueError(f"a link of {bits_per_second} bits a second carries nothing")
        self._rate = bits_per_second / 8
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[asyncio.Transport, deque[memoryview]]] = deque()
        self._free = 0.0

    def send(self, connection: asyncio.Transport, data: bytes) -> None:
        """Sends ``data`` after what ``connection`` has waiting."""
        idle = not self._waiting
        for other, parts in self._waiting:
            if other is connection:
                parts.append(memoryview(data))
                return
        self._waiting.append((connection, deque([memoryview(data)])))
        if idle:
            self._free = max(self._free, self._loop.time())
            self._pump()

    def _pump(self) -> None:
        now = self._loop.time()
        while self._waiting:
            connection, parts = self._waiting[0]
            if connection.is_closing():
                self._waiting.popleft()
                continue
            turn = parts[0][:_TURN]
            through = self._free + len(turn) / self._rate
            if through > now:
                self._loop.call_at(through, self._pump)
                return
            self._free = through
            connection.write(turn)
            rest = parts.popleft()[len(turn) :]
            if rest:
                parts.appendleft(rest)
            self._waiting.popleft()
            if parts:
                self._waiting.append((connection, parts))
