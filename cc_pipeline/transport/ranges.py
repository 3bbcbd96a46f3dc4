"""The requests and results of a transport, and its retry policy."""

from __future__ import annotations

import random
from dataclasses import dataclass

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.transport.faults import Finding, handling_of


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a failed request is sent again: as the table of faults says (``faults.FAULTS``), ``attempts`` requests
    in all at most. Waits are in seconds.

    The next wait is drawn between ``base`` and three times the last one, at most ``longest`` ("decorrelated jitter"),
    so that clients that failed together do not retry together.
    """

    attempts: int = 6
    base: float = 0.5
    longest: float = 30.0

    def is_exhausted(self, finding: Finding, attempts: int) -> bool:
        """Whether a request that failed ``attempts`` times, the last time with ``finding``, is given up."""
        return finding.final or attempts >= min(self.attempts, 1 + handling_of(finding.kind).retry_now)

    def next_wait(self, last_wait: float) -> float:
        """Returns the seconds to wait after ``last_wait``, the wait before (0: there was none)."""
        return min(self.longest, random.uniform(self.base, max(2 * self.base, last_wait * 3)))


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes to read: ``length`` bytes from ``offset``, or the last ``length`` when ``offset`` is ``None``.

    The object must still have the ETag ``etag``, as the transport gave it, and ``total`` bytes. ``tag`` is returned
    untouched with the bytes or the fault. ``may_be_short``: if the object ends before the range, the bytes up to its
    end are enough. ``max_object_bytes``: if the source sends the whole object instead, a range that ends within so many
    bytes is taken out of it."""

    key: str
    offset: int | None
    length: int
    etag: str | None = None
    tag: object = None
    total: int | None = None
    may_be_short: bool = False
    max_object_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RangeBytes:
    """Verified bytes: ``data`` starts at ``offset`` of the object, which is ``total`` bytes long (``None``: the source
    does not say; it is known of each end and each whole object).

    ``attempts`` are the requests sent."""

    key: str
    offset: int
    data: bytes
    total: int | None
    etag: str | None
    attempts: int
    tag: object = None

    @property
    def size(self) -> int:
        """The ``total``. Raises ``EnvironmentFault`` if it is not known."""
        if self.total is None:
            raise EnvironmentFault(
                f"the source does not tell the size of {self.key}",
                "Use a source that sends Content-Range or Content-Length",
            )
        return self.total


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object that exists: its size in bytes (``None`` when the source does not say) and its ETag if it has one."""

    key: str
    size: int | None
    etag: str | None


@dataclass(slots=True)
class TransportStats:
    """Counts since the transport was created."""

    requests: int = 0
    bytes: int = 0
