"""WARC records: header block, one record, and whole files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from heapq import merge
from typing import Final, NamedTuple

from cc_pipeline.archive import record as flag
from cc_pipeline.archive.gzip_members import DEFAULT_LIMIT, GZIP_MAGIC, ByteSource, describe_non_gzip
from cc_pipeline.archive.http import (
    HttpMessage,
    decode_url,
    first_values,
    header_end,
    lost_carriage_returns,
    media_type,
    parse_request,
    parse_response,
    split_fields,
    warc_date,
)
from cc_pipeline.archive.plainwalk import StoredRecord
from cc_pipeline.archive.record import ArchivedRecord, Headers, declared, matches, sha1_base32
from cc_pipeline.archive.walk import inflate_run, iter_stored
from cc_pipeline.codings import dechunked
from cc_pipeline.errors import DataFault, DataKind

#: The maximum bytes of a record header. Real ones are under 10 KiB.
MAX_HEADER: Final = 1 << 20

_VERSION = re.compile(rb"WARC/(\d+\.\d+)[ \t]*\r*(?:\n|$)", re.IGNORECASE)
# our own archives have this field: the version of the record in its source
_NEXT_RECORD = re.compile(rb"(?<!WARC-Source-Version: )WARC/\d+\.\d+[ \t]*\r*\n(?:WARC|Content)-", re.IGNORECASE)
_KNOWN_VERSIONS = frozenset((b"0.17", b"0.18", b"1.0", b"1.1"))
_SINGLE = frozenset(
    (
        *("warc-type", "warc-record-id", "warc-date", "content-length", "content-type", "warc-target-uri"),
        *("warc-payload-digest", "warc-block-digest", "warc-truncated", "warc-ip-address", "warc-refers-to"),
    )
)
_BLANK: Final = b"\r\n"

_TYPES = frozenset(("warcinfo", "response", "resource", "request", "metadata", "revisit", "conversion", "continuation"))
_NO_URL = frozenset(("warcinfo", "metadata", "unknown"))
_HTTP_TYPES = frozenset(("response", "revisit", "request"))

_VERSION_LINE = re.compile(rb"WARC/\d+\.\d+[ \t]*\r*\n")
#: The same in lower case; separate, since a search for both at once would lose the speed of fixed letters.
_LOWER_VERSION_LINE = re.compile(rb"warc/\d+\.\d+[ \t]*\r*\n")
_END = b"\r\n\r\n"


class WarcHeader(NamedTuple):
    """A record header: fields in order, first values by lower-case name, the block's start and length (bytes)."""

    fields: Headers
    values: dict[str, str]
    block_start: int
    block_length: int
    flags: tuple[str, ...]


def begins_record(data: bytes) -> bool:
    """Whether ``data`` begins with a WARC version line."""
    return _VERSION.match(data, 0, 64) is not None


