"""Several places with the same objects, asked as if they were one.

Each request goes to the first place in the order of preference that may have an answer; what one does not give, the
next is asked for. What is known of a place decides whether it is asked at all: its breaker and its outages (shared by
all processes, ``outage.py``), and what it turned out to lack (``doubts.py``).

Nothing that one place says settles anything for the others: an object is not there when every place says so, and
whatever was not answered everywhere is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from cc_pipeline.stores.answer import Answer
from cc_pipeline.transport.asking import NO_BODY
from cc_pipeline.transport.doubts import Absences, Doubts
from cc_pipeline.transport.faults import ENVIRONMENT_KINDS, FaultKind, Finding, Verified
from cc_pipeline.transport.outage import ANSWERS, TROUBLE
from cc_pipeline.transport.place import Place
from cc_pipeline.transport.ranges import ByteRange, RetryPolicy, TransportStats
from cc_pipeline.transport.suffixes import Asked

#: Kinds that say that the bytes are not to be had here, for certain.
_NOT_HERE: Final = (FaultKind.NOT_FOUND, FaultKind.RANGE_NOT_SATISFIABLE)

#: Seconds by which a host that was left alone is asked later than it may be.
_LATER: Final = 0.01
_MUCH_LATER: Final = 0.25

AskOne = Callable[[Place], Awaitable[Asked]]


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

    def __init__(self, places: Sequence[Place], retry: RetryPolicy, stats: TransportStats) -> None:
        self.places = tuple(places)
        self._retry = retry
        self._stats = stats
        self._lacking = [Absences() for _ in places]
        self._doubts = Doubts([place.source for place in places], stats.differing)

    async def range(self, asked: ByteRange) -> Answered:
        """The bytes of a range."""
        got = await self._ask(asked.key, lambda place: place.range(asked, 1), asked.tries, asked.avoid)
        if isinstance(got.found, Verified):
            self._doubts.gave(asked.key, got.found.total, got.place.source)
        return got

    def doubt(self, key: str) -> bool:
        """As ``Doubts.doubt``. Called from any thread."""
        return self._doubts.doubt(key)

    async def whole(self, key: str, limit: int) -> Answered:
        """A whole object of at most ``limit`` bytes."""
        got = await self._ask(key, lambda place: place.whole(key, limit, 1))
        if isinstance(got.found, Verified):
            self._doubts.gave(key, got.found.total, got.place.source)
        return got

    async def head(self, key: str, tries: int | None = None) -> Answered:
        """What the first place that has the object says of it."""
        return await self._ask(key, lambda place: place.head(key, 1), tries)

    async def close(self) -> None:
        """Ends the connections to all places."""
        for place in self.places:
            await place.close()

    async def _ask(
        self, key: str, ask: AskOne, tries: int | None = None, avoid: frozenset[str] = frozenset()
    ) -> Answered:
        question = _Question(failing=self._doubts.failing(key))
        for numbers in self._in_turn(key, avoid | self._doubts.avoided(key), question.failing):
            answered = await self._ask_all(numbers, key, ask, question, tries)
            if answered is not None:
                return answered
        # these said before that they do not have it
        unasked = [number for number in range(len(self.places)) if number not in question.findings]
        if all(found.kind is FaultKind.NOT_FOUND for found in question.findings.values()):
            # that it is nowhere is believed only of an answer to this very question
            answered = await self._ask_all(unasked, key, ask, question, tries)
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
        for number, (place, lacking) in enumerate(zip(self.places, self._lacking, strict=True)):
            if lacking.lacks(key):
                continue
            group = last if lacking.lacks_branch(key) else first
            group = avoided if place.source in avoid else tired if place.source in failing else group
            group.append(number)
        return [group for group in (first, last, tired, avoided) if group]

    async def _ask_all(
        self, numbers: Sequence[int], key: str, ask: AskOne, question: _Question, tries: int | None
    ) -> Answered | None:
        """The first answer that is what was asked for. Each place is asked once a round, as often as makes sense."""
        last_wait = 0.0
        while True:
            waits = []
            for number in numbers:
                if number in question.done:
                    continue
                found, answer, sent = await ask(self.places[number])
                question.attempts[number] = question.attempts.get(number, 0) + sent
                if isinstance(found, Verified):
                    return self._given(number, key, found, answer, question)
                if found.kind is FaultKind.NOT_FOUND:
                    self._lacking[number].missed(key)
                if found.kind in TROUBLE:
                    self._doubts.failed(key, self.places[number].source)
                elif found.kind in ANSWERS:
                    self._doubts.answered(key, self.places[number].source)
                if found.kind is not FaultKind.BREAKER_OPEN or number not in question.findings:
                    question.findings[number] = found
                wait = self._next_wait(question, number, found, last_wait, tries)
                if wait is None:
                    question.done.add(number)
                else:
                    waits.append(wait)
            if not waits:
                return None
            last_wait = min(waits)
            question.waited += last_wait
            self._stats.retries += 1
            self._stats.retry_seconds += last_wait
            await asyncio.sleep(last_wait)

    def _given(self, number: int, key: str, found: Verified, answer: Answer, question: _Question) -> Answered:
        place = self.places[number]
        question.findings.pop(number, None)
        self._lacking[number].found(key)
        self._stats.served[place.source] += 1
        self._doubts.answered(key, place.source)
        unknown = any(other.kind not in _NOT_HERE for other in question.findings.values())
        unknown = unknown or bool(question.failing - {place.source})
        return Answered(found, answer, question.most, place, unknown)

    def _next_wait(
        self, question: _Question, number: int, found: Finding, last_wait: float, tries: int | None
    ) -> float | None:
        """Seconds until a place may be asked again, ``None`` when it is not for this question."""
        if found.kind is FaultKind.BREAKER_OPEN:
            # it was not asked; a short outage may be that of our own network
            wait = found.retry_after or 0.0
            # whose object fails anyway finds nothing out about the host: let another ask first
            wait += _MUCH_LATER if question.failing else _LATER
            return wait if question.waited + wait <= self._retry.longest else None
        if question.attempts[number] == tries:
            return None
        return self._retry.next_wait(found, question.attempts[number], last_wait)

    def _verdict(self, question: _Question) -> Finding:
        """What all places together say. Only what every one of them says is certain."""
        findings = [question.findings[number] for number in sorted(question.findings)]
        detail = "; ".join(
            f"{self.places[number].host}: {found.kind.value} ({found.detail})"
            for number, found in sorted(question.findings.items())
        )
        kinds = [found.kind for found in findings]
        for kind in (FaultKind.NOT_FOUND, FaultKind.BREAKER_OPEN):
            if all(one is kind for one in kinds):
                return Finding(kind, detail)
        if all(kind in _NOT_HERE for kind in kinds):
            return Finding(FaultKind.RANGE_NOT_SATISFIABLE, detail)
        unknown = [kind for kind in kinds if kind not in _NOT_HERE and kind is not FaultKind.BREAKER_OPEN]
        environment = [kind for kind in unknown if kind in ENVIRONMENT_KINDS]
        # a place that is left alone for now is as good as out of reach, while others answer
        return Finding((environment or unknown or [FaultKind.UNREACHABLE])[0], detail)
