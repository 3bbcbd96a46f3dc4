"""The requests and results of a transport, and its retry policy: when to try again, and after how long."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.transport.faults import PERMANENT_KINDS, FaultKind, Finding

#: Numbers requests in the order in which they are sent; of all transports of a process, no two have the same.
REQUEST_NUMBERS: Final = itertools.count(1)

#: Kinds for which a few tries are enough; more would only load the source.
_FEW: Mapping[FaultKind, int] = {
    # in between the source has answered others
    FaultKind.FORBIDDEN: 2,
    FaultKind.WHOLE_OBJECT: 3,
    FaultKind.LONG_BODY: 3,
    FaultKind.WRONG_RANGE: 3,
}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """``attempts`` in all, the first included; ``few`` overrides it by kind. Waits are in seconds.

    The next wait is drawn between ``base`` and three times the last one, at most ``longest`` ("decorrelated
    jitter"), so that many clients that failed together do not come back together. A ``Retry-After`` is
    waited for by all requests to the host together (``gate.py``).
    """

    attempts: int = 6
    base: float = 0.5
    longest: float = 30.0
    few: Mapping[FaultKind, int] = field(default_factory=lambda: _FEW)

    def most(self, finding: Finding) -> int:
        """Attempts in all where they end like this."""
        return min(self.attempts, self.few.get(finding.kind, self.attempts))

    def next_wait(self, finding: Finding, attempt: int, last_wait: float) -> float | None:
        """Seconds to wait before the attempt after ``attempt`` (from 1), ``None`` to give up."""
        if finding.final or finding.kind in PERMANENT_KINDS or attempt >= self.most(finding):
            return None
        return min(self.longest, random.uniform(self.base, max(self.base, last_wait * 3)))


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes to read: ``length`` bytes from ``offset``, or the last ``length`` when ``offset`` is ``None``.

    ``etag`` is what the object must still be, as the transport gave it (or any of several, ``etags.any_of``), and
    ``total`` how many bytes it must have;
    ``tag`` is handed back untouched with the bytes or the fault. ``tries`` lowers the number of attempts at one place
    (``None``: as the retry policy says). ``avoid`` are places (``RangeBytes.source``) that are asked only when no other
    has the bytes. ``ends`` are offsets, in order, where records of an explicit range end: a long one is given in pieces
    that end there (``pieces.py``), by a transport of one place.
    ``or_less``: an object that ends before the range does gives what there is of it. ``whole_up_to``: where a place
    sends the whole object instead, a range that ends within so many bytes of it is taken out of it.
    """

    key: str
    offset: int | None
    length: int
    etag: str | None = None
    tag: object = None
    tries: int | None = None
    total: int | None = None
    avoid: frozenset[str] = frozenset()
    ends: tuple[int, ...] = ()
    or_less: bool = False
    whole_up_to: int = 0


@dataclass(frozen=True, slots=True)
class RangeBytes:
    """Verified bytes: ``data`` starts at ``offset`` of the object, which is ``total`` bytes long (``None``: the place
    does not say; it is known of each end and each whole object).

    ``source`` is the place that gave them, fit to be shown. ``attempts`` are the requests to the place that was asked
    most. ``unknown``: a place that would have been asked before this one gave no answer, so that it may have others.
    ``first``: of the pieces that one answer gave. ``request`` numbers the request that they came of: equal bytes are
    evidence of each other only where it differs.
    """

    key: str
    offset: int
    data: bytes
    total: int | None
    etag: str | None
    attempts: int
    tag: object = None
    source: str = ""
    unknown: bool = False
    first: bool = True
    request: int = field(default_factory=REQUEST_NUMBERS.__next__)

    @property
    def size(self) -> int:
        """``total`` where it must be known. Raises ``EnvironmentFault``."""
        if self.total is None:
            raise EnvironmentFault(
                f"the size of {self.key} is not known", "Use a source whose answers say how large a file is"
            )
        return self.total


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object that exists: its size in bytes (``None`` when the place does not say) and its ETag if it has one."""

    key: str
    size: int | None
    etag: str | None


@dataclass(slots=True)
class TransportStats:
    """Counted since the transport was made.

    ``served`` are the answers of each place where there are several, ``differing`` objects that have other lengths at
    other places, each as a sentence.
    """

    requests: int = 0
    bytes: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    served: Counter[str] = field(default_factory=Counter)
    differing: dict[str, str] = field(default_factory=dict)
