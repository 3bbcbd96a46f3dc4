"""Ctrl-C and SIGTERM: one exception for both, and the number of the signal, even if other code handles signals.

Dagster replaces our handlers while a run executes, and does not tell which signal came. Therefore the interpreter also
writes the numbers to a pipe, which no handler can prevent.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
#: The exit status of a command that a signal ended is this plus the number of the signal, as in shells.
SIGNAL_STATUS_BASE: Final = 128
_READ_BYTES: Final = 64


class Interrupted(BaseException):
    """A signal asks this process to end. It is no ``Exception``, so that no handler of errors continues."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)


class _Pipe:
    """Collects the signals that came since it was opened."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        os.set_blocking(self.writing, False)
        self._numbers: list[int] = []

    def numbers(self) -> list[int]:
        with suppress(BlockingIOError):
            while block := os.read(self.reading, _READ_BYTES):
                self._numbers += [number for number in block if number in SIGNALS]
        return self._numbers

    def close(self) -> None:
        os.close(self.reading)
        os.close(self.writing)


_pipe: _Pipe | None = None


@contextmanager
def catch_signals() -> Iterator[None]:
    """Inside the block, the first SIGINT or SIGTERM raises ``Interrupted``, and the next one ends the process at once.

    Complete work is kept however a process ends, so nobody has to wait for a slow end. Does nothing outside of the main
    thread, where signals cannot be handled, and within another such block.
    """
    global _pipe  # noqa: PLW0603  # signals belong to the process
    if _pipe is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    _pipe = _Pipe()
    wakeup = signal.set_wakeup_fd(_pipe.writing, warn_on_full_buffer=False)
    earlier_handlers = {number: signal.signal(number, _handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in earlier_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        _pipe.close()
        _pipe = None


def received_signal() -> int | None:
    """Returns the first SIGINT or SIGTERM that came inside the block of :func:`catch_signals`; ``None`` if none did."""
    numbers = _pipe.numbers() if _pipe is not None else []
    return numbers[0] if numbers else None


def check() -> None:
    """Raises ``Interrupted`` if a signal came, even if other code has handled it."""
    number = received_signal()
    if number is not None:
        raise Interrupted(number)


def _handle(number: int, frame: FrameType | None) -> None:
    if _pipe is not None and len(_pipe.numbers()) > 1:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    raise Interrupted(number)
