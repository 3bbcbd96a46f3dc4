"""Harvest: fetches the footer of every index file of a crawl once and stores it.

A harvest sends one suffix request per file. It learns the number of bytes to request from earlier footers. A longer
footer costs one more request, for exactly the missing bytes. The transport retries single requests by kind of fault.
This module decides on the outcomes: a file that stays bad is recorded and skipped, and if the source itself fails, the
harvest stops and keeps all footers so far.
"""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from cc_pipeline import progress
from cc_pipeline.advice import option
from cc_pipeline.errors import DataFault, EnvironmentFault, Incomplete, Kind, SourceRefuses
from cc_pipeline.index.footers.decode import (
    TRAILER_BYTES,
    decode_footer,
    footer_length,
)
from cc_pipeline.index.footers.store import FooterStore, FooterWriter
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import (
    ENVIRONMENT_KINDS,
    FaultKind,
    RangeFault,
    advice,
    handling_of,
    is_changed_etag,
    whole_files,
)
from cc_pipeline.transport.ranges import ByteRange, RangeBytes

#: Before anything is known: real footers are 30 to 66 KB.
FIRST_GUESS: Final = 64 * 1024
#: Footers that the guess is based on, and how many it needs before it replaces ``FIRST_GUESS``.
_MEMORY: Final = 512
_MIN_FOOTERS: Final = 16
#: Share of footers that one request should bring whole; each of the others costs a second request.
_PERCENTILE: Final = 0.98
_STEP: Final = 1024
_MIN_GUESS, _MAX_GUESS = 1024, 2**20


