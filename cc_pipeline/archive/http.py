"""The HTTP message inside a record, read as leniently as a browser would and flagged where it was odd."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cc_pipeline.archive import flags as flag
from cc_pipeline.archive.headers import header_end, split_fields
from cc_pipeline.archive.record import Headers

_STATUS = re.compile(r"\s*(?:HTTP|ICY)(?:/?[\d.]*)?\s+(\d{3})(?!\d)", re.IGNORECASE)
_STATUS_START = re.compile(rb"\s*(?:HTTP|ICY)[/ \d]", re.IGNORECASE)
_REQUEST_START = re.compile(rb"[A-Za-z]{3,20} \S+[^\r\n]*")
_FIELD_START = re.compile(rb"[A-Za-z][A-Za-z0-9-]{0,60}:[^\n]*\n")


@dataclass(frozen=True, slots=True)
class HttpMessage:
    """A start line (status or request line), fields in order, and the body as stored."""

    start_line: str | None
    status: int | None
    headers: Headers
    body: bytes
    flags: tuple[str, ...]


def parse_response(block: bytes) -> HttpMessage:
    """Read a response. A block without a status line and without fields is all body (HTTP/0.9)."""
    if _STATUS_START.match(block[:64]) is None:
        if _FIELD_START.match(block[:4096]) is None:
            return HttpMessage(None, None, (), block, (flag.NO_STATUS_LINE,))
        message = _parse(b"\r\n" + block)
        return HttpMessage(None, None, message.headers, message.body, (flag.NO_STATUS_LINE, *message.flags))
    message = _parse(block)
    status = _STATUS.match(message.start_line or "")
    if status is None:
        return HttpMessage(
            message.start_line, None, message.headers, message.body, (flag.NO_STATUS_LINE, *message.flags)
        )
    return HttpMessage(message.start_line, int(status[1]), message.headers, message.body, message.flags)


def parse_request(block: bytes) -> HttpMessage:
    """Read a request; a block that does not begin with a request line is all body."""
    if _REQUEST_START.match(block[:4096]) is None:
        return HttpMessage(None, None, (), block, ())
    return _parse(block)


def _parse(block: bytes) -> HttpMessage:
    end, body = header_end(block)
    odd: list[str] = []
    if end < 0:
        odd.append(flag.NO_HEADER_END)
        end = body = len(block)
    lines = split_fields(block[:end])
    if lines.lf_only:
        odd.append(flag.HTTP_LF_ONLY)
    if lines.folded:
        odd.append(flag.HTTP_FOLDED)
    if lines.malformed:
        odd.append(flag.HTTP_MALFORMED_LINE)
    return HttpMessage(lines.first.strip() or None, None, lines.fields, block[body:], tuple(odd))
