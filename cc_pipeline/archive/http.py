"""The HTTP message inside a record: status line, headers, dates.

It is read as leniently as by a browser; anomalies are flagged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from cc_pipeline.archive import record as flag
from cc_pipeline.archive.record import Headers

_STRICT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_LOOSE = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?)?)?(Z|[+-]\d\d:?\d\d)?"
)
_DIGITS = re.compile(r"\d{8,20}|(\d{14})[^\s\d]\S{0,20}")

_PLAIN_FIELD = re.compile(r"\r\n([^:\s][^:\r\n]*):[ \t]*([^\r\n]*)")

_STATUS = re.compile(rb"\s*(?:HTTP|ICY)(?:/?[\d.]*)?\s+(\d{3})(?!\d)", re.IGNORECASE)
_STATUS_START = re.compile(rb"\s*(?:HTTP|ICY)[/ \d]", re.IGNORECASE)
#: Interim responses before a final one: more than servers send, few enough to search the message for each.
_MAX_INTERIM = 16
_REQUEST_START = re.compile(rb"[A-Za-z]{3,20} \S+[^\r\n]*")
_FIELD_START = re.compile(rb"[A-Za-z][A-Za-z0-9-]{0,60}:[^\n]*\n")


def warc_date(text: str) -> tuple[datetime | None, bool]:
    """Parses a ``WARC-Date``: returns the time (aware UTC) or ``None``, and whether the spelling is plain.

    WARC 1.0 has whole seconds; WARC 1.1 allows anything from a year to nanoseconds (cut to microseconds).
    """
    if _STRICT.fullmatch(text):
        try:
            return datetime.fromisoformat(text), True
        except ValueError:
            return None, False
    loose = _LOOSE.fullmatch(text.strip())
    if loose is None:
        return digits_date(text)[0], False
    year, month, day, hour, minute, second, fraction, zone = loose.groups()
    micros = ((fraction or "") + "000000")[:6]
    offset = "+00:00" if zone in (None, "Z") else zone
    spelled = f"{year}-{month or '01'}-{day or '01'}T{hour or '00'}:{minute or '00'}:{second or '00'}.{micros}{offset}"
    try:
        return datetime.fromisoformat(spelled).astimezone(UTC), False
    except (ValueError, OverflowError):
        return None, False


def digits_date(text: str) -> tuple[datetime | None, bool]:
    """Parses an ARC date: returns the time (aware UTC) or ``None``, and whether it has the usual 14 digits.

    ARC dates are ``YYYYMMDDhhmmss``. Fewer digits (8 to 13) leave out the small units; of more, only the first 14
    count, since the archives with 16 and 18 digits pad them with zeros. Text after 14 digits is ignored. Month and day
    are swapped if only that gives a date.
    """
    match = _DIGITS.fullmatch(text.strip())
    if match is None:
        return None, False
    is_unusual = bool(match[1])
    text = match[1] or match[0]
    digits = text[:14].ljust(14, "0") if len(text) % 2 == 0 or len(text) > 14 else text[:-1].ljust(14, "0")
    try:
        hour, minute, second = int(digits[8:10]), int(digits[10:12]), int(digits[12:])
        year, month, day = int(digits[:4]), int(digits[4:6]), int(digits[6:8])
        if month > 12 >= day:
            month, day, is_unusual = day, month, True
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC), len(text) == 14 and not is_unusual
    except ValueError:
        return None, False


class FieldLines(NamedTuple):
    """The first line, the fields in order, and the anomalies of the lines."""

    first: str
    fields: Headers
    lf_only: bool
    cr_cr_lf: bool
    folded: bool
    malformed: bool


def header_end(data: bytes, start: int = 0, stop: int | None = None) -> tuple[int, int]:
    """Returns the end of the last header line's text, and the position after the empty line; (-1, -1) without one."""
    stop = len(data) if stop is None else stop
    crlf = data.find(b"\n\r\n", start, stop)
    stop = stop if crlf < 0 else crlf + 1
    bare = data.find(b"\n\n", start, stop)
    if bare >= 0:
        return bare, bare + 2
    crcrlf = data.find(b"\n\r\r\n", start, stop)
    if crcrlf >= 0:
        return crcrlf, crcrlf + 4
    return (crlf, crlf + 3) if crlf >= 0 else (-1, -1)


def split_fields(block: bytes) -> FieldLines:
    """Splits a header block (without the empty line) into its first line and its fields.

    A folded line is joined to the previous one with one space; a line without a colon is kept under an empty name.
    """
    text = block.decode("latin-1").rstrip("\r ")
    fields = _PLAIN_FIELD.findall(text)
    if not len(fields) == text.count("\n") == text.count("\r"):
        return _split_irregular_fields(text)
    if " \r" in text or " :" in text or "\t" in text:
        fields = [(name.strip(), value.strip(" \t")) for name, value in fields]
    return FieldLines(text.partition("\r\n")[0], tuple(fields), False, False, False, False)


