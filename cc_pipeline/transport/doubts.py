"""What several places gave of each object: its length there, whose bytes turned out wrong, and who fails at it."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

#: Objects that are remembered; the oldest goes first.
_MOST: Final = 20_000
#: Failures of a place at one object, without an answer between them, after which the others are asked first.
_FAILS: Final = 3
#: Sentences about objects whose lengths differ.
_SENTENCES: Final = 20


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
