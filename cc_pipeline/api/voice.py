"""What is told while work goes on, and who is asked: at the command line a person at a terminal, in a notebook the
output of its cell."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from cc_pipeline.api.facade import in_python
from cc_pipeline.terminal import escape_controls


class Voice(Protocol):
    """Who hears of the work. Lines are whole sentences without an end of line."""

    def note(self, text: str) -> None:
        """Something that should not be overlooked."""

    def notice(self, text: str) -> None:
        """What was done, and what it cost."""

    def answer(self, text: str) -> None:
        """A line that belongs to what was asked for."""

    def detail(self, text: str) -> None:
        """What a summary says later in fewer lines."""

    def agrees(self, question: str) -> bool:
        """Whether somebody agrees; ``False`` where nobody can be asked. One who is asked and refuses ends the work."""

    def bars(self) -> AbstractContextManager[None]:
        """Shows progress while the block runs."""


class Plain:
    """Lines on standard error, and nobody to ask: what Python has without the command line. ``quiet`` keeps notes
    alone."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet

    def note(self, text: str) -> None:
        """Always told."""
        print(f"note: {escape_controls(in_python(text))}", file=sys.stderr)  # noqa: T201  # a cell shows it

    def notice(self, text: str) -> None:
        """Told, unless quiet."""
        if not self._quiet:
            print(escape_controls(in_python(text)), file=sys.stderr)  # noqa: T201

    def answer(self, text: str) -> None:
        """Told, unless quiet."""
        self.notice(text)

    def detail(self, text: str) -> None:
        """Not told."""

    def agrees(self, question: str) -> bool:
        """Nobody does."""
        del question
        return False

    def bars(self) -> AbstractContextManager[None]:
        """None."""
        return nullcontext()


_voices: list[Voice] = [Plain()]


def voice() -> Voice:
    """Who hears of the work that goes on now, in all threads."""
    return _voices[-1]


@contextmanager
def told_to(reporter: Voice) -> Iterator[None]:
    """Has ``reporter`` hear of what the block does."""
    _voices.append(reporter)
    try:
        yield
    finally:
        _voices.remove(reporter)
