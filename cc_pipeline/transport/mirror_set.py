"""Several places with the same objects, used as one source.

Each request goes to the first place in the order of preference that may have the object, or, if requests are shared, to
the place with the smallest load. If one place fails, the next is tried. A place is skipped while its breaker is open or
it has an outage (shared by all processes, ``outage.py``), and for objects that it does not have.

The answer of one place decides nothing for the others: an object is missing only if every place says so, and without
an answer from every place it is unknown.
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
from cc_pipeline.transport.mirror import Place, PlaceAnswer
from cc_pipeline.transport.outage import ANSWERS, TROUBLE
from cc_pipeline.transport.ranges import ByteRange, RetryPolicy, TransportStats
from cc_pipeline.transport.retrying import NO_BODY

T = TypeVar("T")

#: Objects and branches in each cache; the oldest is dropped first.
_MAX_REMEMBERED: Final = 20_000
#: Failures of a place at one object, without an answer between them, after which the others are tried first.
_FAILS: Final = 3
#: Sentences about objects whose lengths differ.
_SENTENCES: Final = 20
#: Objects of a branch that were not found, while none was found, before the branch counts as missing.
_BRANCH_MISSES: Final = 3
#: A key up to its first part with a digit: the number or date of a crawl in every layout so far.
_BRANCH: Final = re.compile(r"(?:[^/0-9]*/)*[^/]*/?")

_NOTHING: Final[set[str]] = set()

#: Kinds that say for certain that the place does not have the bytes.
_ABSENT_KINDS: Final = (FaultKind.NOT_FOUND, FaultKind.RANGE_NOT_SATISFIABLE)

#: Seconds by which a host with an open breaker is tried later than allowed.
_BREAKER_DELAY: Final = 0.01
_FAILING_OBJECT_DELAY: Final = 0.25

PlaceRequest = Callable[[Place], Awaitable[PlaceAnswer]]


@dataclass(slots=True)
class _ObjectSources:
    """An object that was read: its length at the ``first`` place that gave one, and all places that gave bytes since
    the last report of corruption."""

    total: int | None
    first: str
    places: set[str]


@dataclass(slots=True)
class _SuspectObject:
    """A corrupt object: ``bad`` places gave wrong bytes for certain. ``tried_alone`` places were tried for the whole
    object, because several had given parts of it and any of them could be wrong. ``avoid`` are tried last."""

    bad: set[str] = field(default_factory=set)
    tried_alone: set[str] = field(default_factory=set)
    avoid: frozenset[str] = frozenset()


class SuspectObjects:
    """The corrupt and failing objects of all places. ``sources`` are the places in the order of preference.
    :meth:`report_suspect` is called from any thread, the other methods in the transport's loop."""

    def __init__(self, sources: Sequence[str], differing: dict[str, str]) -> None:
        """``differing`` collects a sentence for each object whose length differs between places."""
        self._sources = tuple(sources)
        self._differing = differing
        self._sources_by_object: OrderedDict[str, _ObjectSources] = OrderedDict()
        self._suspects: OrderedDict[str, _SuspectObject] = OrderedDict()
        self._failures: OrderedDict[str, Counter[str]] = OrderedDict()

    def failed(self, key: str, source: str) -> None:
        """Notes that ``source`` gave no answer about an object (a request must have been sent)."""
        self._failures.setdefault(key, Counter())[source] += 1
        if len(self._failures) > _MAX_REMEMBERED:
            self._failures.popitem(last=False)

    def answered(self, key: str, source: str) -> None:
        """Notes that ``source`` answered about an object."""
        if key in self._failures:
            self._failures[key].pop(source, None)

    def failing(self, key: str) -> frozenset[str]:
        """Returns the places that fail repeatedly at an object."""
        failures = self._failures.get(key) if self._failures else None
        return frozenset() if not failures else frozenset(place for place, n in failures.items() if n >= _FAILS)

    def note_source(self, key: str, total: int | None, source: str) -> None:
        """Notes that ``source`` gave bytes of an object, which has ``total`` bytes there (``None``: not known)."""
        object_sources = self._sources_by_object.get(key)
        if object_sources is None:
            self._sources_by_object[key] = _ObjectSources(total, source, {source})
            if len(self._sources_by_object) > _MAX_REMEMBERED:
                self._sources_by_object.popitem(last=False)
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
        """Returns the places that are tried for an object only if all others fail."""
        suspect = self._suspects.get(key) if self._suspects else None
        return frozenset() if suspect is None else suspect.avoid

    def report_suspect(self, key: str) -> bool:
        """Reports that the bytes of an object since the last report are wrong. Other places are tried first from now
        on. Returns whether another try makes sense.

        If one place gave the whole object, its copy is wrong. If several places gave parts, each copy may be right:
        they are tried for the whole object one after the other.
        """
        object_sources = self._sources_by_object.get(key)
        places, suspect = set(), self._suspects.setdefault(key, _SuspectObject())
        if object_sources is not None:
            places, object_sources.places = object_sources.places, set()
        if len(self._suspects) > _MAX_REMEMBERED:
            self._suspects.popitem(last=False)
        if places and places <= suspect.bad:
            return False
        if len(places) == 1:
            suspect.bad |= places
            suspect.avoid = frozenset(suspect.bad)
            return len(suspect.bad) < len(self._sources)
        untried = [source for source in self._sources if source not in suspect.bad | suspect.tried_alone]
        if not untried:
            return False
        next_source = next((source for source in untried if source not in places), untried[0])
        suspect.tried_alone.add(next_source)
        suspect.avoid = frozenset(self._sources) - {next_source}
        return True


