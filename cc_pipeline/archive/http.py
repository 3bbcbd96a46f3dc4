"""The HTTP message inside a record, read as leniently as a browser would and flagged where it was odd."""

from __future__ import annotations

import re
from typing import NamedTuple

from cc_pipeline.archive import flags as flag
from cc_pipeline.archive.headers import header_end, split_fields
from cc_pipeline.archive.record import Headers

_STATUS = re.compile(rb"\s*(?:HTTP|ICY)(?:/?[\d.]*)?\s+(\d{3})(?!\d)", re.IGNORECASE)
_STATUS_START = re.compile(rb"\s*(?:HTTP|ICY)[/ \d]", re.IGNORECASE)
_REQUEST_START = re.compile(rb"[A-Za-z]{3,20} \S+[^\r\n]*")
_FIELD_START = re.compile(rb"[A-Za-z][A-Za-z0-9-]{0,60}:[^\n]*\n")


class HttpMessage(NamedTuple):
    """A start line (status or request line), fields in order, and the body as stored."""

    start_line: str | None
    status: int | None
    headers: Headers
    body: bytes
    flags: tuple[str, ...]


def parse_response(data: bytes, start: int = 0, stop: int | None = None) -> HttpMessage:
    """Read the response at ``data[start:stop]``. Without a status line and fields it is all body (HTTP/0.9)."""
    stop = len(data) if stop is None else stop
    status = _STATUS.match(data, start, min(stop, start + 256))
    if status is not None:
        return _parse(data, start, stop, int(status[1]), ())
    if _STATUS_START.match(data, start, min(stop, start + 256)) is not None:
        return _parse(data, start, stop, None, (flag.NO_STATUS_LINE,))
    if _FIELD_START.match(data, start, min(stop, start + 4096)) is not None:
        return _parse(b"\r\n" + data[start:stop], 0, stop - start + 2, None, (flag.NO_STATUS_LINE,))
    return HttpMessage(None, None, (), data[start:stop], (flag.NO_STATUS_LINE,))


def parse_request(data: bytes, start: int = 0, stop: int | None = None) -> HttpMessage:
    """Read the request at ``data[start:stop]``; without a request line it is all body."""
    stop = len(data) if stop is None else stop
    if _REQUEST_START.match(data, start, min(stop, start + 4096)) is None:
        return HttpMessage(None, None, (), data[start:stop], ())
    return _parse(data, start, stop, None, ())


def _parse(data: bytes, start: int, stop: int, status: int | None, odd: tuple[str, ...]) -> HttpMessage:
    end, body = header_end(data, start, stop)
    if end < 0:
        odd += (flag.NO_HEADER_END,)
        end = body = stop
    lines = split_fields(data[start:end])
    if lines.lf_only:
        odd += (flag.HTTP_LF_ONLY,)
    if lines.folded:
        odd += (flag.HTTP_FOLDED,)
    if lines.malformed:
        odd += (flag.HTTP_MALFORMED_LINE,)
    return HttpMessage(lines.first.strip() or None, status, lines.fields, data[body:stop], odd)
