"""The requests and results of a transport, and its retry policy: whether to try again, and after how long."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.transport.faults import PERMANENT_KINDS, FaultKind, Finding

#: Numbers requests in the order in which they are sent, uniquely within a process.
REQUEST_NUMBERS: Final = itertools.count(1)

#: Kinds for which a few attempts are enough; more would only load the source.
_ATTEMPTS_BY_KIND: Mapping[FaultKind, int] = {
    # in between the source has answered others
    FaultKind.FORBIDDEN: 2,
    FaultKind.WHOLE_OBJECT: 3,
    FaultKind.LONG_BODY: 3,
    FaultKind.WRONG_RANGE: 3,
}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The total ``attempts``, the first included; ``attempts_by_kind`` overrides them by kind. Waits are in seconds.

    The next wait is drawn between ``base`` and three times the last one, at most ``longest`` ("decorrelated jitter"),
    so that clients that failed together do not retry together. For a ``Retry-After`` all requests to the host wait
    together (``rate_limiter.py``).
    """

    attempts: int = 6
    base: float = 0.5
    longest: float = 30.0
    attempts_by_kind: Mapping[FaultKind, int] = field(default_factory=lambda: _ATTEMPTS_BY_KIND)

    def max_attempts(self, finding: Finding) -> int:
        """Returns the total attempts for a finding of this kind."""
        return min(self.attempts, self.attempts_by_kind.get(finding.kind, self.attempts))

    def next_wait(self, finding: Finding, attempt: int, last_wait: float) -> float | None:
        """Returns the seconds to wait before the attempt after ``attempt`` (from 1), ``None`` to give up."""
        if finding.final or finding.kind in PERMANENT_KINDS or attempt >= self.max_attempts(finding):
            return None
        return min(self.longest, random.uniform(self.base, max(self.base, last_wait * 3)))


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes to read: ``length`` bytes from ``offset``, or the last ``length`` when ``offset`` is ``None``.

    The object must still have the ETag ``etag``, as the transport gave it, and ``total`` bytes. ``tag`` is returned
    untouched with the bytes or the fault. ``tries`` lowers the number of attempts (``None``: as in the retry policy).
    ``ends`` are the offsets, in order, at which records of an explicit range end: a long range comes in pieces that end
    there (``pieces.py``). ``may_be_short``: if the object ends before the range, the bytes up to its end are enough.
    ``max_object_bytes``: if the source sends the whole object instead, a range that ends within so many bytes is taken
    out of it."""

    key: str
    offset: int | None
    length: int
    etag: str | None = None
    tag: object = None
    tries: int | None = None
    total: int | None = None
    ends: tuple[int, ...] = ()
    may_be_short: bool = False
    max_object_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RangeBytes:
    """Verified bytes: ``data`` starts at ``offset`` of the object, which is ``total`` bytes long (``None``: the source
    does not say; it is known of each end and each whole object).

    ``attempts`` are the requests sent. ``first``: the first piece of an answer. ``request`` is the number of the
    request: equal bytes confirm each other only if it differs."""

    key: str
    offset: int
    data: bytes
    total: int | None
    etag: str | None
    attempts: int
    tag: object = None
    first: bool = True
    request: int = field(default_factory=REQUEST_NUMBERS.__next__)

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
    faults: Counter[str] = field(default_factory=Counter)
