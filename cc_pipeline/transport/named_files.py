"""Archive files that the user named, read from their own places as one source.

A name with a scheme is an address (``file://``, ``https://``, ``s3://``); any other name is a key of the source.
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
LOCAL_ROOT: Final = "/"


def place_of(name: str) -> tuple[str, str]:
    """Returns the root of a file's place (empty for the source), and its key there; a key in S3 is not escaped."""
    scheme = scheme_of(name)
    if not scheme:
        return "", name
    if scheme == "s3":
        bucket, _, key = name.partition("://")[2].partition("/")
        return f"s3://{bucket}", key
    parts = urlsplit(name)
    if parts.scheme == "file":
        return LOCAL_ROOT, unquote(parts.path).lstrip("/")
    return f"{parts.scheme}://{parts.netloc}", unquote(parts.path).lstrip("/")


class NamedPlaces:
    """The part of ``Transport`` that reads records, over the places of named files.

    ``source`` leads to the source; its opener closes it. ``open_place`` opens another place by its root, and
    :meth:`close` closes it. Faults and bytes have the requested names.
    """

    def __init__(self, source: Transport, open_place: Callable[[str], Transport]) -> None:
        self._opened: dict[str, Transport] = {}
        self._source = source
        self._open = open_place

    @property
    def source(self) -> str:
        """The name of all places together, for the user."""
        return "archive files named by a person"

    @property
    def stats(self) -> TransportStats:
        """The requests and bytes spent at all places."""
        place_stats = [self._source.stats, *(transport.stats for transport in self._opened.values())]
        return TransportStats(
            requests=sum(stats.requests for stats in place_stats), bytes=sum(stats.bytes for stats in place_stats)
        )

    def url(self, name: str) -> str:
        """Returns the address of a file."""
        root, _ = place_of(name)
        return name if root else self._source.url(name)

    def head(self, name: str) -> ObjectInfo | None:
        """As ``Transport.head``."""
        place, key = self._locate(name)
        return place.head(key)

    def read(self, name: str, offset: int, length: int, etag: str | None = None) -> RangeBytes:
        """As ``Transport.read``."""
        place, key = self._locate(name)
        try:
            return replace(place.read(key, offset, length, etag), key=name)
        except RangeFault as fault:
            raise _with_name(fault, ByteRange(name, offset, length)) from fault

    def read_many(self, requests: Iterable[ByteRange]) -> Iterator[RangeBytes | RangeFault]:
        """Reads as ``Transport.read_many``; neighbouring ranges of one place are requested concurrently."""
        for root, neighbours in groupby(requests, lambda byte_range: place_of(byte_range.key)[0]):
            place_ranges = (
                replace(byte_range, key=place_of(byte_range.key)[1], tag=byte_range) for byte_range in neighbours
            )
            for outcome in self._place_at(root).read_many(place_ranges):
                byte_range = outcome.tag
                assert isinstance(byte_range, ByteRange)
                if isinstance(outcome, RangeFault):
                    yield _with_name(outcome, byte_range)
                else:
                    yield replace(outcome, key=byte_range.key, tag=byte_range.tag)

    def close(self) -> None:
        """Ends the connections to places opened here."""
        for place in self._opened.values():
            place.close()
        self._opened.clear()

    def _locate(self, name: str) -> tuple[Transport, str]:
        root, key = place_of(name)
        return self._place_at(root), key

    def _place_at(self, root: str) -> Transport:
        if root and root not in self._opened:
            self._opened[root] = self._open(root)
        return self._opened[root] if root else self._source


def _with_name(fault: RangeFault, byte_range: ByteRange) -> RangeFault:
    """Returns a fault of a place under the requested name."""
    return range_fault(
        fault.kind, byte_range.key, fault.offset, fault.length, fault.detail, fault.attempts, tag=byte_range.tag
    )
