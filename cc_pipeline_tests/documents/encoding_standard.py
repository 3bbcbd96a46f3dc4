"""What the WHATWG Encoding Standard makes of bytes in each encoding, and the URL Standard of characters in queries.

The questions are generated here: every sequence of one and two bytes and the longer ones that an encoding has, bytes
that follow no rule, and texts that end within a character. ``encoding_standard.json`` has digests of the answers that
the package @exodus/bytes gave to them (``TextDecoder`` and ``percentEncodeAfterEncoding``), an implementation with
tables of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path

DIGESTS = Path(__file__).with_suffix(".json")
#: The encodings of the standard but "replacement", which is one character for any bytes.
ENCODINGS = tuple(
    "UTF-8 IBM866 ISO-8859-2 ISO-8859-3 ISO-8859-4 ISO-8859-5 ISO-8859-6 ISO-8859-7 ISO-8859-8 ISO-8859-8-I "
    "ISO-8859-10 ISO-8859-13 ISO-8859-14 ISO-8859-15 ISO-8859-16 KOI8-R KOI8-U macintosh windows-874 windows-1250 "
    "windows-1251 windows-1252 windows-1253 windows-1254 windows-1255 windows-1256 windows-1257 windows-1258 "
    "x-mac-cyrillic GBK gb18030 Big5 EUC-JP ISO-2022-JP Shift_JIS EUC-KR UTF-16BE UTF-16LE x-user-defined".split()
)

#: Text of bytes in an encoding; the address of a link in a page of an encoding.
Decode = Callable[[bytes, str], str]
Resolve = Callable[[str, str], str]

_BYTES = [bytes([value]) for value in range(256)]
_PAIRS = [first + second for first, second in product(_BYTES, _BYTES)]
_ESCAPES = (b"\x1b(B", b"\x1b(J", b"\x1b(I", b"\x1b$@", b"\x1b$B", b"\x1b(X", b"\x1b$")
#: Bytes at which decoders change their state.
_TURNS = [
    bytes([value]) for value in b"\x00\x0e\x1b\x21$(0@BIJ\x5c\x7e\x7f\x80\x81\x8e\x8f\xa0\xa1\xb0\xc6\xd8\xfe\xff"
]
_UNITS = [b"\xd8\x00", b"\xdb\xff", b"\xdc\x00", b"\xdf\xff", b"a\x00"]
_RANDOM_BYTES = 1 << 17
_PIECE = 4096


def _sequences(name: str) -> Iterator[bytes]:
    if name == "ISO-2022-JP":
        yield from (escape + pair + b"\x1b(B" for escape in _ESCAPES for pair in _PAIRS)
        yield from (b"\x1b" + pair + b"a\x1b(B" for pair in _PAIRS)
        return
    yield from _BYTES
    yield from _PAIRS
    if name == "EUC-JP":
        yield from (b"\x8f" + pair for pair in _PAIRS)
    elif name in ("gb18030", "GBK"):
        high, digits = _BYTES[0x81:0xFF], _BYTES[0x30:0x3A]
        yield from map(b"".join, product(high, digits, high, digits))
    elif name == "UTF-8":
        yield from (lead + pair for lead in _BYTES[0xE0:0xF0] for pair in _PAIRS)
        yield from (b"".join([lead, *rest, b"\xbf"]) for lead in _BYTES[0xF0:] for rest in product(_TURNS, _BYTES))
    elif name.startswith("UTF-16"):
        yield from (unit + pair for unit in _UNITS for pair in _PAIRS)


def every_sequence(name: str) -> bytes:
    """All sequences as one text, each on a line of its own."""
    end = {"UTF-16LE": b"\n\0", "UTF-16BE": b"\0\n"}.get(name, b"\n")
    return end.join(_sequences(name))


def random_bytes(name: str) -> bytes:
    """Bytes that follow no rule, the same each time; a half of them are those of ``name`` at which decoders turn."""
    drawn = hashlib.shake_128(name.encode()).digest(2 * _RANDOM_BYTES)
    turns = [*_BYTES[0x21:0x7F], *_ESCAPES * 12] if name == "ISO-2022-JP" else [*_BYTES[0x80:], *_TURNS * 4]
    pairs = zip(drawn[::2], drawn[1::2], strict=True)
    return b"".join(turns[value % len(turns)] if kind < 128 else bytes([value]) for kind, value in pairs)


def cut_texts(name: str) -> Iterator[bytes]:
    """Texts that end within a character, or may."""
    starts = (b"", b"\x1b$B", b"\x1b(I", b"\x1b(J") if name == "ISO-2022-JP" else (b"", b"\x81\x30", b"\x8f")
    for start, first, last in product(starts, _BYTES, (b"", *_TURNS)):
        yield start + first + last


def links(*, beyond: bool) -> Iterator[str]:
    """Addresses with every character in their queries: those of the Basic Multilingual Plane, or those ``beyond``."""
    values = range(0x10000, 0x110000) if beyond else range(0x10000)
    for start in values[::_PIECE]:
        piece = (chr(value) for value in range(start, start + _PIECE) if not 0xD800 <= value <= 0xDFFF)
        # tabs and line ends are no part of an address, "#" begins its fragment, and white space ends no address
        yield "http://example.org/?" + "".join(piece).translate(dict.fromkeys(map(ord, "\t\n\r#"))) + "z"


def _digest(texts: Iterable[str]) -> str:
    total = hashlib.sha256()
    for text in texts:
        total.update(text.encode())
    return total.hexdigest()


def decoded_digests(name: str, decode: Decode) -> dict[str, str]:
    """Digests of an encoding's texts, by what was decoded."""
    return {
        "sequences": _digest([decode(every_sequence(name), name)]),
        "random": _digest([decode(random_bytes(name), name)]),
        "cut": _digest(decode(data, name) + "\n" for data in cut_texts(name)),
    }


def link_digest(name: str, resolve: Resolve, *, beyond: bool) -> str:
    """The digest of the addresses that links have in a page of an encoding."""
    return _digest(resolve(address, name) for address in links(beyond=beyond))