def branch_of(key: str) -> str:
    """Returns the branch of ``key``: ``crawl-data/CC-MAIN-2013-20/`` and the like."""
    match = _BRANCH.match(key)
    return match.group() if match is not None else key


class AbsenceCache:
    """The objects and branches that one place does not have, as far as this run knows."""

    def __init__(self) -> None:
        self._keys: OrderedDict[str, None] = OrderedDict()
        # ``None``: the place has an object of the branch
        self._branches: OrderedDict[str, set[str] | None] = OrderedDict()

    def is_missing(self, key: str) -> bool:
        """Whether the place answered "not found" for the object."""
        return key in self._keys

    def is_branch_missing(self, key: str) -> bool:
        """Whether the place seems to have no object of the branch."""
        missed = self._branches.get(branch_of(key))
        return missed is not None and len(missed) >= _BRANCH_MISSES

    def note_missing(self, key: str) -> None:
        """Notes that the place does not have the object."""
        _put(self._keys, key, None)
        branch = branch_of(key)
        missed = self._branches.get(branch, set())
        if missed is not None and len(missed) < _BRANCH_MISSES:
            missed.add(key)
        _put(self._branches, branch, missed)

    def note_present(self, key: str) -> None:
        """Notes that the place has the object."""
        self._keys.pop(key, None)
        branch = branch_of(key)
        if self._branches.get(branch, _NOTHING) is not None:
            _put(self._branches, branch, None)


def _put(cache: OrderedDict[str, T], key: str, value: T) -> None:
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > _MAX_REMEMBERED:
        cache.popitem(last=False)


@dataclass(frozen=True, slots=True)
class MirrorAnswer:
    """The verdict of all places together.

    ``place`` gave the answer (the first place if none did). ``attempts`` are the requests to the place with the most.
    ``is_inconclusive``: a preferred place gave no answer."""

    verdict: Verified | Finding
    answer: Answer
    attempts: int
    place: Place
    is_inconclusive: bool = False


@dataclass(slots=True)
class _Question:
    """The state of one request while places are tried. ``findings`` and ``attempts`` are by the places' numbers.
    ``failing`` places are tried last, because they failed at the same object before."""

    findings: dict[int, Finding] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    finished_places: set[int] = field(default_factory=set)
    waited: float = 0.0
    failing: frozenset[str] = frozenset()

    @property
    def max_attempts(self) -> int:
        """The number of requests to the place with the most."""
        return max(self.attempts.values(), default=0)


