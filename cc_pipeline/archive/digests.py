"""Payload digests: the sha1 we compute, and what records claim."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Final

#: As records spell it, and bare as the index does.
_SHA1: Final = re.compile(r"(?:sha1:)?([A-Z2-7]{32})")
_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_PAIRS: Final = tuple(first + second for first in _ALPHABET for second in _ALPHABET)
_SHIFTS: Final = tuple(range(150, -1, -10))
_ALGORITHMS: Final = {"md5": 16, "sha1": 20, "sha256": 32, "sha384": 48, "sha512": 64}


def sha1_base32(payload: bytes) -> str:
    """SHA-1 in base32, 32 characters: how Common Crawl's index and WARCs spell digests."""
    number = int.from_bytes(hashlib.sha1(payload, usedforsecurity=False).digest())
    return "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])


def declared(value: str | None) -> str | None:
    """A claimed digest made comparable: sha1 as bare upper-case base32, anything else as it stands."""
    if value is None:
        return None
    usual = _SHA1.fullmatch(value)
    if usual is not None:
        return usual[1]
    if not value.strip():
        return None
    value = value.strip()
    algorithm, raw = _parse(value)
    if algorithm == "sha1" and raw is not None:
        return base64.b32encode(raw).decode("ascii")
    return value


def matches(value: str, payload: bytes, computed_sha1: str) -> bool | None:
    """Whether a ``declared`` digest is the payload's; ``None`` where the two cannot be compared."""
    if value == computed_sha1:
        return True
    algorithm, raw = _parse(value)
    if algorithm is None or raw is None:
        return None
    if algorithm == "sha1":
        return base64.b32encode(raw).decode("ascii") == computed_sha1
    return hashlib.new(algorithm, payload, usedforsecurity=False).digest() == raw


def _parse(value: str) -> tuple[str | None, bytes | None]:
    """(algorithm, raw digest) of ``algorithm:text``, the text in hexadecimal, base32 or base64, told by its length."""
    name, colon, text = value.partition(":")
    algorithm = name.lower().replace("-", "") if colon else "sha1"
    size = _ALGORITHMS.get(algorithm)
    if size is None:
        return None, None
    bare = (text if colon else value).strip().rstrip("=")
    try:
        if len(bare) == 2 * size:
            raw = bytes.fromhex(bare)
        elif len(bare) == -(-size * 8 // 5):
            raw = base64.b32decode(bare.upper() + "=" * (-len(bare) % 8))
        else:
            raw = base64.b64decode(bare + "=" * (-len(bare) % 4), altchars=b"-_" if set(bare) & {"-", "_"} else None)
    except (ValueError, binascii.Error):
        return algorithm, None
    return algorithm, raw if len(raw) == size else None
