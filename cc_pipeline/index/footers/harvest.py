"""Harvest: fetches the footer of every index file of a crawl once and stores it.

A harvest sends one suffix request per file, for as many bytes as the longest footer of the crawl so far has. A longer
footer costs one more request, for exactly the missing bytes. The transport retries single requests by kind of fault.
This module decides on the outcomes: a file that stays bad is recorded and skipped, and if the source itself fails, the
harvest stops and keeps all footers so far.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from cc_pipeline import progress
from cc_pipeline.advice import option
from cc_pipeline.errors import DataFault, EnvironmentFault, Incomplete, Kind, SourceRefuses
from cc_pipeline.index.footers.decode import TRAILER_BYTES, decode_footer, footer_length
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

#: Bytes that are requested at least, and at most before it is known that a footer is longer: real ones have 30 to 66
#: KB, some up to 350.
FIRST_GUESS: Final = 64 << 10
_MAX_GUESS: Final = 1 << 20
#: Tries of a file before it is recorded as bad, each with the transport's own retries.
TRIES: Final = 3
#: Kinds after which no other request will succeed either.
_STOPPING: Final = frozenset({FaultKind.REFUSED})
#: Files that came whole instead of their ends, while no end came, after which the source counts as without ranges.
_WHOLE_FILES: Final = 3
#: The harvest stops when more files than these failed, or when nothing succeeded at all.
_MAX_FAILED_FILES: Final = 50
#: Seconds between two syncs: a power cut loses the footers of about that time.
_SYNC_SECONDS: Final = 1.0


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
    tries: int
    guess: int
    waiting: deque[_Job] = field(default_factory=deque)
    tried: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)
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
                yield ByteRange(job.path, None, self.guess, tag=job)
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
        self.guess = min(_MAX_GUESS, max(self.guess, len(footer)))
        if time.monotonic() - self.synced > _SYNC_SECONDS:
            self.writer.sync()
            self.synced = time.monotonic()
        self.fetched += 1
        self.tried.add(job.path)

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
        tries = max(job.tries, self.tries - 2) if final else job.tries
        self._bad(_Job(job.path, tries), failure)

    def _bad(self, job: _Job, failure: _Failure, *, tail: RangeBytes | None = None, offset: int | None = None) -> None:
        self.tried.add(job.path)
        self.failing.add(job.path)
        if job.tries + 1 < self.tries:
            # from the start, since the fetched tail may be wrong
            self.waiting.append(_Job(job.path, job.tries + 1))
        else:
            self.failed[job.path] = failure
            size, etag = (None, None) if tail is None else (tail.total, tail.etag)
            self.writer.put_failure(job.path, failure.reason, file_size=size, etag=etag, offset=offset)
        if len(self.failing) > _MAX_FAILED_FILES:
            problem = (
                f"{len(self.failing)} of {len(self.tried)} index files failed, the last one with: {failure.reason}"
            )
            raise self.source_fault(problem, failure.kind)

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
    *,
    tries: int = TRIES,
    refresh: bool = False,
) -> HarvestReport:
    """Harvests those of ``index_files`` (the paths of the crawl's path list) that are not stored yet, or whose stored
    bytes are damaged. ``refresh`` asks for the ETag of each stored file and fetches a changed file again.

    Raises ``EnvironmentFault`` if the source or the disk fails, and ``Incomplete`` at the end if a stored file could
    not be checked for changes. Footers stored until then stay, and the next call continues from there."""
    started = time.monotonic()
    paths = list(dict.fromkeys(index_files))
    with store.write(crawl) as writer:
        longest = max((entry.footer_bytes + TRAILER_BYTES for entry in writer.entries.values()), default=0)
        run = _Run(transport, writer, tries, min(_MAX_GUESS, max(FIRST_GUESS, longest)))
        outdated = {path for path in paths if path in writer and writer.is_damaged(path)}
        if refresh:
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
