"""Writes the source of a record into its own WARC header without inflating or deflating a byte of it.

A deflate stream is a sequence of blocks, and a block can hold plain bytes. So new header lines go in as one
plain block before the original stream, which follows untouched:

    WARC/1.0                                  |
    WARC-Source-URI: https://…/x.warc.gz      |  one stored block
    WARC-Source-Range: bytes=100-219          |
    WARC-Source-Version: WARC/1.0             |  <- from here on the original stream
    WARC-Type: response …

The old version line becomes the value of the last new field, every other byte stays as it was, and only the
checksum and the length at the member's end are written anew (RFC 1951 section 3.2.4, RFC 1952). The names of the
first two fields are those cdx_toolkit writes.
"""

from __future__ import annotations

import re
import struct
import zlib
from typing import Final

from isal import isal_zlib

from cc_pipeline.errors import DataFault, DataKind

_PLAIN_HEAD: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_VERSION = re.compile(rb"WARC/\d\.\d+[ \t]*(\r?\n)")
_ADDED = re.compile(
    rb"WARC/1\.0\r?\nWARC-Source-URI: ([^\r\n]*)\r?\nWARC-Source-Range: bytes=(\d+)-(\d+)\r?\nWARC-Source-Version: "
)
_LINE_ENDS: Final = str.maketrans("", "", "\r\n\0")
_MAX_BLOCK: Final = 0xFFFF
_FEXTRA, _FNAME, _FCOMMENT, _FHCRC = 4, 8, 16, 2
_TRAILER: Final = 8
_ZEROS: Final = bytes(1 << 18)


def wrap_member(member: bytes, content: bytes, source_uri: str, offset: int) -> bytes:
    """Returns ``member`` (one whole gzip member with one WARC record, whose inflated bytes are ``content``) with
    ``WARC-Source-URI`` and ``WARC-Source-Range`` in its header.

    The range is the location of the member in its source. A member whose first line is no version line stays as it is;
    a record that was not gzipped becomes a member.
    """
    gzipped = member[:2] == b"\x1f\x8b"
    version = _VERSION.match(content)
    if version is None:
        return member if gzipped else _deflated(content)
    added = _added_lines(source_uri, offset, len(member), version[1])
    if not gzipped or len(added) > _MAX_BLOCK:
        return _deflated(added + content)
    body = member[_deflate_start(member) : -_TRAILER]
    stored = b"\x00" + struct.pack("<HH", len(added), len(added) ^ 0xFFFF) + added
    checksum = isal_zlib.crc32(content, isal_zlib.crc32(added))
    trailer = struct.pack("<II", checksum, (len(added) + len(content)) & 0xFFFFFFFF)
    return b"".join((_PLAIN_HEAD, stored, body, trailer))


def unwrap_member(stored: bytes) -> bytes:
    """Returns a stored member as its source had it, except for the gzip header: the added lines are cut off without
    inflating.

    A member without added lines is returned as it is.
    """
    start = len(_PLAIN_HEAD)
    if stored[: start + 1] != _PLAIN_HEAD + b"\x00" or len(stored) < start + 5 + _TRAILER:
        return stored
    length, complement = struct.unpack_from("<HH", stored, start + 1)
    added = stored[start + 5 : start + 5 + length]
    if length ^ complement != 0xFFFF or _ADDED.fullmatch(added) is None:
        return stored
    checksum, size = struct.unpack_from("<II", stored, len(stored) - _TRAILER)
    size = (size - length) & 0xFFFFFFFF
    trailer = struct.pack("<II", checksum ^ _crc_followed_by(isal_zlib.crc32(added), size), size)
    return b"".join((_PLAIN_HEAD, stored[start + 5 + length : -_TRAILER], trailer))


def _added_lines(source_uri: str, offset: int, length: int, line_end: bytes) -> bytes:
    uri = source_uri.translate(_LINE_ENDS).encode()
    source_range = b"WARC-Source-Range: bytes=%d-%d" % (offset, offset + length - 1)
    return line_end.join((b"WARC/1.0", b"WARC-Source-URI: " + uri, source_range, b"WARC-Source-Version: "))


def _crc_followed_by(checksum: int, size: int) -> int:
    """Returns the contribution of the CRC-32 of some bytes to that of a text with ``size`` more bytes.

    CRC-32 is linear, so crc(a + b) is crc(b) xor a term that depends only on crc(a) and the length of b. Zeros in place
    of b give this term.
    """
    plain = 0
    while size > 0:
        zeros = _ZEROS if size >= len(_ZEROS) else bytes(size)
        checksum, plain = isal_zlib.crc32(zeros, checksum), isal_zlib.crc32(zeros, plain)
        size -= len(zeros)
    return checksum ^ plain


def _deflated(content: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    return packer.compress(content) + packer.flush()


def _deflate_start(member: bytes) -> int:
    """Returns the position at which the deflate stream of a gzip member begins."""
    options = member[3]
    position = 10
    if options & _FEXTRA:
        position += 2 + int.from_bytes(member[10:12], "little")
    for option in (_FNAME, _FCOMMENT):
        if options & option:
            position = member.index(b"\0", position) + 1
    if options & _FHCRC:
        position += 2
    if position + _TRAILER > len(member):
        raise DataFault(DataKind.GZIP_CORRUPT, "gzip member", 0, "its header is longer than the member")
    return position
