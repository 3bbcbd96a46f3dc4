"""Partition keys of targets: safe as file names, stable, and never shared by two targets.

A plain domain is its own slug. All others carry an underscore, which no domain that is its own slug has; where the
definition does not survive as it is, 64 bits of its hash are appended. A named set is ``set-NAME`` whatever its
members; no domain has a slug without a dot, and set names have none.
"""

from __future__ import annotations

import hashlib
import re

from cc_pipeline.commoncrawl.hostnames import Place

MAX_SLUG = 120
_SPEAKING = 80
_AS_IT_IS = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9-])?")
_ODD = re.compile(r"[^a-z0-9.-]+|\.{2,}")


def place_slug(kind: str, place: Place) -> str:
    """Slug of a target that is a host and perhaps a port: ``example.com``, ``example.com_8080``, ``host_www.x.org``."""
    if not _is_safe(place.host):
        return hashed_slug(kind, str(place))
    speaking = place.host if kind == "domain" else f"{kind}_{place.host}"
    return speaking if place.port is None else f"{speaking}_{place.port}"


def value_slug(kind: str, value: str) -> str:
    """Slug of any other value, with a hash only where it needs one: ``rev_com.nytimes.blogs``."""
    return f"{kind}_{value}" if _is_safe(value) else hashed_slug(kind, value)


def hashed_slug(kind: str, value: str) -> str:
    """Slug of any value: what can be shown of it, and a hash."""
    speaking = _ODD.sub("-", value.lower()).strip(".-")[:_SPEAKING].rstrip(".-")
    digest = hashlib.sha256(f"{kind}:{value}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return "_".join(part for part in (kind, speaking, digest) if part)


def set_slug(name: str) -> str:
    """Slug of a named set."""
    return f"set-{name}"


def _is_safe(value: str) -> bool:
    return len(value) <= _SPEAKING and _AS_IT_IS.fullmatch(value) is not None and ".." not in value
