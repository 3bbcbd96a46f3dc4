"""Input digests: a hash of what a slice was made from, small enough to be stored inside the commit of its rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

_DIGEST_HEX = 15  # 60 bits: fits the int64 of a Delta application transaction


def input_digest(parts: Mapping[str, object]) -> str:
    """A short hexadecimal digest of ``parts`` (JSON-like values; order of keys does not matter)."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_HEX]


def digest_to_int(digest: str) -> int:
    """The digest as the int64 that Delta stores."""
    return int(digest, 16)


def digest_from_int(value: int) -> str:
    """The inverse of :func:`digest_to_int`."""
    return f"{value:0{_DIGEST_HEX}x}"
