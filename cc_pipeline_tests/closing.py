"""Workspaces that a test opened and does not close itself: ended after it, by the fixture in ``conftest``."""

from __future__ import annotations

from typing import Protocol, TypeVar


class Closeable(Protocol):
    """What can be closed and used again."""

    def close(self) -> None:
        """Ends its connections."""


T = TypeVar("T", bound=Closeable)
_OPENED: list[Closeable] = []


def closed_later(opened: T) -> T:
    """``opened``, closed when the test is over; one that lives longer opens its connections again."""
    _OPENED.append(opened)
    return opened


def close_all() -> None:
    """Ends the connections of everything that is to be closed later."""
    for opened in _OPENED:
        opened.close()
