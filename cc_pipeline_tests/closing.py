"""Workspaces that a test opened and does not close itself: ended after it, by the fixture in ``conftest``."""

from __future__ import annotations

import weakref
from typing import Protocol, TypeVar


class Closeable(Protocol):
    """What can be closed and used again."""

    def close(self) -> None:
        """Ends its connections."""


T = TypeVar("T", bound=Closeable)
#: By the test that runs, and by those before it where something still holds them, as a fixture of a module does.
_OPENED: list[Closeable] = []
_OLDER: list[weakref.ref[Closeable]] = []


def closed_later(opened: T) -> T:
    """``opened``, closed when the test is over; one that lives longer opens its connections again."""
    _OPENED.append(opened)
    return opened


def close_all() -> None:
    """Ends the connections of everything that is to be closed later."""
    alive = [opened for reference in _OLDER if (opened := reference()) is not None] + _OPENED
    for opened in alive:
        opened.close()
    _OPENED.clear()
    _OLDER[:] = map(weakref.ref, alive)
