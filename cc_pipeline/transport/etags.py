"""ETags of several places: each says whose it is, because those of different hosts say nothing about each other.

Where there is one place its ETags stay as they came. So tables of before keep theirs; it is not known whose they are
once there are several places, and they are no evidence then. What is expected of an object may be any of several ETags.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_AT: Final = " @ "
#: No ETag has spaces in it (RFC 9110, 8.8.3).
_OR: Final = " | "


def named(etag: str | None, place: str) -> str | None:
    """``etag`` as one of ``place``."""
    return None if etag is None else f"{etag}{_AT}{place}"


def any_of(etags: Iterable[str]) -> str:
    """What is expected of an object that has several ETags, as ``ByteRange.etag`` takes it."""
    return _OR.join(etags)


def is_one_of(found: str, expected: str) -> bool:
    """Whether an answer's ETag is one that is expected. Strong and weak are alike: what matters is whether the object
    was replaced."""
    return found.removeprefix("W/") in (one.removeprefix("W/") for one in expected.split(_OR))


def expected_at(etag: str | None, place: str, *, alone: bool) -> str | None:
    """What ``place`` must answer with where ``etag`` is expected; ``None`` where that says nothing about this place.

    An ETag that names no place is the place's own where it is ``alone``.
    """
    if etag is None:
        return None
    own = []
    for one in etag.split(_OR):
        plain, separator, of = one.rpartition(_AT)
        if of == place if separator else alone:
            own.append(plain if separator else one)
    return any_of(own) or None


def is_another(now: str | None, then: str | None) -> bool:
    """Whether an object's ETag says that it is not what it was. An ETag of another place says nothing."""
    if now is None or now == then:
        return False
    return then is None or (
        not is_one_of(now, then) and any(_place_of(now) == _place_of(one) for one in then.split(_OR))
    )


def _place_of(etag: str) -> str:
    return etag.rpartition(_AT)[2] if _AT in etag else ""
