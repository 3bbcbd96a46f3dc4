"""Searches a ``cluster.idx`` by range reads, without downloading it whole. It has one line for each gzip member of the
CDXJ shards, sorted by key, and some hundred megabytes.

A line is ``<surt> <timestamp>\\t<shard>\\t<offset>\\t<length>[\\t<number>]`` and names the member's first capture.
Lines that were read are stored as spans of whole lines, which bound every later search.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Protocol, TypeAlias

from cc_pipeline.commoncrawl.key_ranges import KeyRange
from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault
from cc_pipeline.index.parquet.fetch import Cost
from cc_pipeline.transport.ranges import RangeBytes

#: A key, and the share of the file that lies before it (0 to 1).
Mark: TypeAlias = tuple[bytes, float]

#: Marks without any knowledge: about half of a crawl is .com (155 of 300 shards).
_NOTHING_KNOWN: Final[tuple[Mark, ...]] = ((b"com,", 0.14), (b"com-", 0.66))
#: The bytes that most keys consist of, and the number of key bytes that a guess uses.
_DIGITS: Final = b")+,-./0123456789:_abcdefghijklmnopqrstuvwxyz"
_RANKS: Final = bytes(bisect_right(_DIGITS, byte) for byte in range(256))
_DEPTH: Final = 8
_LAST: Final = b"\xff"

#: Bytes of one probe. A request to Common Crawl's own host costs as much time as 512 KiB (``parquet.fetch.GAP``), so a
#: probe takes as many lines along as it can.
PROBE = 256 << 10
#: A remaining part of the file of at most this many bytes is read whole.
WHOLE_READ_BYTES = 512 << 10
#: Bytes of the first read after the known lines.
FIRST_READ_BYTES = 64 << 10
#: If more ranges than this lay in the lines read last, the next lines are read without a search.
_CLOSE = 1
#: No line is longer: keys of the index have a few kilobytes at most.
_LONGEST_LINE = 1 << 20
#: Each further read is twice as long as the last one, up to this many bytes.
_MAX_READ_BYTES = 4 << 20
#: Bytes of lines held in memory.
_MAX_HELD_BYTES = 32 << 20
#: Spans that wait to be stored.
_MAX_LEARNT = 64


class Marks:
    """Keys with their positions, in any order. If they contradict each other, a later key gets no earlier position."""

    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        self._keys: list[bytes] = [b""]
        self._shares: list[float] = [0.0]
        for key, share in sorted(marks) or _NOTHING_KNOWN:
            self._keys.append(key)
            self._shares.append(min(1.0, max(self._shares[-1], share)))

    def share(self, key: bytes) -> float:
        """Returns the share of a file that probably lies before ``key``; it never falls as keys rise."""
        place = bisect_right(self._keys, key)
        low, share_before = self._keys[place - 1], self._shares[place - 1]
        high, share_after = (self._keys[place], self._shares[place]) if place < len(self._keys) else (_LAST, 1.0)
        return share_before + _relative_position(low, high, key) * (share_after - share_before)


def _relative_position(low: bytes, high: bytes, key: bytes) -> float:
    """Returns the relative position of ``key`` between ``low`` and ``high`` (0 to 1), if all names are equally
    frequent."""
    common_length = next(
        (n for n, (low_byte, high_byte) in enumerate(zip(low, high, strict=False)) if low_byte != high_byte),
        min(len(low), len(high)),
    )
    first, last, position = (_number(key_[common_length : common_length + _DEPTH]) for key_ in (low, high, key))
    return (position - first) / (last - first) if first < last else 0.0


def _number(text: bytes) -> int:
    number = 0
    for rank in text.translate(_RANKS).ljust(_DEPTH, b"\0"):
        number = number * (len(_DIGITS) + 1) + rank
    return number


@dataclass(frozen=True, slots=True)
class Member:
    """A gzip member of a shard: ``offset`` and ``length`` in bytes, and the key of its first line."""

    shard: str
    offset: int
    length: int
    first_key: bytes


@dataclass(frozen=True, slots=True)
class Span:
    """Whole lines of a ``cluster.idx``: bytes ``at`` to ``end``, the keys of the first and last line, and the lines
    themselves if they are in memory."""

    at: int
    end: int
    first: bytes
    last: bytes
    data: bytes | None = None


_span_start = attrgetter("at")
_first = attrgetter("first")
_first_key = attrgetter("first_key")


class RangeReader(Protocol):
    """Reads ranges: ``read`` returns the bytes from ``offset``; fewer than ``length`` only at the object's end."""

    def read(self, key: str, offset: int, length: int) -> RangeBytes: ...


