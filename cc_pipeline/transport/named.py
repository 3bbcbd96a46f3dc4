"""Archive files that a person named: each is read from where it lies, as one source.

A name says where: an address (``file://``, ``https://``, ``s3://``) has a scheme, all else is a key of the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Final
from urllib.parse import unquote, urlsplit

from cc_pipeline.addresses import scheme_of
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import RangeFault, range_fault
from cc_pipeline.transport.ranges import ByteRange, ObjectInfo, RangeBytes, TransportStats

#: The place of files on this machine.
HERE: Final = "/"


def place_of(name: str) -> tuple[str, str]:
    """The root of the place where a file lies (empty for the source), and its key there."""
    if not scheme_of(name):
        return "", name
    parts = urlsplit(name)
    if parts.scheme == "file":
        return HERE, unquote(parts.path).lstrip("/")
    return f"{parts.scheme}://{parts.netloc}", unquote(parts.path).lstrip("/")


class NamedPlaces:
    """The part of ``Transport`` that reads records, over the places of named files.

    ``source`` leads to the source and is closed by whoever opened it; ``open_place`` opens another place by its root,
    which :meth:`close` closes. Faults and bytes carry the names that were asked for.
    """

    def __init__(self, source: Transport, open_place: Callable[[str], Transport]) -> None:
        self._opened: dict[str, Transport] = {}
        self._source = source
        self._open = open_place

    @property
    def source(self) -> str:
        """What the places are together, for a person."""
        return "archive files named by a person"

    @property
    def stats(self) -> TransportStats:
        """What was spent at all places."""
        place_stats = [self._source.stats, *(transport.stats for transport in self._opened.values())]
        return TransportStats(
            requests=sum(stats.requests for stats in place_stats), bytes=sum(stats.bytes for stats in place_stats)
        )

    @property
    def sources(self) -> tuple[str, ...]:
        """As ``Transport.sources``, of the source."""
        return self._source.sources

    def url(self, name: str, source: str | None = None) -> str:
        """The address of a file; at that place of the source, where it lies there."""
        root, _ = place_of(name)
        return name if root else self._source.url(name, source)

    def head(self, name: str) -> ObjectInfo | None:
        """As ``Transport.head``."""
        place, key = self._at(name)
        return place.head(key)

    def exists(self, name: str) -> bool:
        """As ``Transport.exists``."""
        return self.head(name) is not None

    def read(self, name: str, offset: int, length: int, etag: str | None = None) -> RangeBytes:
        """As ``Transport.read``."""
        place, key = self._at(name)
        try:
            return replace(place.read(key, offset, length, etag), key=name)
        except RangeFault as fault:
            raise _named(fault, ByteRange(name, offset, length)) from fault

    def read_all(self, name: str) -> RangeBytes:
        """As ``Transport.read_all``."""
        place, key = self._at(name)
        return place.read_all(key)

    def read_many(self, requests: Iterable[ByteRange]) -> Iterator[RangeBytes | RangeFault]:
        """As ``Transport.read_many``; neighbours of one place are under way together."""
        for _, neighbours in groupby(requests, lambda byte_range: place_of(byte_range.key)[0]):
            yield from self._of_one_place(neighbours)

    def close(self) -> None:
        """Ends the connections to places opened here."""
        for place in self._opened.values():
            place.close()
        self._opened.clear()

    def _of_one_place(self, requests: Iterable[ByteRange]) -> Iterator[RangeBytes | RangeFault]:
        remaining_ranges = iter(requests)
        first = next(remaining_ranges)
        place, _ = self._at(first.key)

        def place_ranges() -> Iterator[ByteRange]:
            yield replace(first, key=place_of(first.key)[1], tag=first)
            for byte_range in remaining_ranges:
                yield replace(byte_range, key=place_of(byte_range.key)[1], tag=byte_range)

        for outcome in place.read_many(place_ranges()):
            original = outcome.tag
            assert isinstance(original, ByteRange)
            if isinstance(outcome, RangeFault):
                yield _named(outcome, original)
            else:
                yield replace(outcome, key=original.key, tag=original.tag)

    def _at(self, name: str) -> tuple[Transport, str]:
        root, key = place_of(name)
        if not root:
            return self._source, key
        if root not in self._opened:
            self._opened[root] = self._open(root)
        return self._opened[root], key


def _named(fault: RangeFault, byte_range: ByteRange) -> RangeFault:
    """A fault of a place, as one of the name that was asked for."""
    return range_fault(
        fault.kind, byte_range.key, fault.offset, fault.length, fault.detail, fault.attempts, tag=byte_range.tag
    )
