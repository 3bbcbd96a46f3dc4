"""The header of a WARC record (ISO 28500; versions 0.17, 0.18, 1.0, 1.1)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from cc_pipeline.archive import flags as flag
from cc_pipeline.archive.headers import first_values, header_end, split_fields
from cc_pipeline.archive.record import Headers
from cc_pipeline.errors import DataFault

#: Bytes a record header may have. Real ones stay under 10 KiB.
MAX_HEADER: Final = 1 << 20

_VERSION = re.compile(rb"WARC/(\d+\.\d+)[ \t]*\r?(?:\n|$)")
# the field is one that archives we wrote carry: the version of the record as its source had it
_NEXT_RECORD = re.compile(rb"(?<!WARC-Source-Version: )WARC/\d+\.\d+[ \t]*\r?\n(?:WARC|Content)-", re.IGNORECASE)
_KNOWN_VERSIONS = frozenset((b"0.17", b"0.18", b"1.0", b"1.1"))
_SINGLE = frozenset(
    (
        *("warc-type", "warc-record-id", "warc-date", "content-length", "content-type", "warc-target-uri"),
        *("warc-payload-digest", "warc-block-digest", "warc-truncated", "warc-ip-address", "warc-refers-to"),
    )
)
_BLANK: Final = b"\r\n"


class WarcHeader(NamedTuple):
    """A record header: fields in order, first values by lower-cased name, the block's begin and length (bytes)."""

    fields: Headers
    values: dict[str, str]
    block_start: int
    block_length: int
    flags: tuple[str, ...]


def begins_record(data: bytes) -> bool:
    """Whether ``data`` begins with a WARC version line."""
    return _VERSION.match(data, 0, 64) is not None


def parse_header(data: bytes, source: str, offset: int) -> WarcHeader:
    """Read the header at the begin of ``data`` (empty lines before it are passed over).

    Raises ``DataFault`` for a bad version line, a header without an end, or without a usable Content-Length.
    """
    odd: list[str] = []
    start = 0
    if not data.startswith(b"WARC/"):
        start = len(data) - len(data.lstrip(_BLANK))
        if start:
            odd.append(flag.BLANK_BEFORE)
    version = _VERSION.match(data, start, start + 64)
    if version is None:
        if start == len(data):
            raise DataFault(source, offset, "no record: nothing but line breaks" if data else "no record: no bytes")
        raise DataFault(source, offset, f"no WARC version line: {data[start : start + 32]!r}")
    if version[1] not in _KNOWN_VERSIONS:
        odd.append(flag.UNKNOWN_VERSION)
    end, block_start = header_end(data, start, start + MAX_HEADER)
    if end < 0:
        raise DataFault(source, offset, "the record header has no end")
    if data.find(b"WARC/", version.end(), end) >= 0 and _NEXT_RECORD.search(data, version.end(), end):
        raise DataFault(source, offset, "the record header breaks off, another record follows")
    lines = split_fields(data[start:end])
    if lines.lf_only:
        odd.append(flag.LF_ONLY)
    if lines.folded:
        odd.append(flag.FOLDED)
    if lines.malformed:
        odd.append(flag.MALFORMED_LINE)
    values = first_values(lines.fields)
    if len(values) < len(lines.fields) and any(
        name.lower() in _SINGLE and values[name.lower()] != value for name, value in lines.fields
    ):
        odd.append(flag.REPEATED_FIELD)
    length = values.get("content-length", "")
    if not (length.isascii() and length.isdigit() and len(length) < 19):
        reason = f"unusable Content-Length {length[:40]!r}" if length else "the record header has no Content-Length"
        raise DataFault(source, offset, reason)
    return WarcHeader(lines.fields, values, block_start, int(length), tuple(odd))
