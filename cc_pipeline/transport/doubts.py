"""What is remembered of the places of a transport, as far as they were asked in this process: what one lacks, single
objects and whole branches of keys, such as an old crawl; and what several gave of an object, its length there, whose
bytes turned out wrong, and who fails at it."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

T = TypeVar("T")

#: Objects and branches that are remembered, each; the oldest goes first.
_MOST: Final = 20_000
#: Failures of a place at one object, without an answer between them, after which the others are asked first.
_FAILS: Final = 3
#: Sentences about objects whose lengths differ.
_SENTENCES: Final = 20
#: So many objects of a branch were looked for and not found, and none was, before it counts as lacking.
_ENOUGH: Final = 3
#: Up to the first part of a key that has a digit, which is what numbers and dates crawls in every layout there was.
_BRANCH: Final = re.compile(r"(?:[^/0-9]*/)*[^/]*/?")


@dataclass(slots=True)
class _Given:
    """An object that bytes came of: its length at the ``first`` place that said it, and all places that gave some since
    the last doubt."""

    total: int | None
    first: str
    places: set[str]


@dataclass(slots=True)
class _Doubted:
    """Of one object: places that gave wrong bytes for certain, and places that were to give all of it alone, because
    several had given some and nobody knew whose were wrong. ``avoid`` are asked last."""

    bad: set[str] = field(default_factory=set)
    alone: set[str] = field(default_factory=set)
    avoid: frozenset[str] = frozenset()


class Doubts:
    """``sources`` are the places in the order of preference. :meth:`doubt` is called from any thread, the others in
    the transport's loop."""

    def __init__(self, sources: Sequence[str], differing: dict[str, str]) -> None:
        """``differing`` is told of objects that have another length elsewhere, each in a sentence."""
        self._sources = tuple(sources)
        self._differing = differing
        self._given: OrderedDict[str, _Given] = OrderedDict()
        self._doubted: OrderedDict[str, _Doubted] = OrderedDict()
        self._failures: OrderedDict[str, Counter[str]] = OrderedDict()

    def failed(self, key: str, source: str) -> None:
        """``source`` gave no answer about an object. (One that is out of reach was not asked for it.)"""
        self._failures.setdefault(key, Counter())[source] += 1
        if len(self._failures) > _MOST:
            self._failures.popitem(last=False)

    def answered(self, key: str, source: str) -> None:
        """``source`` said something about an object."""
        if key in self._failures:
            self._failures[key].pop(source, None)

    def failing(self, key: str) -> frozenset[str]:
        """Places that fail at an object again and again."""
        failures = self._failures.get(key) if self._failures else None
        return frozenset() if not failures else frozenset(place for place, n in failures.items() if n >= _FAILS)

    def gave(self, key: str, total: int | None, source: str) -> None:
        """``source`` gave bytes of an object, which has ``total`` there (``None``: it does not say)."""
        given = self._given.get(key)
        if given is None:
            self._given[key] = _Given(total, source, {source})
            if len(self._given) > _MOST:
                self._given.popitem(last=False)
            return
        given.places.add(source)
        if given.total is None:
            given.total, given.first = total, source
        differs = total not in (None, given.total)
        if differs and given.first != source and len(self._differing) < _SENTENCES:
            self._differing[key] = f"{key} has {given.total:,} bytes at {given.first}, and {total:,} at {source}"

    def avoided(self, key: str) -> frozenset[str]:
        """Places that are asked for an object when no other gives it."""
        doubted = self._doubted.get(key) if self._doubted else None
        return frozenset() if doubted is None else doubted.avoid

    def doubt(self, key: str) -> bool:
        """What came of an object since it was doubted last is not what it should be. Whether it is worth asking again:
        others than those who gave it are asked first then.

        One place that gave all of it has it wrong. Where several gave some, each of them may be right: they are asked
        for all of it one after the other.
        """
        given = self._given.get(key)
        places, doubted = set(), self._doubted.setdefault(key, _Doubted())
        if given is not None:
            places, given.places = given.places, set()
        if len(self._doubted) > _MOST:
            self._doubted.popitem(last=False)
        if places and places <= doubted.bad:
            return False
        if len(places) == 1:
            doubted.bad |= places
            doubted.avoid = frozenset(doubted.bad)
            return len(doubted.bad) < len(self._sources)
        left = [source for source in self._sources if source not in doubted.bad | doubted.alone]
        if not left:
            return False
        chosen = next((source for source in left if source not in places), left[0])
        doubted.alone.add(chosen)
        doubted.avoid = frozenset(self._sources) - {chosen}
        return True


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
