"""What places turned out not to have: single objects, and whole branches of keys, such as an old crawl."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Final, TypeVar

T = TypeVar("T")

#: So many objects of a branch were looked for and not found, and none was, before it counts as lacking.
_ENOUGH: Final = 3
#: Objects and branches that are remembered, each; the oldest goes first.
_MOST: Final = 20_000
#: Up to the first part of a key that has a digit, which is what numbers and dates crawls in every layout there was.
_BRANCH: Final = re.compile(r"(?:[^/0-9]*/)*[^/]*/?")


def branch_of(key: str) -> str:
    """The branch that ``key`` is in: ``crawl-data/CC-MAIN-2013-20/`` and the like."""
    found = _BRANCH.match(key)
    return found.group() if found is not None else key


class Absences:
    """What one place lacks, as far as it was asked in this run."""

    def __init__(self) -> None:
        self._keys: OrderedDict[str, None] = OrderedDict()
        # ``None``: the place has something of the branch
        self._branches: OrderedDict[str, set[str] | None] = OrderedDict()

    def lacks(self, key: str) -> bool:
        """Whether the place said that it has no such object."""
        return key in self._keys

    def lacks_branch(self, key: str) -> bool:
        """Whether the place has nothing of the branch, as far as it was asked."""
        missed = self._branches.get(branch_of(key))
        return missed is not None and len(missed) >= _ENOUGH

    def missed(self, key: str) -> None:
        """The place says that there is no such object."""
        _put(self._keys, key, None)
        branch = branch_of(key)
        missed = self._branches.get(branch, set())
        if missed is not None and len(missed) < _ENOUGH:
            missed.add(key)
        _put(self._branches, branch, missed)

    def found(self, key: str) -> None:
        """The place has the object."""
        self._keys.pop(key, None)
        branch = branch_of(key)
        if self._branches.get(branch, _NOTHING) is not None:
            _put(self._branches, branch, None)


_NOTHING: Final[set[str]] = set()


def _put(known: OrderedDict[str, T], key: str, value: T) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > _MOST:
        known.popitem(last=False)
