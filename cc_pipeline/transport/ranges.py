"""What goes into a transport and what comes out of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes to read: ``length`` bytes from ``offset``, or the last ``length`` when ``offset`` is ``None``.

    ``etag`` is what the object must still be; ``tag`` is handed back untouched with the bytes or the fault.
    """

    key: str
    offset: int | None
    length: int
    etag: str | None = None
    tag: object = None


@dataclass(frozen=True, slots=True)
class RangeBytes:
    """Verified bytes: ``data`` starts at ``offset`` of the object, which is ``total`` bytes long."""

    key: str
    offset: int
    data: bytes
    total: int
    etag: str | None
    attempts: int
    tag: object = None


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object that exists: its size in bytes (``None`` when the place does not say) and its ETag if it has one."""

    key: str
    size: int | None
    etag: str | None


@dataclass(slots=True)
class TransportStats:
    """Counted since the transport was made. Seconds are summed over all requests, which run side by side."""

    requests: int = 0
    bytes: int = 0
    retries: int = 0
    budget_seconds: float = 0.0
    retry_seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
