"""Archive files that lie: each is a whole file made from the true one, as long and the same every time.

A range of such a file is wrong in the same way however often it is asked for, and whichever range it is.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from cc_pipeline_tests.faultbodies import bit_flip, packed, with_block, without_fields, wrong_target

_MAGIC = b"\x1f\x8b\x08"
_RECORDS = (".warc.gz", ".arc.gz")
_PIECE = 1 << 16
_PAGE = b"<html><title>Log in</title><form action=/login><input name=user><input name=password></form></html>"
_HTTP = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b"


def members(data: bytes) -> Iterator[tuple[int, int]]:
    """Where each whole gzip member of a file begins and ends; what lies between them is passed over."""
    at = data.find(_MAGIC)
    while at >= 0:
        end = _end_of_member(data, at)
        if end is not None:
            yield at, end
        at = data.find(_MAGIC, at + 1 if end is None else end)


def _end_of_member(data: bytes, at: int) -> int | None:
    unpacker = zlib.decompressobj(31)
    while at < len(data) and not unpacker.eof:
        piece = data[at : at + _PIECE]
        try:
            unpacker.decompress(piece)
        except zlib.error:
            return None
        at += len(piece)
    return at - len(unpacker.unused_data) if unpacker.eof else None


def by_member(lie: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """The lie about a file that tells ``lie`` of each of its members."""

    def told(data: bytes) -> bytes:
        lied = bytearray(data)
        for begin, end in members(data):
            lied[begin:end] = lie(data[begin:end])
        return bytes(lied)

    return told


def _login_page(member: bytes) -> bytes:
    """A good record of the same URL whose payload is a login page. What is no page of the web stays as it is."""
    plain = zlib.decompress(member, 31)
    if not re.match(rb"(?s)WARC/.{0,2000}?^WARC-Type: response|https?://", plain, re.MULTILINE):
        return member
    pages = [with_block(plain, _HTTP % (len(page), page)) for page in (_PAGE, _PAGE[:26], b"?")]
    return packed((*pages, *map(without_fields, pages)), len(member))


def _zeros(data: bytes) -> bytes:
    return bytes(len(data))


def _shifted(data: bytes) -> bytes:
    """What is asked for at an offset is what lies one byte behind it."""
    return data[1:] + b"\0"


#: A whole ``.warc.gz`` or ``.arc.gz`` file in, one of the same length out.
LIES: Mapping[str, Callable[[bytes], bytes]] = {
    "bit_each": by_member(bit_flip),
    "login_page": by_member(_login_page),
    "other_url": by_member(wrong_target),
    "shifted": _shifted,
    "zeros": _zeros,
}


def is_archive(key: str) -> bool:
    """Whether ``key`` is a file of records."""
    return key.endswith(_RECORDS)


def lied(kind: str, path: Path) -> bytes:
    """What a server that lies has in the place of a file."""
    found = path.stat()
    return _lied(kind, path, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=64)
def _lied(kind: str, path: Path, modified: int, size: int) -> bytes:
    """Told once of each version of a file."""
    return LIES[kind](path.read_bytes())