def parse_header(data: bytes, source: str, offset: int) -> WarcHeader:
    """Reads the header at the beginning of ``data``, after any empty lines.

    Raises ``DataFault`` for a bad version line, a header without an end, or without a usable Content-Length.
    """
    flags: list[str] = []
    start = 0
    if data[:1] in (b"\r", b"\n"):
        start = len(data) - len(data.lstrip(_BLANK))
        flags.append(flag.BLANK_BEFORE)
    version = _VERSION.match(data, start, start + 64)
    if version is None:
        if start == len(data):
            message = "no record: nothing but line breaks" if data else "no record: no bytes"
            raise DataFault(DataKind.NOT_A_RECORD, source, offset, message)
        raise DataFault(DataKind.NOT_A_RECORD, source, offset, f"no WARC version line: {data[start : start + 32]!r}")
    if version[1] not in _KNOWN_VERSIONS:
        flags.append(flag.UNKNOWN_VERSION)
    if not data.startswith(b"WARC", start):
        flags.append(flag.VERSION_CASE)
    # thousands of consecutive version lines must not each cost a search for the header's end
    bare = _VERSION.match(data, version.end(), version.end() + 64) is not None
    end, block_start = (-1, -1) if bare else header_end(data, start, start + MAX_HEADER)
    if end < 0:
        raise DataFault(DataKind.NOT_A_RECORD, source, offset, "the record header has no end")
    if data.find(b"WARC/", version.end(), end) >= 0 and _NEXT_RECORD.search(data, version.end(), end):
        raise DataFault(DataKind.NOT_A_RECORD, source, offset, "the record header breaks off, another record follows")
    lines = split_fields(data[start:end])
    if lines.lf_only:
        flags.append(flag.LF_ONLY)
    if lines.cr_cr_lf:
        flags.append(flag.CR_CR_LF)
    if lines.folded:
        flags.append(flag.FOLDED)
    if lines.malformed:
        flags.append(flag.MALFORMED_LINE)
    values = first_values(lines.fields)
    if len(values) < len(lines.fields) and any(
        name.lower() in _SINGLE and values[name.lower()] != value for name, value in lines.fields
    ):
        flags.append(flag.REPEATED_FIELD)
    length = values.get("content-length", "")
    if not (length.isascii() and length.isdigit() and len(length) < 19):
        reason = f"unusable Content-Length {length[:40]!r}" if length else "the record header has no Content-Length"
        raise DataFault(DataKind.NOT_A_RECORD, source, offset, reason)
    return WarcHeader(lines.fields, values, block_start, int(length), tuple(flags))


def measure_record(content: bytes) -> int:
    """Returns the size of the record at the beginning of ``content``: 0 without a record, -1 if its header continues
    after ``content``."""
    start = len(content) - len(content.lstrip(_BLANK))
    if not begins_record(content[start : start + 64]):
        return 0
    if len(content) < MAX_HEADER and header_end(content, start)[0] < 0:
        return -1
    try:
        header = parse_header(content, "", 0)
    except DataFault:
        return 0
    return header.block_start + header.block_length


def build_record(
    header: WarcHeader, data: bytes, start: int, stop: int, source: str, flags: tuple[str, ...] = ()
) -> ArchivedRecord:
    """Builds the record of a header and its complete block ``data[start:stop]``; ``flags`` are those so far."""
    values = header.values
    all_flags = [*header.flags, *flags]
    record_type = values.get("warc-type", "").lower()
    if record_type not in _TYPES:
        record_type = record_type or "unknown"
        all_flags.append(flag.UNKNOWN_TYPE)
    url = _url(values.get("warc-target-uri"), record_type, all_flags)
    time, plain = warc_date(values.get("warc-date", ""))
    if not plain:
        all_flags.append(flag.UNREADABLE_DATE if time is None else flag.UNUSUAL_DATE)
    message = _message(record_type, values, url, data, start, stop)
    http: dict[str, str] = {}
    claimed = declared(values.get("warc-payload-digest"))
    if message is None:
        payload = data[start:stop]
        mime = values.get("content-type")
        claimed = claimed or declared(values.get("warc-block-digest"))
    else:
        payload = message.body
        http = first_values(message.headers)
        mime = http.get("content-type")
        all_flags += message.flags
    computed = sha1_base32(payload)
    if claimed != computed and record_type != "revisit":
        if message is not None and payload[:2] == b"\r\n" and _surplus_crlf(payload, claimed, http, source):
            payload = payload[2:]
            computed = sha1_base32(payload)
            all_flags.append(flag.EXTRA_CRLF)
        elif (end_size := _end_in_payload(payload, claimed)) > 0:
            payload = payload[:-end_size]
            computed = sha1_base32(payload)
            all_flags.append(flag.END_IN_PAYLOAD)
        if claimed is not None and claimed != computed and "warc-segment-number" not in values:
            all_flags += _digest_flag(
                claimed, payload, computed, http, all_flags, None if message is None else data[start:stop]
            )
    # the rest of a segmented record is in continuation records
    cut = values.get("warc-truncated", "segmented" if "warc-segment-number" in values else None)
    return ArchivedRecord(
        container="warc",
        record_type=record_type,
        url=url,
        fetch_time=time,
        server_ip=values.get("warc-ip-address") or None,
        record_headers=header.fields,
        http_status=None if message is None else message.status,
        http_status_line=None if message is None else message.start_line,
        http_headers=() if message is None else message.headers,
        payload=payload,
        payload_digest=computed,
        declared_digest=claimed,
        truncated=None if cut is None else cut.strip().lower() or "unspecified",
        declared_mime=media_type(mime),
        flags=tuple(dict.fromkeys(all_flags)),
    )


