"""Random numbers, UUIDs and digests that depend on the seed and a label, and on nothing else."""

from __future__ import annotations

import base64
import hashlib
import uuid
from random import Random


def _derived(seed: int, labels: tuple[object, ...], size: int) -> bytes:
    text = "\x1f".join((str(seed), *(str(label) for label in labels)))
    return hashlib.blake2b(text.encode(), digest_size=size).digest()


def number(seed: int, *labels: object) -> int:
    """A whole number from 0 to 2**64 - 1 for these labels (numbers and text only: their ``str`` is hashed)."""
    return int.from_bytes(_derived(seed, labels, 8), "big")


def generator(seed: int, *labels: object) -> Random:
    """A fresh random generator for these labels."""
    return Random(number(seed, *labels))


def identifier(seed: int, *labels: object) -> uuid.UUID:
    """A version 4 UUID for these labels."""
    return uuid.UUID(bytes=_derived(seed, labels, 16), version=4)


def ordered_identifier(milliseconds: int, seed: int, *labels: object) -> uuid.UUID:
    """A version 7 UUID: ``milliseconds`` since 1970 in front, the labels' bytes behind."""
    raw = bytearray(milliseconds.to_bytes(6, "big") + _derived(seed, labels, 10))
    raw[6] = 0x70 | raw[6] & 0x0F
    raw[8] = 0x80 | raw[8] & 0x3F
    return uuid.UUID(bytes=bytes(raw))


def sha1_base32(data: bytes) -> str:
    """The digest as WARC headers and indexes write it, without a prefix (32 characters)."""
    return base64.b32encode(hashlib.sha1(data, usedforsecurity=False).digest()).decode()
