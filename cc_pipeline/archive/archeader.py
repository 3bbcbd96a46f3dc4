"""The URL record line of an ARC record, versions 1 and 2 (https://archive.org/web/researcher/ArcFileFormat.php)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cc_pipeline.archive import flags as flag
from cc_pipeline.archive.record import Headers
from cc_pipeline.errors import DataFault

#: Bytes the line may have: the longest URLs seen, many times over.
MAX_LINE: Final = 1 << 16

_V1: Final = ("URL", "IP-address", "Archive-date", "Content-type", "Archive-length")
_V2: Final = (*_V1[:4], "Result-code", "Checksum", "Location", "Offset", "Filename", "Archive-length")
#: What a search for record lines looks for: their dates are rarer than anything else in them.
_DATE_TO_LENGTH = re.compile(rb" \d{8,20} [^\n]{0,250}\d\r?\n")
_ANY_SCHEME = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]{0,30}:")
_KNOWN_SCHEME = re.compile(rb"(?<![A-Za-z0-9])(?:https?|ftp|dns|filedesc|metadata):")
#: A media type with blanks in it: a list, or parameters.
_MIME = re.compile(r"[^ ,;]+(?:[,;]+ ?[^ ,;]*| [^ ,;=]+=[^ ,;]*)*")
_BLANK: Final = b"\r\n"


@dataclass(frozen=True, slots=True)
class ArcHeader:
    """The URL record line: named fields, the content's begin and declared length (bytes; negative: unknown)."""

    fields: Headers
    block_start: int
    block_length: int
    flags: tuple[str, ...]

    @property
    def is_filedesc(self) -> bool:
        """Whether this is the version block that opens a file."""
        return self.fields[0][1].startswith("filedesc:")


def parse_header(data: bytes, source: str, offset: int) -> ArcHeader:
    """Read the URL record line at the begin of ``data`` (empty lines before it are passed over).

    Raises ``DataFault`` where there is none.
    """
    odd: list[str] = []
    start = 0
    if data[:1] in (b"\n", b"\r"):
        start = len(data) - len(data.lstrip(_BLANK))
        odd.append(flag.BLANK_BEFORE)
    end = data.find(b"\n", start, start + MAX_LINE)
    fields = None if end < 0 else split_line(data[start:end])
    if fields is None:
        raise DataFault(source, offset, f"no ARC record line: {data[start : start + 64]!r}")
    length = int(fields[-1][1])
    if length < 0:
        odd.append(flag.UNUSABLE_LENGTH)
    return ArcHeader(fields, end + 1, length, tuple(odd))


def begins_record(data: bytes) -> bool:
    """Whether ``data`` begins with a URL record line."""
    end = data.find(b"\n", 0, MAX_LINE)
    return end >= 0 and split_line(data[:end]) is not None


def record_starts(data: bytes) -> Iterator[int]:
    """Where in ``data`` URL record lines seem to begin, ascending. In the midst of a line one may follow a record
    that was cut off: there, only a known scheme counts. The first byte of ``data`` belongs to what lies before."""
    for tail in _DATE_TO_LENGTH.finditer(data):
        begin = data.rfind(b"\n", max(0, tail.start() - MAX_LINE), tail.start()) + 1
        url = _ANY_SCHEME.match(data, begin) if begin else None
        url = url or _KNOWN_SCHEME.search(data, begin, tail.start())
        if url is not None and split_line(data[url.start() : tail.end() - 1]) is not None:
            yield url.start()


def split_line(line: bytes) -> Headers | None:
    """The named fields of a line without its LF, ``None`` for another kind of line.

    URLs, and now and then media types, have blanks in them; so the line is read from its end.
    """
    text = line.decode("latin-1").removesuffix("\r")
    parts = text.rsplit(" ", 4)
    if len(parts) < 5 or _ANY_SCHEME.match(line) is None or not _is_number(parts[4]):
        return None
    if _is_date(parts[2]):
        return tuple(zip(_V1, parts, strict=True))
    words = text.split(" ")
    if len(words) >= 10 and _is_date(words[-8]) and (_is_number(words[-3]) or words[-3] == "-"):
        return tuple(zip(_V2, (" ".join(words[:-9]), *words[-9:]), strict=True))
    for place in range(len(words) - 4, 1, -1):
        if len(words[place]) >= 10 and _is_date(words[place]):
            url, mime = " ".join(words[: place - 1]), " ".join(words[place + 1 : -1])
            if not _MIME.fullmatch(mime):
                return None
            return tuple(zip(_V1, (url, words[place - 1], words[place], mime, words[-1]), strict=True))
    return None


def _is_number(word: str) -> bool:
    digits = word.removeprefix("-")
    return 0 < len(digits) < 19 and digits.isascii() and digits.isdigit()


def _is_date(word: str) -> bool:
    return word == "-" or (8 <= len(word) <= 20 and word.isascii() and word.isdigit())
