"""Searches a ZipNum ``cluster.idx``: one line for each gzip member of the CDXJ shards, sorted by key.

A line is ``<surt> <timestamp>\\t<shard>\\t<offset>\\t<length>[\\t<number>]`` and names the member's first capture.
The file has about a hundred megabytes for a crawl, so it is searched by range reads and never downloaded whole.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cc_pipeline.commoncrawl.btree_keys import KeyRange
from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault
from cc_pipeline.index.btree.source import RangeReader

#: Bytes of one probe while searching, and of the first stretch read once the place is found.
PROBE = 4096
STRETCH = 64 << 10
#: Ranges that lay in the lines read last, beyond which the lines behind them are read without a search.
_CLOSE = 1
#: No line is longer: keys of the index have a few kilobytes at most.
_LONGEST_LINE = 1 << 20
#: Each further stretch is twice as long as the last one, up to this many bytes.
_MOST_STRETCH = 4 << 20


@dataclass(frozen=True, slots=True)
class Member:
    """A gzip member of a shard: ``offset`` and ``length`` in bytes, and the key of its first line."""

    shard: str
    offset: int
    length: int
    first_key: bytes


class Cluster:
    """One ``cluster.idx`` behind range reads; safe to share between threads.

    ``reads`` and ``bytes_read`` count the range reads and their bytes. Probes are kept in memory. ``size`` is the
    file's, in bytes, where it is known already; else a read asks for it.
    """

    def __init__(self, reader: RangeReader, key: str, size: int | None = None) -> None:
        self.key = key
        self.reads = 0
        self.bytes_read = 0
        self._reader = reader
        self._size = size
        self._chunks: dict[tuple[int, int], bytes] = {}
        self._lock = threading.RLock()

    def members(self, ranges: Iterable[KeyRange]) -> Iterator[Member]:
        """Every member that may hold a line with a key in ``ranges`` (sorted, disjoint), each once, in order.

        Ranges that lie near each other are found in lines that were read for the one before. Raises ``DataFault``.
        """
        chunks: Iterator[list[Member]] = iter(())
        window: list[Member] = []
        given: Member | None = None
        shared = 0
        for keys in ranges:
            shared += 1
            if not _has(window, keys.start):
                # where ranges shared the last lines, the next one is probably not far
                more = next(chunks, None) if shared > _CLOSE else None
                window = [] if more is None else [window[-1], *more]
                shared = 0
                if not _has(window, keys.start):
                    chunks = self._stretches(self._before(keys.start))
                    window = next(chunks, [])
            while (keys.end is None or not window or window[-1].first_key < keys.end) and (
                more := next(chunks, None)
            ) is not None:
                window = [*window[_before(window, keys.start) :], *more]
            last = len(window) if keys.end is None else bisect_left(window, keys.end, key=_first_key)
            for member in window[_before(window, keys.start) : last]:
                if member != given:
                    yield member
                given = member

    def _before(self, start: bytes) -> int:
        """Where a line begins that is not behind the last one with a key below ``start``, within a stretch of it."""
        low, high = 0, self._total()
        while high - low > STRETCH:
            middle = (low + high) // 2
            at, line = self._line_after(middle, high)
            if line is None:
                high = middle
            elif _key(line) < start:
                low = at
            else:
                high = middle
        return low

    def _line_after(self, offset: int, end: int) -> tuple[int, bytes | None]:
        """The first whole line that begins behind ``offset`` and before ``end``."""
        length = PROBE
        while True:
            data = self._read(offset, min(length, self._total() - offset))
            first = data.find(b"\n") + 1
            after = data.find(b"\n", first) if first else -1
            if first and offset + first >= end:
                return end, None
            if after >= 0:
                return offset + first, data[first:after]
            if offset + length >= self._total():
                return end, None
            if length > _LONGEST_LINE:
                raise DataFault(DataKind.MALFORMED, self.key, offset, "no line ends here")
            length *= 4

    def _stretches(self, offset: int) -> Iterator[list[Member]]:
        """The members from ``offset`` on, as they are read; their keys never fall."""
        total, stretch = self._total(), STRETCH
        rest = last = b""
        while offset < total:
            data = rest + self._read(offset, min(stretch, total - offset))
            offset += len(data) - len(rest)
            stretch = min(2 * stretch, _MOST_STRETCH)
            *lines, rest = data.split(b"\n")
            start = offset - len(data)
            found = []
            for line in lines:
                member = self._member(line, start)
                if member.first_key < last:
                    raise DataFault(
                        DataKind.MALFORMED, self.key, start, f"line of {member.first_key!r} follows that of {last!r}"
                    )
                found.append(member)
                last = member.first_key
                start += len(line) + 1
            if len(rest) > _LONGEST_LINE:
                raise DataFault(DataKind.MALFORMED, self.key, start, "no line ends here")
            if found:
                yield found
        if rest:
            raise DataFault(DataKind.TRUNCATED, self.key, total - len(rest), "the file ends inside a line")

    def _member(self, line: bytes, at: int) -> Member:
        fields = line.split(b"\t")
        if len(fields) < 4 or not (fields[2].isdigit() and fields[3].isdigit()):
            raise DataFault(DataKind.MALFORMED, self.key, at, f"no line of a cluster.idx: {line[:100]!r}")
        shard = fields[1].decode("ascii", "backslashreplace")
        if not shard or "/" in shard or "\\" in shard or len(fields[2]) > 18 or not 0 < int(fields[3]) < 1 << 31:
            raise DataFault(DataKind.MALFORMED, self.key, at, f"a line points to an impossible place: {line[:100]!r}")
        return Member(shard, int(fields[2]), int(fields[3]), _key(line))

    def _total(self) -> int:
        with self._lock:
            if self._size is None:
                answer = self._reader.read(self.key, 0, 1)
                self.reads, self.bytes_read = self.reads + 1, self.bytes_read + len(answer.data)
                if answer.total is None:
                    raise EnvironmentFault(
                        f"the size of {self.key} is not known", "Use a source whose answers say how large a file is"
                    )
                self._size = answer.total
            return self._size

    def _read(self, offset: int, length: int) -> bytes:
        with self._lock:
            known = self._chunks.get((offset, length))
        if known is not None:
            return known
        data = self._reader.read(self.key, offset, length).data
        if len(data) != length:
            raise DataFault(
                DataKind.LENGTH_MISMATCH, self.key, offset, f"{len(data)} bytes came where {length} were asked for"
            )
        with self._lock:
            self.reads, self.bytes_read = self.reads + 1, self.bytes_read + length
            if length <= STRETCH:
                self._chunks[offset, length] = data
        return data


def _first_key(member: Member) -> bytes:
    return member.first_key


def _has(window: Sequence[Member], start: bytes) -> bool:
    """Whether the last member with a key below ``start`` is among these, and another behind it."""
    return bool(window) and window[0].first_key < start <= window[-1].first_key


def _before(window: Sequence[Member], start: bytes) -> int:
    """The place of the last member with a key below ``start``, else of the first one."""
    return max(0, bisect_left(window, start, key=_first_key) - 1)


def _key(line: bytes) -> bytes:
    return line.partition(b" ")[0]
