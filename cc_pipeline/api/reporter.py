"""The receiver of messages and questions during work: a person at a terminal for the command line, the output of a cell
in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from cc_pipeline.terminal import escape_controls


class Reporter(Protocol):
    """Receives messages about the work. Lines are whole sentences without an end of line."""

    def note(self, text: str) -> None:
        """Shows a warning that a person should read."""

    def notice(self, text: str) -> None:
        """Shows what was done and what it cost."""

    def answer(self, text: str) -> None:
        """Shows a line of the requested result."""

    def detail(self, text: str) -> None:
        """Shows a line that a summary at the end replaces."""

    def agrees(self, question: str) -> bool:
        """Whether somebody agrees; ``False`` if nobody can be asked. A person who refuses ends the work."""

    def bars(self) -> AbstractContextManager[None]:
        """Shows progress while the block runs."""


class StderrReporter:
    """Prints lines on standard error and asks nobody: the default in Python. ``quiet`` prints notes only."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet

    def note(self, text: str) -> None:
        """Prints the text always."""
        print(f"note: {escape_controls(text)}", file=sys.stderr)  # noqa: T201  # a cell shows it

    def notice(self, text: str) -> None:
        """Prints the text unless ``quiet``."""
        if not self._quiet:
            print(escape_controls(text), file=sys.stderr)  # noqa: T201

    def answer(self, text: str) -> None:
        """Prints the text unless ``quiet``."""
        self.notice(text)

    def detail(self, text: str) -> None:
        """Prints nothing."""

    def agrees(self, question: str) -> bool:
        """Returns ``False``."""
        del question
        return False

    def bars(self) -> AbstractContextManager[None]:
        """Shows nothing."""
        return nullcontext()


_reporters: list[Reporter] = [StderrReporter()]


def get_reporter() -> Reporter:
    """Returns the receiver of messages of the current work, for all threads."""
    return _reporters[-1]


@contextmanager
def use_reporter(reporter: Reporter) -> Iterator[None]:
    """Makes ``reporter`` receive the messages of the block."""
    _reporters.append(reporter)
    try:
        yield
    finally:
        _reporters.remove(reporter)