def _split_irregular_fields(text: str) -> FieldLines:
    lines = [line.rstrip("\r") for line in text.split("\n")]
    folded = malformed = False
    fields: list[tuple[str, str]] = []
    for line in lines[1:]:
        if line[:1] in (" ", "\t"):
            folded = True
            if fields:
                last, previous_value = fields[-1]
                fields[-1] = (last, f"{previous_value} {line.strip()}".strip())
                continue
        name, colon, value = line.partition(":")
        if colon and name.strip():
            fields.append((name.strip(), value.strip(" \t")))
        elif line:
            malformed = True
            fields.append(("", line))
    lf_only = "\n" in text and "\r\n" not in text
    return FieldLines(lines[0], tuple(fields), lf_only, "\r\r\n" in text, folded, malformed)


def first_values(fields: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Returns the first value of each field by its lower-case name."""
    return {name.lower(): value for name, value in reversed(fields)}


def media_type(value: str | None) -> str | None:
    """Returns ``text/html`` for ``text/html; charset=x``; ``None`` if nothing is left."""
    if value is None:
        return None
    return value.partition(";")[0].strip().lower() or None


def decode_url(raw: str) -> tuple[str, bool]:
    """Decodes a URL in latin-1 decoded header text: returns it as UTF-8 if its bytes are, and whether it is unusual."""
    if raw.isascii():
        return raw, not raw.isprintable() or " " in raw
    try:
        url = raw.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return raw, True
    return url, " " in url


def lost_carriage_returns(block: bytes, declared: int) -> bool:
    """Whether ``block`` can be ``declared`` bytes of text with CR LF line ends after a conversion to LF.

    ``block`` may include the record's end, so a few bytes more than lines are allowed.
    """
    return b"\r" not in block and 0 < declared - len(block.rstrip(b"\n")) <= block.count(b"\n") + 4


class HttpMessage(NamedTuple):
    """A start line (status or request line), fields in order, and the body as stored."""

    start_line: str | None
    status: int | None
    headers: Headers
    body: bytes
    flags: tuple[str, ...]


def parse_response(data: bytes, start: int = 0, stop: int | None = None) -> HttpMessage:
    """Reads the response at ``data[start:stop]``. Without a status line and fields it is all body (HTTP/0.9).

    Interim responses (status 1xx) before the final one are skipped and flagged.
    """
    stop = len(data) if stop is None else stop
    status = _STATUS.match(data, start, min(stop, start + 256))
    if status is not None:
        flags: tuple[str, ...] = ()
        for _ in range(_MAX_INTERIM):
            following = _find_final_status(data, start, stop) if status[1].startswith(b"1") else None
            if following is None:
                break
            start, status, flags = following.start(), following, (flag.INTERIM,)
        return _parse(data, start, stop, int(status[1]), flags)
    if _STATUS_START.match(data, start, min(stop, start + 256)) is not None:
        return _parse(data, start, stop, None, (flag.NO_STATUS_LINE,))
    if _FIELD_START.match(data, start, min(stop, start + 4096)) is not None:
        return _parse(b"\r\n" + data[start:stop], 0, stop - start + 2, None, (flag.NO_STATUS_LINE,))
    return HttpMessage(None, None, (), data[start:stop], (flag.NO_STATUS_LINE,))


def _find_final_status(data: bytes, start: int, stop: int) -> re.Match[bytes] | None:
    """Returns the status line of the response after an interim one; ``None`` if no response follows."""
    end, next_start = header_end(data, start, stop)
    return None if end < 0 else _STATUS.match(data, next_start, min(stop, next_start + 256))


def parse_request(data: bytes, start: int = 0, stop: int | None = None) -> HttpMessage:
    """Reads the request at ``data[start:stop]``; without a request line it is all body."""
    stop = len(data) if stop is None else stop
    if _REQUEST_START.match(data, start, min(stop, start + 4096)) is None:
        return HttpMessage(None, None, (), data[start:stop], ())
    return _parse(data, start, stop, None, ())


def _parse(data: bytes, start: int, stop: int, status: int | None, flags: tuple[str, ...]) -> HttpMessage:
    end, body = header_end(data, start, stop)
    if end < 0:
        flags += (flag.NO_HEADER_END,)
        end = body = stop
    lines = split_fields(data[start:end])
    if lines.lf_only:
        flags += (flag.HTTP_LF_ONLY,)
    if lines.cr_cr_lf:
        flags += (flag.HTTP_CR_CR_LF,)
    if lines.folded:
        flags += (flag.HTTP_FOLDED,)
    if lines.malformed:
        flags += (flag.HTTP_MALFORMED_LINE,)
    return HttpMessage(lines.first.strip() or None, status, lines.fields, data[body:stop], flags)