def _url(raw: str | None, record_type: str, flags: list[str]) -> str:
    if not raw:
        if record_type not in _NO_URL:
            flags.append(flag.MISSING_URL)
        return ""
    if raw.startswith("<") and raw.endswith(">"):
        raw = raw[1:-1]
        flags.append(flag.BRACKETED_URL)
    url, is_unusual = decode_url(raw)
    if is_unusual:
        flags.append(flag.UNUSUAL_URL)
    return url


def _message(
    record_type: str, values: dict[str, str], url: str, data: bytes, start: int, stop: int
) -> HttpMessage | None:
    if record_type not in _HTTP_TYPES or start == stop:
        return None
    kind = media_type(values.get("content-type"))
    if kind != "application/http" and (kind is not None or url[:4].lower() != "http"):
        return None
    return (parse_request if record_type == "request" else parse_response)(data, start, stop)


def _surplus_crlf(payload: bytes, claimed: str | None, http: dict[str, str], source: str) -> bool:
    """Whether CC-MAIN-2018-34 wrote a surplus CRLF after the HTTP header, by the digest or the length."""
    if claimed is not None and matches(claimed, payload[2:], sha1_base32(payload[2:])):
        return True
    expected_length = str(len(payload) - 2)
    return "CC-MAIN-2018-34" in source and http.get("content-length", expected_length) == expected_length


def _end_in_payload(payload: bytes, claimed: str | None) -> int:
    """Returns how many bytes of the line breaks at a record's end its declared length includes, by the digest: some
    versions of Wget count one too many."""
    if claimed is None:
        return 0
    return next(
        (
            size
            for size in range(1, len(_END) + 1)
            if payload.endswith(_END[:size]) and matches(claimed, payload[:-size], sha1_base32(payload[:-size]))
        ),
        0,
    )


def _digest_flag(
    claimed: str, payload: bytes, computed: str, http: dict[str, str], flags: list[str], block: bytes | None
) -> tuple[str, ...]:
    verdict = matches(claimed, payload, computed)
    if verdict is None:
        return (flag.DIGEST_UNKNOWN,)
    if verdict:
        return ()
    plain = dechunked(payload) if "chunked" in http.get("transfer-encoding", "").lower() else None
    if plain is not None and matches(claimed, plain, sha1_base32(plain)):
        return (flag.DIGEST_OF_DECHUNKED,)
    after_header = b"" if block is None else block[max(0, header_end(block)[1]) :]
    if flag.INTERIM in flags and matches(claimed, after_header, sha1_base32(after_header)):
        return (flag.DIGEST_OF_INTERIM,)
    if block is not None and matches(claimed, block, sha1_base32(block)):
        return (flag.DIGEST_OF_BLOCK,)
    return (flag.DIGEST_MISMATCH,)


def read_record(member: bytes, source: str, offset: int, limit: int = DEFAULT_LIMIT) -> ArchivedRecord:
    """Reads the record in ``member``: one range-fetched gzip member, or one uncompressed record.

    ``source`` and ``offset`` locate the bytes, for faults. Raises ``DataFault`` if the member is damaged, cut off or
    larger than ``limit`` bytes, the header is no WARC header, or the content ends before the declared Content-Length.
    """
    if member[:3] == GZIP_MAGIC:
        content, flags = inflate_run(member, source, offset, limit, measure_record)
        return parse_record(content, source, offset, flags)
    if member.lstrip(_BLANK)[:5].upper() != b"WARC/":
        kind, reason = describe_non_gzip(member)
        raise DataFault(kind, source, offset, reason)
    return parse_record(member, source, offset)


