"""One gzip member at a time (RFC 1952), never more memory than the bound.

igzip (ISA-L) inflates about twice as fast as zlib and checks CRC32 and ISIZE itself.
"""

from __future__ import annotations

from typing import Final, NamedTuple, cast

from isal import igzip_lib, isal_zlib

from cc_pipeline.errors import DataFault

GZIP_MAGIC: Final = b"\x1f\x8b\x08"
#: Inflated bytes a single member may have. Common Crawl cuts payloads at 1 to 5 MiB.
DEFAULT_LIMIT: Final = 64 << 20

#: What igzip raises on bytes that are no deflate stream; its stubs call the class an instance.
DAMAGE: Final = cast("type[Exception]", igzip_lib.IsalError)

_GZIP_WINDOW: Final = 31


class InflatedMember(NamedTuple):
    """A complete, checked member: where it starts, its compressed length, its content. Lengths are bytes."""

    offset: int
    consumed: int
    content: bytes


def inflate_member(data: bytes, source: str, offset: int, limit: int = DEFAULT_LIMIT) -> InflatedMember:
    """The first gzip member of ``data``, which lies at ``offset`` of ``source``; bytes behind it are left alone.

    Raises ``DataFault`` where ``data`` does not begin with a member, the member is cut off or damaged, or
    its content is larger than ``limit`` bytes.
    """
    if data[:3] != GZIP_MAGIC:
        raise DataFault(source, offset, describe_non_gzip(data))
    engine = isal_zlib.decompressobj(_GZIP_WINDOW)
    try:
        content = engine.decompress(data, limit + 1)
    except DAMAGE as error:
        raise DataFault(source, offset, f"damaged gzip member ({damage_cause(error)})") from None
    if len(content) > limit:
        raise DataFault(source, offset, f"gzip member inflates beyond {limit} bytes")
    if not engine.eof:
        raise DataFault(source, offset, f"gzip member is cut off after {len(data)} bytes")
    return InflatedMember(offset, len(data) - len(engine.unused_data), content)


def describe_non_gzip(data: bytes) -> str:
    """Why ``data`` is no gzip member, in words that tell an error page from an empty answer."""
    if not data:
        return "no bytes where a gzip member should be"
    if data[:2] == GZIP_MAGIC[:2]:
        return "gzip header names an unknown compression method" if len(data) > 2 else "gzip member is cut off"
    if data.lstrip()[:1] == b"<":
        return f"markup instead of a gzip member: {data.lstrip()[:60].decode('latin-1')!r}"
    return f"not a gzip member: begins with {data[:4].hex(' ')}"


def damage_cause(error: Exception) -> str:
    """What igzip says went wrong, without its error number."""
    return str(error).removeprefix("Error ").lstrip("-0123456789 ").lower() or "cannot be inflated"