class FooterGuess:
    """Learns from the last few hundred footers; lengths are in bytes, trailer included."""

    def __init__(self, seen: Iterable[int] = ()) -> None:
        self._recent: deque[int] = deque()
        self._ordered: list[int] = []
        for length in seen:
            self.learn(length)

    @property
    def length(self) -> int:
        """The bytes to request: the 98th percentile of recent footers, rounded up to a whole KiB."""
        if len(self._ordered) < _MIN_FOOTERS:
            return FIRST_GUESS
        expected = self._ordered[int(_PERCENTILE * (len(self._ordered) - 1))]
        return min(_MAX_GUESS, max(_MIN_GUESS, -(-expected // _STEP) * _STEP))

    def learn(self, length: int) -> None:
        """Takes the length of one footer into account."""
        self._recent.append(length)
        insort(self._ordered, length)
        if len(self._recent) > _MEMORY:
            oldest = self._recent.popleft()
            del self._ordered[bisect_left(self._ordered, oldest)]


#: Kinds after which no other request will succeed either.
_STOPPING: Final = frozenset({FaultKind.REFUSED})
#: Files that came whole instead of their ends, while no end came, after which the source counts as without ranges.
_WHOLE_FILES: Final = 3
#: The harvest stops when more than so many files failed among the last outcomes, or when nothing succeeded at all.
_RECENT_OUTCOMES: Final = 1000
_MAX_FAILED_FILES: Final = 50
#: Seconds between two syncs: a power cut loses the footers of about that time.
_SYNC_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class HarvestPolicy:
    """Options of a harvest: ``tries`` of a file before it is recorded as bad (each with the transport's own retries).
    ``refresh`` asks for the ETag of each stored file and fetches a changed file again."""

    tries: int = 3
    refresh: bool = False


@dataclass(frozen=True, slots=True)
class HarvestReport:
    """The result of a harvest. Every file of the path list is in exactly one of ``fetched``, ``reused`` and ``failed``
    (with the reason)."""

    fetched: int
    reused: int
    failed: tuple[tuple[str, str], ...]
    seconds: float


@dataclass(slots=True)
class _Job:
    """One file in flight. ``tail`` is its end if the footer was longer than the guess."""

    path: str
    tries: int = 0
    tail: RangeBytes | None = None


@dataclass(frozen=True, slots=True)
class _Failure:
    """The failure of a file: the kind for decisions, the reason to record."""

    kind: Kind
    reason: str


@dataclass(slots=True)
class _Run:
    """A harvest while it runs."""

    reader: Transport
    writer: FooterWriter
    policy: HarvestPolicy
    guess: FooterGuess
    waiting: deque[_Job] = field(default_factory=deque)
    recent: deque[str | None] = field(default_factory=deque)
    failing_files: Counter[str] = field(default_factory=Counter)
    failed: dict[str, _Failure] = field(default_factory=dict)
    unchecked: list[str] = field(default_factory=list)
    whole_files: set[str] = field(default_factory=set)
    fetched: int = 0
    synced: float = 0.0
    expected_files: int = 0

    def run(self) -> None:
        self.expected_files = len(self.waiting)
        while self.waiting:
            # files added after the transport has finished come in another round
            for outcome in self.reader.read_many(self._requests()):
                self._take(outcome)
                progress.report(
                    "footers", self.fetched + len(self.failed), self.expected_files, self.writer.folder.name
                )

    def _requests(self) -> Iterator[ByteRange]:
        while self.waiting:
            job = self.waiting.popleft()
            if job.tail is None:
                yield ByteRange(job.path, None, self.guess.length, tag=job)
            else:
                start = _start(job.tail)
                yield ByteRange(job.path, start, job.tail.offset - start, job.tail.etag, tag=job, total=job.tail.total)

    def _take(self, outcome: RangeBytes | RangeFault) -> None:
        job = outcome.tag
        assert isinstance(job, _Job)
        if isinstance(outcome, RangeFault):
            self._fault(job, outcome)
            return
        tail = outcome if job.tail is None else _joined(outcome, job.tail)
        try:
            start = _start(tail)
            if start < tail.offset:
                self.waiting.appendleft(_Job(job.path, job.tries, tail))
                return
            # decoded first, so that every stored footer can be decoded
            footer = tail.data[start - tail.offset :]
            decode_footer(footer, tail.size, tail.key)
        except DataFault as fault:
            self._bad(job, _Failure(fault.kind, fault.reason), tail=tail, offset=fault.offset)
            return
        self.writer.put(tail.key, tail.size, tail.etag, footer)
        self.guess.learn(len(footer))
        if time.monotonic() - self.synced > _SYNC_SECONDS:
            self.writer.sync()
            self.synced = time.monotonic()
        self.fetched += 1
        self._count(None)

    def _fault(self, job: _Job, fault: RangeFault) -> None:
        if fault.kind in _STOPPING:
            raise self.not_now(f"the harvest stopped at {job.path}", fault) from fault
        if fault.kind is FaultKind.WHOLE_OBJECT:
            # if the first files come whole, all others will; a file that failed before is no proof
            if job.path not in self.writer.entries:
                self.whole_files.add(job.path)
            if not self.fetched and len(self.whole_files) >= min(_WHOLE_FILES, self.expected_files):
                self.writer.sync()
                raise whole_files(fault) from fault
        final = not handling_of(fault.kind).retry_now and fault.kind is not FaultKind.CHANGED_OBJECT
        failure = _Failure(fault.kind, f"{fault.kind.value}: {fault.detail}")
        # a file that was not found is requested once more, after all others: the answer may be temporary
        tries = max(job.tries, self.policy.tries - 2) if final else job.tries
        self._bad(_Job(job.path, tries), failure)

    def _bad(self, job: _Job, failure: _Failure, *, tail: RangeBytes | None = None, offset: int | None = None) -> None:
        self._count(job.path)
        if job.tries + 1 < self.policy.tries:
            # from the start, since the fetched tail may be wrong
            self.waiting.append(_Job(job.path, job.tries + 1))
        else:
            self.failed[job.path] = failure
            size, etag = (None, None) if tail is None else (tail.total, tail.etag)
            self.writer.put_failure(job.path, failure.reason, file_size=size, etag=etag, offset=offset)
        if len(self.failing_files) > _MAX_FAILED_FILES:
            count, tried = len(self.failing_files), len(self.recent)
            problem = f"{count} of the last {tried} index files failed, the last one with: {failure.reason}"
            raise self.source_fault(problem, failure.kind)

    def _count(self, failed: str | None) -> None:
        """Records the last outcomes; a file that fails repeatedly counts once."""
        self.recent.append(failed)
        if failed is not None:
            self.failing_files[failed] += 1
        if len(self.recent) > _RECENT_OUTCOMES:
            oldest = self.recent.popleft()
            if oldest is not None:
                self.failing_files[oldest] -= 1
                self.failing_files += Counter()

    def not_now(self, problem: str, fault: RangeFault) -> SourceRefuses:
        self.writer.sync()
        return SourceRefuses(
            f"{problem}: {fault.kind.value}, {fault.detail}",
            option(
                wait=True, sentence="Harvested files are kept. Run it again later, or with {}; it continues from there."
            ),
        )

    def source_fault(self, problem: str, kind: Kind) -> EnvironmentFault:
        self.writer.sync()
        default = "Check the source and the network"
        source_advice = advice(kind, default) if isinstance(kind, FaultKind) else default
        return (SourceRefuses if kind is FaultKind.FORBIDDEN else EnvironmentFault)(
            f"the harvest stopped because {problem}",
            f"{source_advice}. Then run the command again: harvested files are kept, and it continues from there.",
        )


def harvest_crawl(
    crawl: str,
    index_files: Sequence[str],
    transport: Transport,
    store: FooterStore,
    policy: HarvestPolicy | None = None,
) -> HarvestReport:
    """Harvests those of ``index_files`` (the paths of the crawl's path list) that are not stored yet, or whose stored
    bytes are damaged.

    Raises ``EnvironmentFault`` if the source or the disk fails, and ``Incomplete`` at the end if a stored file could
    not be checked for changes. Footers stored until then stay, and the next call continues from there."""
    policy = policy or HarvestPolicy()
    started = time.monotonic()
    paths = list(dict.fromkeys(index_files))
    with store.write(crawl) as writer:
        guess = FooterGuess(entry.footer_bytes + TRAILER_BYTES for entry in writer.entries.values() if not entry.failed)
        run = _Run(transport, writer, policy, guess)
        outdated = {path for path in paths if path in writer and writer.is_damaged(path)}
        if policy.refresh:
            outdated |= _changed(run, [path for path in paths if path in writer and path not in outdated])
        for path in paths:
            entry = writer.entries.get(path)
            if entry is None or path in outdated or entry.failed:
                run.waiting.append(_Job(path))
        # files that failed before and fail again, while others were read, do not mean that the source fails
        entries = writer.entries
        all_failed_before = all(job.path in entries and entries[job.path].failed for job in run.waiting) and any(
            path in entries and not entries[path].failed for path in paths
        )
        run.run()
        if (
            not run.fetched
            and not all_failed_before
            and any(failure.kind in ENVIRONMENT_KINDS for failure in run.failed.values())
        ):
            first = next(iter(run.failed.values()))
            problem = f"none of {run.expected_files} index files could be fetched, the first because of: {first.reason}"
            raise run.source_fault(problem, first.kind)
        failed = {path: writer.entries[path].reason or "" for path in paths if writer.entries[path].failed}
    if run.unchecked:
        raise Incomplete(
            f"{len(run.unchecked):,} of {len(paths):,} index files of {crawl} could not be compared with the source: "
            f"{run.unchecked[0]} …",
            "All other index files are up to date. To compare the rest, run the same command again.",
        )
    reused = len(paths) - run.fetched - len(failed)
    return HarvestReport(run.fetched, reused, tuple(failed.items()), time.monotonic() - started)


def _changed(run: _Run, paths: Sequence[str]) -> set[str]:
    """Returns the stored files that have another size or ETag now."""
    changed = set()
    ranges = (ByteRange(path, None, TRAILER_BYTES) for path in paths)
    for outcome in run.reader.read_many(ranges):
        if isinstance(outcome, RangeBytes):
            entry = run.writer.entries[outcome.key]
            if outcome.total != entry.file_size or is_changed_etag(outcome.etag, entry.etag):
                changed.add(outcome.key)
        elif outcome.kind in _STOPPING:
            raise run.not_now(f"{outcome.key} could not be checked", outcome)
        elif outcome.kind not in ENVIRONMENT_KINDS:
            changed.add(outcome.key)
        else:
            run.unchecked.append(outcome.key)
    return changed


def _start(tail: RangeBytes) -> int:
    """Returns the offset in the file at which its footer starts. Raises ``DataFault``."""
    return tail.size - TRAILER_BYTES - footer_length(tail.data, tail.size, tail.key)


def _joined(head: RangeBytes, tail: RangeBytes) -> RangeBytes:
    return RangeBytes(tail.key, head.offset, head.data + tail.data, tail.total, tail.etag, head.attempts)