def iter_records(stream: ByteSource, source: str, limit: int = DEFAULT_LIMIT) -> Iterator[ArchivedRecord | DataFault]:
    """Yields every record of a complete WARC file (a path, bytes, or a binary stream), in order.

    The file is compressed by record, as one gzip member, or not at all. Yields a ``DataFault`` for each unreadable
    range of bytes, and continues after it; a file without any record gives at least one. ``limit`` bounds a record,
    and so the memory. Raises only ``EnvironmentFault``, for a path that cannot be opened.
    """
    for stored in iter_located(stream, source, limit):
        yield stored.record if isinstance(stored, StoredRecord) else stored


def iter_located(stream: ByteSource, source: str, limit: int = DEFAULT_LIMIT) -> Iterator[StoredRecord | DataFault]:
    """Does the same as ``iter_records``, with the location of each record."""
    return iter_stored(stream, source, WarcGrammar(), limit)


def parse_record(content: bytes, source: str, offset: int, flags: tuple[str, ...] = ()) -> ArchivedRecord:
    """Returns the first record of inflated ``content``; bytes after its end are flagged. Raises ``DataFault``."""
    header = parse_header(content, source, offset)
    start = header.block_start
    end = start + header.block_length
    if end > len(content):
        block = content[start:]
        if flag.LF_ONLY in header.flags and lost_carriage_returns(block, header.block_length):
            block = block.rstrip(b"\n")
            return build_record(header, block, 0, len(block), source, (*flags, flag.WRONG_LENGTH))
        reason = f"record declares {header.block_length} bytes, {len(block)} are there"
        raise DataFault(DataKind.LENGTH_MISMATCH, source, offset, reason)
    tail = content[end:]
    if tail != _END:
        if not _ends_record(tail):
            flags += (flag.MISSING_RECORD_END,)
        if tail.strip(_BLANK):
            flags += (flag.BYTES_AFTER_RECORD,)
    return build_record(header, content, start, end, source, flags)


class WarcGrammar:
    """The WARC format, for ``walk.iter_stored``."""

    max_header = MAX_HEADER
    max_start = 64
    measure_record = staticmethod(measure_record)
    begins = staticmethod(begins_record)
    parse_header = staticmethod(parse_header)

    def starts(self, data: bytes) -> Iterator[int]:
        upper = (match.start() for match in _VERSION_LINE.finditer(data))
        if b"\nwarc/" not in data:
            return upper
        lower = (match.start() for match in _LOWER_VERSION_LINE.finditer(data))
        return merge(upper, (place for place in lower if data[place - 1 : place] == b"\n"))

    def elastic(self, header: WarcHeader) -> bool:
        return False

    def lost_line_ends(self, header: WarcHeader, block: bytes) -> bool:
        return flag.LF_ONLY in header.flags and lost_carriage_returns(block, header.block_length)

    def build(
        self, header: WarcHeader, block: bytes, source: str, flags: tuple[str, ...], tail: bytes
    ) -> ArchivedRecord:
        ended = flags if _ends_record(tail) else (*flags, flag.MISSING_RECORD_END)
        return build_record(header, block, 0, len(block), source, ended)

    def single(self, content: bytes, source: str, offset: int) -> ArchivedRecord | None:
        try:
            header = parse_header(content, source, offset)
        except DataFault:
            return None
        end = header.block_start + header.block_length
        tail = content[end:]
        if end > len(content) or tail.strip(_BLANK):
            return None
        flags = () if _ends_record(tail) else (flag.MISSING_RECORD_END,)
        return build_record(header, content, header.block_start, end, source, flags)


def _ends_record(tail: bytes) -> bool:
    return tail[:4] == _END or tail[: len(tail) - len(tail.lstrip(_BLANK))].count(b"\n") >= 2
