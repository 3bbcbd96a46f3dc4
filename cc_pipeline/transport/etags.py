"""ETags of several places: each says whose it is, because those of different hosts say nothing about each other.

Where there is one place its ETags stay as they came. So tables of before keep theirs; it is not known whose they are
once there are several places, and they are no evidence then.
"""

from __future__ import annotations

from typing import Final

_AT: Final = " @ "


def named(etag: str | None, place: str) -> str | None:
    """``etag`` as one of ``place``."""
    return None if etag is None else f"{etag}{_AT}{place}"


def expected_at(etag: str | None, place: str, *, alone: bool) -> str | None:
    """What ``place`` must answer with where ``etag`` is expected; ``None`` where that says nothing about this place.

    An ETag that names no place is the place's own where it is ``alone``.
    """
    if etag is None:
        return None
    plain, separator, of = etag.rpartition(_AT)
    if not separator:
        return etag if alone else None
    return plain if of == place else None


def is_another(now: str | None, then: str | None) -> bool:
    """Whether an object's ETag says that it is not what it was. An ETag of another place says nothing."""
    if now is None or now == then:
        return False
    return then is None or _place_of(now) == _place_of(then)


def _place_of(etag: str) -> str:
    return etag.rpartition(_AT)[2] if _AT in etag else ""