class Cluster:
    """One ``cluster.idx`` behind range reads; safe to share between threads.

    ``size`` is the file's size in bytes if it is known; else a read finds it. ``stored_spans`` are spans that were read
    before, whose lines ``load`` returns (``None``: they are read again). ``guide`` returns key positions from other
    such files; it is called once, before the first guess. ``reads`` and ``bytes_read`` count the range reads and their
    bytes, ``learnt`` are the last spans that were read.
    """

    def __init__(
        self,
        reader: RangeReader,
        key: str,
        size: int | None = None,
        *,
        stored_spans: Iterable[Span] = (),
        load: Callable[[Span], bytes | None] = lambda span: None,
        guide: Callable[[], Marks] = Marks,
    ) -> None:
        self.key = key
        self.reads = 0
        self.bytes_read = 0
        self.learnt: deque[Span] = deque(maxlen=_MAX_LEARNT)
        self._charged = Cost()
        self._reader = reader
        self._size = size
        self._load = load
        self._guide = guide
        self._marks: Marks | None = None
        self._spans: list[Span] = []
        for span in sorted(stored_spans, key=_span_start):
            if not self._spans or (self._spans[-1].end <= span.at and self._spans[-1].last <= span.first):
                self._spans.append(span)
        self._held_spans: deque[Span] = deque()
        self._held_bytes = 0
        self._parsed: tuple[Span, list[Member]] | None = None
        self._lock = threading.RLock()

    def members(self, ranges: Iterable[KeyRange]) -> Iterator[Member]:
        """Yields every member that may hold a line with a key in ``ranges`` (sorted, disjoint), each once, in order.

        Ranges close to each other are found in lines that were read for the previous one. Raises ``DataFault``.
        """
        chunks: Iterator[list[Member]] = iter(())
        window: list[Member] = []
        last_member: Member | None = None
        shared = 0
        for keys in ranges:
            shared += 1
            if not _covers(window, keys.start):
                # if several ranges shared the last lines, the next one is probably near
                next_members = next(chunks, None) if shared > _CLOSE else None
                window = [] if next_members is None else [window[-1], *next_members]
                shared = 0
                if not _covers(window, keys.start):
                    chunks = self._read_onward(self._find_start(keys.start))
                    window = next(chunks, [])
            while (keys.end is None or not window or window[-1].first_key < keys.end) and (
                next_members := next(chunks, None)
            ) is not None:
                window = [*window[_index_before(window, keys.start) :], *next_members]
            last = len(window) if keys.end is None else bisect_left(window, keys.end, key=_first_key)
            for member in window[_index_before(window, keys.start) : last]:
                if member != last_member:
                    yield member
                last_member = member

    def charge(self, cost: Cost) -> None:
        """Adds the reads since the last call to ``cost``."""
        with self._lock:
            cost.requests += self.reads - self._charged.requests
            cost.bytes += self.bytes_read - self._charged.bytes
            self._charged = Cost(self.reads, self.bytes_read)

    def _find_start(self, start: bytes) -> int:
        """Returns the start of the known span with the last line below ``start``, or else the start of the file.

        Guesses the position of the key, and reads a probe there. After a miss the next guess is aimed beyond the key,
        by a step that grows until it halves the remaining part: so bad guesses end like a bisection.
        """
        step = WHOLE_READ_BYTES // 4
        missed = False
        self._total()
        while True:
            with self._lock:
                start_offset = self._place(start)
                left, right = self._neighbours(start)
            if start_offset is not None:
                return start_offset
            low, high = left.end if left else 0, right.at if right else self._total()
            if high - low <= WHOLE_READ_BYTES:
                self._learn(low, high, low, high - low)
                continue
            middle = (low + high) // 2
            aim = self._guess(start, left, right, low, high)
            if missed:
                aim = min(middle, aim + step) if aim < middle else max(middle, aim - step)
                step *= 4
            missed = True
            self._learn(low, high, aim - PROBE // 2, PROBE)

    def _place(self, start: bytes) -> int | None:
        """Returns the result of ``_find_start`` if it is known without reading."""
        left, right = self._neighbours(start)
        if left is None:
            return 0 if (right.at == 0 if right else self._size == 0) else None
        next_start = right.at if right else self._size
        return left.at if left.last >= start or left.end == next_start else None

    def _neighbours(self, start: bytes) -> tuple[Span | None, Span | None]:
        """Returns the last span that begins with a key below ``start``, and the next one."""
        place = bisect_left(self._spans, start, key=_first)
        return self._spans[place - 1] if place else None, self._spans[place] if place < len(self._spans) else None

    def _guess(self, start: bytes, left: Span | None, right: Span | None, low: int, high: int) -> int:
        """Returns the probable position of ``start`` between ``low`` and ``high``, the end of ``left`` and the start of
        ``right``."""
        if self._marks is None:
            self._marks = self._guide()
        share = self._marks.share
        first, last = share(left.last) if left else 0.0, share(right.first) if right else 1.0
        way = (share(start) - first) / (last - first) if first < last else 0.5
        return low + int(way * (high - low))

    def _learn(self, low: int, high: int, offset: int, length: int) -> Span:
        """Reads whole lines about ``length`` bytes from ``offset``, between the line begins ``low`` and ``high``."""
        start = min(max(low, offset), max(low, high - length))
        end = min(high, start + length)
        while True:
            data = self._read(start, end - start)
            first = 0 if start == low else data.find(b"\n") + 1
            lines_end = data.rfind(b"\n") + 1
            if end == high and lines_end != len(data):
                kind = DataKind.TRUNCATED if high == self._total() else DataKind.MALFORMED
                raise DataFault(kind, self.key, start + lines_end, "the file ends inside a line")
            if lines_end > first and (first or start == low):
                break
            if end - start > _LONGEST_LINE:
                raise DataFault(DataKind.MALFORMED, self.key, start, "a line is too long, or has no end")
            start, end = max(low, start - 2 * (end - start)), min(high, end + 2 * (end - start))
        lines = data[first:lines_end]
        last = lines[lines.rfind(b"\n", 0, -1) + 1 :]
        span = Span(start + first, start + lines_end, line_key(lines), line_key(last), lines)
        self._insert(span)
        return span

    def _insert(self, span: Span) -> None:
        with self._lock:
            place = bisect_left(self._spans, span.at, key=_span_start)
            before = self._spans[place - 1] if place else None
            after = self._spans[place] if place < len(self._spans) else None
            if (before and before.end > span.at) or (after and after.at < span.end):
                return  # another thread has read it
            self._check_order(before.last if before else b"", span.first, span.at)
            self._check_order(span.first, span.last, span.at)
            self._check_order(span.last, after.first if after else span.last, span.end)
            self._spans.insert(place, span)
            if span.end - span.at <= WHOLE_READ_BYTES:
                self.learnt.append(span)
            self._held_spans.append(span)
            self._held_bytes += span.end - span.at
            while self._held_bytes > _MAX_HELD_BYTES and len(self._held_spans) > 1:
                oldest = self._held_spans.popleft()
                self._held_bytes -= oldest.end - oldest.at
                del self._spans[bisect_left(self._spans, oldest.at, key=_span_start)]

    def _check_order(self, previous_key: bytes, next_key: bytes, position: int) -> None:
        if next_key < previous_key:
            raise DataFault(DataKind.MALFORMED, self.key, position, f"unsorted: {next_key!r} follows {previous_key!r}")

    def _read_onward(self, offset: int) -> Iterator[list[Member]]:
        """Yields the members from ``offset`` on, as they are read; their keys never fall."""
        total, read_length = self._total(), FIRST_READ_BYTES
        last = b""
        while offset < total:
            with self._lock:
                place = bisect_left(self._spans, offset, key=_span_start)
                span = self._spans[place] if place < len(self._spans) else None
            if span is None or span.at != offset:
                span = self._learn(offset, span.at if span else total, offset, read_length)
                read_length = min(2 * read_length, _MAX_READ_BYTES)
            members = self._members(span)
            self._check_order(last, members[0].first_key, offset)
            yield members
            offset, last = span.end, span.last

    def _members(self, span: Span) -> list[Member]:
        parsed = self._parsed
        if parsed is not None and parsed[0] is span:
            return parsed[1]
        data = span.data or self._load(span) or self._read(span.at, span.end - span.at)
        members: list[Member] = []
        position, last = span.at, b""
        for line in data[:-1].split(b"\n"):
            member = self._member(line, position)
            self._check_order(last, member.first_key, position)
            members.append(member)
            last = member.first_key
            position += len(line) + 1
        if (members[0].first_key, last) != (span.first, span.last):
            raise DataFault(DataKind.MISMATCH, self.key, span.at, "these lines differ from those that were read before")
        self._parsed = (span, members)
        return members

    def _member(self, line: bytes, position: int) -> Member:
        fields = line.split(b"\t")
        if len(fields) < 4 or not (fields[2].isdigit() and fields[3].isdigit()):
            raise DataFault(DataKind.MALFORMED, self.key, position, f"no line of a cluster.idx: {line[:100]!r}")
        shard = fields[1].decode("ascii", "backslashreplace")
        if not shard or "/" in shard or "\\" in shard or len(fields[2]) > 18 or not 0 < int(fields[3]) < 1 << 31:
            raise DataFault(
                DataKind.MALFORMED, self.key, position, f"a line points to an impossible place: {line[:100]!r}"
            )
        return Member(shard, int(fields[2]), int(fields[3]), line_key(line))

    def _total(self) -> int:
        with self._lock:
            if self._size is None:
                answer = self._reader.read(self.key, 0, 1)
                self.reads += 1
                self.bytes_read += len(answer.data)
                if answer.total is None:
                    raise EnvironmentFault(
                        f"the size of {self.key} is not known", "Use a source whose responses give the size of a file"
                    )
                self._size = answer.total
            return self._size

    def _read(self, offset: int, length: int) -> bytes:
        """Returns ``length`` bytes of ``cluster.idx`` from ``offset`` on, and counts the read. Raises ``DataFault`` if
        the answer has another length, or if the size of the file has changed."""
        answer = self._reader.read(self.key, offset, length)
        if len(answer.data) != length or answer.total not in (None, self._size):
            mismatch = f"the answer has {len(answer.data)} bytes of {answer.total} instead of {length} of {self._size}"
            raise DataFault(DataKind.LENGTH_MISMATCH, self.key, offset, mismatch)
        with self._lock:
            self.reads += 1
            self.bytes_read += length
        return answer.data


def _covers(window: Sequence[Member], start: bytes) -> bool:
    """Whether ``window`` has the last member with a key below ``start``, and another after it."""
    return bool(window) and window[0].first_key < start <= window[-1].first_key


def _index_before(window: Sequence[Member], start: bytes) -> int:
    """Returns the position of the last member with a key below ``start``, else of the first one."""
    return max(0, bisect_left(window, start, key=_first_key) - 1)


def line_key(line: bytes) -> bytes:
    return line.partition(b" ")[0]
