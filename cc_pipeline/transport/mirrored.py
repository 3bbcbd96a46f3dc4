"""Several places with the same objects, asked as if they were one.

Each request goes to the first place in the order of preference that may have an answer, or, where requests are shared,
to the one that has the fewest under way for what it takes; what one does not give, the next is asked for. What is known
of a place decides whether it is asked at all: its breaker and its outages (shared by all processes, ``outage.py``), and
what it turned out to lack.

Nothing that one place says settles anything for the others: an object is not there when every place says so, and
whatever was not answered everywhere is unknown.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from cc_pipeline.stores.answer import Answer
from cc_pipeline.transport.faults import ENVIRONMENT_KINDS, FaultKind, Finding, Verified
from cc_pipeline.transport.outage import ANSWERS, TROUBLE
from cc_pipeline.transport.place import Asked, Place
from cc_pipeline.transport.ranges import ByteRange, RetryPolicy, TransportStats
from cc_pipeline.transport.retrying import NO_BODY

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

_NOTHING: Final[set[str]] = set()

#: Kinds that say that the bytes are not to be had here, for certain.
_NOT_HERE: Final = (FaultKind.NOT_FOUND, FaultKind.RANGE_NOT_SATISFIABLE)

#: Seconds by which a host that was left alone is asked later than it may be.
_LATER: Final = 0.01
_MUCH_LATER: Final = 0.25

AskOne = Callable[[Place], Awaitable[Asked]]


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
        object_sources = self._given.get(key)
        if object_sources is None:
            self._given[key] = _Given(total, source, {source})
            if len(self._given) > _MOST:
                self._given.popitem(last=False)
            return
        object_sources.places.add(source)
        if object_sources.total is None:
            object_sources.total, object_sources.first = total, source
        differs = total not in (None, object_sources.total)
        if differs and object_sources.first != source and len(self._differing) < _SENTENCES:
            self._differing[key] = (
                f"{key} has {object_sources.total:,} bytes at {object_sources.first}, and {total:,} at {source}"
            )

    def avoided(self, key: str) -> frozenset[str]:
        """Places that are asked for an object when no other gives it."""
        suspect = self._doubted.get(key) if self._doubted else None
        return frozenset() if suspect is None else suspect.avoid

    def doubt(self, key: str) -> bool:
        """What came of an object since it was doubted last is not what it should be. Whether it is worth asking again:
        others than those who gave it are asked first then.

        One place that gave all of it has it wrong. Where several gave some, each of them may be right: they are asked
        for all of it one after the other.
        """
        object_sources = self._given.get(key)
        places, suspect = set(), self._doubted.setdefault(key, _Doubted())
        if object_sources is not None:
            places, object_sources.places = object_sources.places, set()
        if len(self._doubted) > _MOST:
            self._doubted.popitem(last=False)
        if places and places <= suspect.bad:
            return False
        if len(places) == 1:
            suspect.bad |= places
            suspect.avoid = frozenset(suspect.bad)
            return len(suspect.bad) < len(self._sources)
        untried = [source for source in self._sources if source not in suspect.bad | suspect.alone]
        if not untried:
            return False
        next_source = next((source for source in untried if source not in places), untried[0])
        suspect.alone.add(next_source)
        suspect.avoid = frozenset(self._sources) - {next_source}
        return True


def branch_of(key: str) -> str:
    """The branch that ``key`` is in: ``crawl-data/CC-MAIN-2013-20/`` and the like."""
    match = _BRANCH.match(key)
    return match.group() if match is not None else key


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


def _put(cache: OrderedDict[str, T], key: str, value: T) -> None:
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > _MOST:
        cache.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Answered:
    """The verdict of all places together.

    ``place`` gave the answer (the first one, where none did). ``attempts`` are the requests to the place that was asked
    most. ``unknown``: a place that would have been asked before it gave no answer."""

    found: Verified | Finding
    answer: Answer
    attempts: int
    place: Place
    unknown: bool = False


@dataclass(slots=True)
class _Question:
    """One request while places are asked. ``findings`` and ``attempts`` are by the places' numbers. ``failing``
    places are asked last, because they failed at the same object before."""

    findings: dict[int, Finding] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    waited: float = 0.0
    failing: frozenset[str] = frozenset()

    @property
    def most(self) -> int:
        """Requests to the place that was asked most."""
        return max(self.attempts.values(), default=0)


class Mirrored:
    """``places`` in the order of preference, at least one. It runs inside the transport's loop."""

    def __init__(
        self, places: Sequence[Place], retry: RetryPolicy, stats: TransportStats, *, shares: bool = False
    ) -> None:
        """``shares``: requests are shared among the places by what each gives. One that is slow, or is kept waiting by
        its rate, has more of them under way, so that the next goes to another."""
        self.places = tuple(places)
        self._shares = shares
        self._under_way = [0] * len(self.places)
        self._retry = retry
        self._stats = stats
        self._lacking = [Absences() for _ in places]
        self._doubts = Doubts([place.source for place in places], stats.differing)

    async def range(self, byte_range: ByteRange) -> Answered:
        """The bytes of a range."""
        answer = await self._ask(
            byte_range.key, lambda place: place.range(byte_range, 1), byte_range.tries, byte_range.avoid
        )
        if isinstance(answer.found, Verified):
            self._doubts.gave(byte_range.key, answer.found.total, answer.place.source)
        return answer

    def doubt(self, key: str) -> bool:
        """As ``Doubts.doubt``. Called from any thread."""
        return self._doubts.doubt(key)

    async def whole(self, key: str, limit: int) -> Answered:
        """A whole object of at most ``limit`` bytes."""
        answer = await self._ask(key, lambda place: place.whole(key, limit, 1))
        if isinstance(answer.found, Verified):
            self._doubts.gave(key, answer.found.total, answer.place.source)
        return answer

    async def head(self, key: str) -> Answered:
        """What the first place that has the object says of it."""
        return await self._ask(key, lambda place: place.head(key, 1))

    async def close(self) -> None:
        """Ends the connections to all places."""
        for place in self.places:
            await place.close()

    async def _ask(
        self, key: str, send_request: AskOne, tries: int | None = None, avoid: frozenset[str] = frozenset()
    ) -> Answered:
        question = _Question(failing=self._doubts.failing(key))
        for numbers in self._in_turn(key, avoid | self._doubts.avoided(key), question.failing):
            answered = await self._ask_all(numbers, key, send_request, question, tries)
            if answered is not None:
                return answered
        # these said before that they do not have it
        unasked = [number for number in range(len(self.places)) if number not in question.findings]
        if all(finding.kind is FaultKind.NOT_FOUND for finding in question.findings.values()):
            # that it is nowhere is believed only of an answer to this very question
            answered = await self._ask_all(unasked, key, send_request, question, tries)
            if answered is not None:
                return answered
        else:
            for number in unasked:
                question.findings[number] = Finding(FaultKind.NOT_FOUND, "said before")
        return Answered(self._verdict(question), NO_BODY, question.most, self.places[0])

    def _in_turn(self, key: str, avoid: frozenset[str], failing: frozenset[str]) -> list[list[int]]:
        """The numbers of places that may have ``key``: those that seem to lack all that is like it after the others,
        then those that keep ``failing`` at it, and last those to ``avoid``, whose bytes are not believed before
        everybody else was asked."""
        first: list[int] = []
        last: list[int] = []
        tired: list[int] = []
        avoided: list[int] = []
        for number, (place, not_found_cache) in enumerate(zip(self.places, self._lacking, strict=True)):
            if not_found_cache.lacks(key):
                continue
            group = last if not_found_cache.lacks_branch(key) else first
            group = avoided if place.source in avoid else tired if place.source in failing else group
            group.append(number)
        if self._shares:
            first.sort(key=self._load)
        return [group for group in (first, last, tired, avoided) if group]

    def _load(self, number: int) -> float:
        """The share of a place's requests at the same time that are under way, once there is one more."""
        return (self._under_way[number] + 1) / self.places[number].limits.concurrency

    async def _ask_all(
        self, numbers: Sequence[int], key: str, send_request: AskOne, question: _Question, tries: int | None
    ) -> Answered | None:
        """The first answer that is what was asked for. Each place is asked once a round, as often as makes sense."""
        last_wait = 0.0
        while True:
            waits = []
            for number in numbers:
                if number in question.done:
                    continue
                self._under_way[number] += 1
                try:
                    verdict, answer, sent = await send_request(self.places[number])
                finally:
                    self._under_way[number] -= 1
                question.attempts[number] = question.attempts.get(number, 0) + sent
                if isinstance(verdict, Verified):
                    return self._given(number, key, verdict, answer, question)
                if verdict.kind is FaultKind.NOT_FOUND:
                    self._lacking[number].missed(key)
                if verdict.kind in TROUBLE:
                    self._doubts.failed(key, self.places[number].source)
                elif verdict.kind in ANSWERS:
                    self._doubts.answered(key, self.places[number].source)
                if verdict.kind is not FaultKind.BREAKER_OPEN or number not in question.findings:
                    question.findings[number] = verdict
                wait = self._next_wait(question, number, verdict, last_wait, tries)
                if wait is None:
                    question.done.add(number)
                else:
                    waits.append(wait)
            if not waits:
                return None
            last_wait = min(waits)
            question.waited += last_wait
            await asyncio.sleep(last_wait)

    def _given(self, number: int, key: str, verdict: Verified, answer: Answer, question: _Question) -> Answered:
        place = self.places[number]
        question.findings.pop(number, None)
        self._lacking[number].found(key)
        self._stats.served[place.source] += 1
        self._doubts.answered(key, place.source)
        is_inconclusive = any(finding.kind not in _NOT_HERE for finding in question.findings.values())
        is_inconclusive = is_inconclusive or bool(question.failing - {place.source})
        return Answered(verdict, answer, question.most, place, is_inconclusive)

    def _next_wait(
        self, question: _Question, number: int, finding: Finding, last_wait: float, tries: int | None
    ) -> float | None:
        """Seconds until a place may be asked again, ``None`` when it is not for this question."""
        if finding.kind is FaultKind.BREAKER_OPEN:
            # it was not asked; a short outage may be that of our own network
            wait = finding.retry_after or 0.0
            # whose object fails anyway finds nothing out about the host: let another ask first
            wait += _MUCH_LATER if question.failing else _LATER
            return wait if question.waited + wait <= self._retry.longest else None
        if question.attempts[number] == tries:
            return None
        return self._retry.next_wait(finding, question.attempts[number], last_wait)

    def _verdict(self, question: _Question) -> Finding:
        """What all places together say. Only what every one of them says is certain."""
        findings = [question.findings[number] for number in sorted(question.findings)]
        detail = "; ".join(
            f"{self.places[number].host}: {finding.kind.value} ({finding.detail})"
            for number, finding in sorted(question.findings.items())
        )
        kinds = [finding.kind for finding in findings]
        for kind in (FaultKind.NOT_FOUND, FaultKind.BREAKER_OPEN):
            if all(other_kind is kind for other_kind in kinds):
                return Finding(kind, detail)
        if all(kind in _NOT_HERE for kind in kinds):
            return Finding(FaultKind.RANGE_NOT_SATISFIABLE, detail)
        uncertain_kinds = [kind for kind in kinds if kind not in _NOT_HERE and kind is not FaultKind.BREAKER_OPEN]
        environment = [kind for kind in uncertain_kinds if kind in ENVIRONMENT_KINDS]
        # a place that is left alone for now is as good as out of reach, while others answer
        return Finding((environment or uncertain_kinds or [FaultKind.UNREACHABLE])[0], detail)