class MirrorSet:
    """A set of places in the order of preference, at least one. It runs inside the transport's loop."""

    def __init__(
        self, places: Sequence[Place], retry: RetryPolicy, stats: TransportStats, *, shares: bool = False
    ) -> None:
        """``shares``: requests are spread over the places by load. A place that is slow, or has to wait for its rate,
        has more of them in flight, so the next request goes to another place."""
        self.places = tuple(places)
        self._shares = shares
        self._under_way = [0] * len(self.places)
        self._retry = retry
        self._stats = stats
        self._absence_caches = [AbsenceCache() for _ in places]
        self._suspects = SuspectObjects([place.source for place in places], stats.differing)

    async def range(self, byte_range: ByteRange) -> MirrorAnswer:
        """Reads the bytes of a range."""
        answer = await self._ask(
            byte_range.key, lambda place: place.range(byte_range, 1), byte_range.tries, byte_range.avoid
        )
        if isinstance(answer.verdict, Verified):
            self._suspects.note_source(byte_range.key, answer.verdict.total, answer.place.source)
        return answer

    def report_suspect(self, key: str) -> bool:
        """As ``SuspectObjects.report_suspect``. Called from any thread."""
        return self._suspects.report_suspect(key)

    async def read_whole(self, key: str, limit: int) -> MirrorAnswer:
        """Reads a whole object of at most ``limit`` bytes."""
        answer = await self._ask(key, lambda place: place.read_whole(key, limit, 1))
        if isinstance(answer.verdict, Verified):
            self._suspects.note_source(key, answer.verdict.total, answer.place.source)
        return answer

    async def head(self, key: str) -> MirrorAnswer:
        """Returns the head of the object at the first place that has it."""
        return await self._ask(key, lambda place: place.head(key, 1))

    async def close(self) -> None:
        """Ends the connections to all places."""
        for place in self.places:
            await place.close()

    async def _ask(
        self, key: str, send_request: PlaceRequest, tries: int | None = None, avoid: frozenset[str] = frozenset()
    ) -> MirrorAnswer:
        question = _Question(failing=self._suspects.failing(key))
        for numbers in self._order_places(key, avoid | self._suspects.avoided(key), question.failing):
            answered = await self._request_from_places(numbers, key, send_request, question, tries)
            if answered is not None:
                return answered
        # these places answered "not found" before
        unasked = [number for number in range(len(self.places)) if number not in question.findings]
        if all(finding.kind is FaultKind.NOT_FOUND for finding in question.findings.values()):
            # an object counts as missing everywhere only after a new answer of each place
            answered = await self._request_from_places(unasked, key, send_request, question, tries)
            if answered is not None:
                return answered
        else:
            for number in unasked:
                question.findings[number] = Finding(FaultKind.NOT_FOUND, "said before")
        return MirrorAnswer(self._verdict(question), NO_BODY, question.max_attempts, self.places[0])

    def _order_places(self, key: str, avoid: frozenset[str], failing: frozenset[str]) -> list[list[int]]:
        """Returns the numbers of the places that may have ``key``, in groups: first most places, then those that seem
        to miss its whole branch, then those ``failing`` at it, and last those to ``avoid``, whose bytes were wrong."""
        first: list[int] = []
        last: list[int] = []
        tired: list[int] = []
        avoided: list[int] = []
        for number, (place, not_found_cache) in enumerate(zip(self.places, self._absence_caches, strict=True)):
            if not_found_cache.is_missing(key):
                continue
            group = last if not_found_cache.is_branch_missing(key) else first
            group = avoided if place.source in avoid else tired if place.source in failing else group
            group.append(number)
        if self._shares:
            first.sort(key=self._load)
        return [group for group in (first, last, tired, avoided) if group]

    def _load(self, number: int) -> float:
        """Returns the share of a place's concurrent requests that would be in flight with one more."""
        return (self._under_way[number] + 1) / self.places[number].limits.concurrency

    async def _request_from_places(
        self, numbers: Sequence[int], key: str, send_request: PlaceRequest, question: _Question, tries: int | None
    ) -> MirrorAnswer | None:
        """Returns the first verified answer. Each place is tried once a round, as long as a retry makes sense."""
        last_wait = 0.0
        while True:
            waits = []
            for number in numbers:
                if number in question.finished_places:
                    continue
                self._under_way[number] += 1
                try:
                    verdict, answer, sent = await send_request(self.places[number])
                finally:
                    self._under_way[number] -= 1
                question.attempts[number] = question.attempts.get(number, 0) + sent
                if isinstance(verdict, Verified):
                    return self._accept(number, key, verdict, answer, question)
                if verdict.kind is FaultKind.NOT_FOUND:
                    self._absence_caches[number].note_missing(key)
                if verdict.kind in TROUBLE:
                    self._suspects.failed(key, self.places[number].source)
                elif verdict.kind in ANSWERS:
                    self._suspects.answered(key, self.places[number].source)
                if verdict.kind is not FaultKind.BREAKER_OPEN or number not in question.findings:
                    question.findings[number] = verdict
                wait = self._next_wait(question, number, verdict, last_wait, tries)
                if wait is None:
                    question.finished_places.add(number)
                else:
                    waits.append(wait)
            if not waits:
                return None
            last_wait = min(waits)
            question.waited += last_wait
            await asyncio.sleep(last_wait)

    def _accept(self, number: int, key: str, verdict: Verified, answer: Answer, question: _Question) -> MirrorAnswer:
        place = self.places[number]
        question.findings.pop(number, None)
        self._absence_caches[number].note_present(key)
        self._stats.served[place.source] += 1
        self._suspects.answered(key, place.source)
        is_inconclusive = any(finding.kind not in _ABSENT_KINDS for finding in question.findings.values())
        is_inconclusive = is_inconclusive or bool(question.failing - {place.source})
        return MirrorAnswer(verdict, answer, question.max_attempts, place, is_inconclusive)

    def _next_wait(
        self, question: _Question, number: int, finding: Finding, last_wait: float, tries: int | None
    ) -> float | None:
        """Returns the seconds until a place may be tried again, ``None`` if it is finished for this request."""
        if finding.kind is FaultKind.BREAKER_OPEN:
            # no request was sent; a short outage may be that of our own network
            wait = finding.retry_after or 0.0
            # a request whose object fails anyway is a bad probe: let another request go first
            wait += _FAILING_OBJECT_DELAY if question.failing else _BREAKER_DELAY
            return wait if question.waited + wait <= self._retry.longest else None
        if question.attempts[number] == tries:
            return None
        return self._retry.next_wait(finding, question.attempts[number], last_wait)

    def _verdict(self, question: _Question) -> Finding:
        """Returns the finding of all places together. Only a finding of every place is certain."""
        findings = [question.findings[number] for number in sorted(question.findings)]
        detail = "; ".join(
            f"{self.places[number].host}: {finding.kind.value} ({finding.detail})"
            for number, finding in sorted(question.findings.items())
        )
        kinds = [finding.kind for finding in findings]
        for kind in (FaultKind.NOT_FOUND, FaultKind.BREAKER_OPEN):
            if all(other_kind is kind for other_kind in kinds):
                return Finding(kind, detail)
        if all(kind in _ABSENT_KINDS for kind in kinds):
            return Finding(FaultKind.RANGE_NOT_SATISFIABLE, detail)
        uncertain_kinds = [kind for kind in kinds if kind not in _ABSENT_KINDS and kind is not FaultKind.BREAKER_OPEN]
        environment = [kind for kind in uncertain_kinds if kind in ENVIRONMENT_KINDS]
        # a place with an open breaker counts as unreachable while others answer
        return Finding((environment or uncertain_kinds or [FaultKind.UNREACHABLE])[0], detail)
