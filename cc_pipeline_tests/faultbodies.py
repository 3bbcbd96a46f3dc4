"""Bodies with something wrong in them; each keeps the length it was given, so that only reading it tells."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping


def error_xml(code: str) -> bytes:
    """An error document in S3's form."""
    message = {"SlowDown": "Please reduce your request rate.", "NoSuchKey": "The specified key does not exist."}
    text = message.get(code, code)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{text}</Message>'
        "<RequestId>0000000000000000</RequestId><HostId>loopback</HostId></Error>"
    ).encode()


def garbage(body: bytes) -> bytes:
    """Noise that is the same every time."""
    seed = zlib.crc32(body)
    noise = bytearray()
    while len(noise) < len(body):
        seed = zlib.crc32(noise[-64:], seed + 1)
        noise += struct.pack("<I", seed)
    return bytes(noise[: len(body)])


def bit_flip(body: bytes) -> bytes:
    """One bit wrong, two thirds into the first gzip member (or the body, where there is none)."""
    end = first_member(body) or len(body)
    at = end * 2 // 3
    return body[:at] + bytes([body[at] ^ 0x10]) + body[at + 1 :] if body else body


def truncated_gzip(body: bytes) -> bytes:
    """The first gzip member loses its second half to zeros."""
    end = first_member(body) or len(body)
    return body[: end // 2] + bytes(end - end // 2) + body[end:]


def wrong_target(body: bytes) -> bytes:
    """The first member becomes a good record of another URL, in exactly as many bytes."""
    end = first_member(body)
    if not end:
        return body
    return packed(_other_urls(zlib.decompress(body[:end], 31)), end) + body[end:]


def packed(contents: Iterable[bytes], length: int) -> bytes:
    """The first of ``contents`` that fits, as a gzip member of exactly ``length`` bytes; a comment fills what is over.

    Raises ``ValueError`` where none fits.
    """
    for content in contents:
        for level, memory in ((9, 9), (6, 8), (9, 8), (6, 9)):
            packer = zlib.compressobj(level, zlib.DEFLATED, -15, memory)
            deflated = packer.compress(content) + packer.flush()
            if (spare := length - 18 - len(deflated)) >= 0:
                head = b"\x1f\x8b\x08" + (b"\x10" if spare else b"\x00") + bytes(6)
                comment = b" " * (spare - 1) + b"\0" if spare else b""
                return head + comment + deflated + struct.pack("<II", zlib.crc32(content), len(content))
    raise ValueError("the changed record does not fit; make the record larger")


def _other_urls(plain: bytes) -> Iterator[bytes]:
    """The record with one letter of its URL replaced; without fields that nobody needs, to be shorter; with nothing in
    it."""
    match = re.search(rb"(?im)^WARC-Target-URI:\s*<?https?://([a-z0-9])", plain[:8192]) or re.match(
        rb"https?://([a-z0-9])", plain
    )
    if match is None:
        yield plain
        return
    at = match.start(1)
    changed = plain[:at] + (b"y" if plain[at : at + 1] != b"y" else b"z") + plain[at + 1 :]
    yield changed
    yield without_fields(changed)
    yield with_block(without_fields(changed), b"")


def without_fields(plain: bytes) -> bytes:
    """A WARC record without fields that nobody needs."""
    return re.sub(rb"(?m)^WARC-(?:Concurrent-To|Warcinfo-ID|IP-Address):[^\n]*\n", b"", plain, count=3)


def with_block(plain: bytes, block: bytes) -> bytes:
    """A WARC or ARC record that is as long as it says, with another block."""
    if not plain.startswith(b"WARC/"):
        line = plain[: plain.index(b"\n")].rpartition(b" ")[0]
        return b"%b %d\n%b\n" % (line, len(block), block)
    head = plain[: plain.index(b"\r\n\r\n")]
    head = re.sub(rb"(?im)^Content-Length:[^\r\n]*", b"Content-Length: %d" % len(block), head)
    return head + b"\r\n\r\n" + block + b"\r\n\r\n"


def first_member(body: bytes) -> int | None:
    """Length in bytes of the gzip member at the start, ``None`` when there is no whole one."""
    if body[:2] != b"\x1f\x8b":
        return None
    unpacker = zlib.decompressobj(31)
    try:
        unpacker.decompress(body)
    except zlib.error:
        return None
    return len(body) - len(unpacker.unused_data) if unpacker.eof else None


BODY_FAULTS: Mapping[str, Callable[[bytes], bytes]] = {
    "garbage": garbage,
    "bit_flip": bit_flip,
    "truncated_gzip": truncated_gzip,
    "wrong_target": wrong_target,
}
