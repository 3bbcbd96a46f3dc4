"""ARC records (2008 to 2012): header line, one record, and whole files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from cc_pipeline.archive import record as flag
from cc_pipeline.archive.gzip_members import DEFAULT_LIMIT, GZIP_MAGIC, ByteSource, describe_non_gzip
from cc_pipeline.archive.http import (
    decode_url,
    digits_date,
    first_values,
    lost_carriage_returns,
    media_type,
    parse_response,
)
from cc_pipeline.archive.plainwalk import StoredRecord
from cc_pipeline.archive.record import ArchivedRecord, Headers, sha1_base32
from cc_pipeline.archive.walk import inflate_run, iter_stored
from cc_pipeline.errors import DataFault, DataKind

#: The maximum length of the line: many times the longest known URLs.
MAX_LINE: Final = 1 << 16

_VERSION_1_FIELDS: Final = ("URL", "IP-address", "Archive-date", "Content-type", "Archive-length")
_VERSION_2_FIELDS: Final = (
    *_VERSION_1_FIELDS[:4],
    "Result-code",
    "Checksum",
    "Location",
    "Offset",
    "Filename",
    "Archive-length",
)
#: The part by which record lines are searched: their dates are rarer than anything else in them.
_DATE_TO_LENGTH = re.compile(rb" (?:\d{8,20}|\d{14}[^\s\d]\S{0,20}) [^\n]{0,250}\d\r*\n")
_DATE = re.compile(r"-|\d{8,20}|\d{14}[^\s\d]\S{0,20}", re.ASCII)
_ANY_SCHEME = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]{0,30}:")
_KNOWN_SCHEME = re.compile(rb"(?<![A-Za-z0-9])(?:https?|ftp|dns|filedesc|metadata):")
#: A media type with blanks in it: a list, or parameters.
_MEDIA_TYPE = re.compile(r"-|[a-z]+/[^ /]+|no-type", re.IGNORECASE)
_MIME = re.compile(r"[^ ,;]+(?:[,;]+ ?[^ ,;]*| [^ ,;=]+=[^ ,;]*)*")
_BLANK: Final = b"\r\n"

#: The bytes after a record's content: a line break of the file, the end of its gzip member, or at once the next record.
RecordEnd = Literal["apart", "member", "adjacent"]

_STATUS = re.compile(r"[1-9]\d\d", re.ASCII)


@dataclass(frozen=True, slots=True)
class ArcHeader:
    """The URL record line: named fields, the content's start and declared length (bytes; negative: unknown)."""

    fields: Headers
    block_start: int
    block_length: int
    flags: tuple[str, ...]

    @property
    def is_filedesc(self) -> bool:
        """Whether this is the version block that opens a file."""
        return self.fields[0][1].startswith("filedesc:")


def parse_header(data: bytes, source: str, offset: int) -> ArcHeader:
    """Reads the URL record line at the beginning of ``data``, after any empty lines.

    Raises ``DataFault`` if there is none.
    """
    flags: list[str] = []
    start = 0
    if data[:1] in (b"\n", b"\r"):
        start = len(data) - len(data.lstrip(_BLANK))
        flags.append(flag.BLANK_BEFORE)
    end = data.find(b"\n", start, start + MAX_LINE)
    fields = None if end < 0 else split_line(data[start:end])
    if fields is None:
        raise DataFault(DataKind.NOT_A_RECORD, source, offset, f"no ARC record line: {data[start : start + 64]!r}")
    if data[start:end].split(b" ")[-2:-1] == [fields[2][1].encode("latin-1")] != [b"-"]:
        flags.append(flag.UNUSUAL_DATE)
    length = int(fields[-1][1])
    if length < 0:
        flags.append(flag.UNUSABLE_LENGTH)
    return ArcHeader(fields, end + 1, length, tuple(flags))


def begins_record(data: bytes) -> bool:
    """Whether ``data`` begins with a URL record line."""
    end = data.find(b"\n", 0, MAX_LINE)
    return end >= 0 and split_line(data[:end]) is not None


def measure_record(content: bytes) -> int:
    """Returns the size of the record at the beginning of ``content``: 0 without a record, -1 if its line continues
    after ``content``."""
    start = len(content) - len(content.lstrip(_BLANK))
    if _ANY_SCHEME.match(content, start) is None:
        return 0
    if len(content) - start < MAX_LINE and b"\n" not in content[start:]:
        return -1
    try:
        header = parse_header(content, "", 0)
    except DataFault:
        return 0
    return header.block_start + max(header.block_length, 0)


def record_starts(data: bytes) -> Iterator[int]:
    """Yields the positions in ``data`` of probable URL record lines, ascending. Inside a line a record may follow one
    that was cut off: there only a known scheme counts. The first byte of ``data`` belongs to the bytes before."""
    for tail in _DATE_TO_LENGTH.finditer(data):
        begin = data.rfind(b"\n", max(0, tail.start() - MAX_LINE), tail.start()) + 1
        url = _ANY_SCHEME.match(data, begin) if begin else None
        url = url or _KNOWN_SCHEME.search(data, begin, tail.start())
        if url is not None and split_line(data[url.start() : tail.end() - 1]) is not None:
            yield url.start()


def split_line(line: bytes) -> Headers | None:
    """Returns the named fields of a line without its LF; ``None`` for another kind of line.

    URLs, and sometimes media types, have blanks in them; so the line is read from its end.
    """
    text = line.decode("latin-1").rstrip("\r")
    parts = text.rsplit(" ", 4)
    if len(parts) < 5 or _ANY_SCHEME.match(line) is None or not _is_number(parts[4]):
        return None
    words = text.split(" ")
    # version 2 first: an offset can look like a date
    if len(words) >= 10 and _is_date(words[-8]) and (_is_number(words[-3]) or words[-3] == "-"):
        return tuple(zip(_VERSION_2_FIELDS, (" ".join(words[:-9]), *words[-9:]), strict=True))
    if _is_date(parts[2]):
        return tuple(zip(_VERSION_1_FIELDS, parts, strict=True))
    if parts[3] != "-" and _is_date(parts[3]) and _MEDIA_TYPE.fullmatch(parts[2]):
        # date and media type are swapped
        return tuple(zip(_VERSION_1_FIELDS, (*parts[:2], parts[3], parts[2], parts[4]), strict=True))
    for place in range(len(words) - 4, 1, -1):
        if len(words[place]) >= 10 and _is_date(words[place]):
            url, mime = " ".join(words[: place - 1]), " ".join(words[place + 1 : -1])
            if not _MIME.fullmatch(mime):
                return None
            return tuple(zip(_VERSION_1_FIELDS, (url, words[place - 1], words[place], mime, words[-1]), strict=True))
    return None


def _is_number(word: str) -> bool:
    digits = word.removeprefix("-")
    return 0 < len(digits) < 19 and digits.isascii() and digits.isdigit()


def _is_date(word: str) -> bool:
    return _DATE.fullmatch(word) is not None


def build_record(
    header: ArcHeader, block: bytes, flags: tuple[str, ...] = (), end: RecordEnd = "apart"
) -> ArchivedRecord:
    """Builds the record of a URL record line and its complete content; ``flags`` are those so far.

    Common Crawl's writer of 2012 put an LF after each record and counted it: if ``end`` is not ``apart``, the
    content's final LF may be that one and is then not part of the payload.
    """
    values = dict(header.fields)
    all_flags = [*header.flags, *flags]
    url, is_unusual_url = decode_url(values["URL"])
    if is_unusual_url:
        all_flags.append(flag.UNUSUAL_URL)
    time, plain = digits_date(values["Archive-date"])
    if not plain:
        all_flags.append(flag.UNREADABLE_DATE if time is None else flag.UNUSUAL_DATE)
    if header.is_filedesc and block[:1] not in (b"1", b"2"):
        all_flags.append(flag.UNKNOWN_VERSION)
    message = parse_response(block) if url.partition(":")[0].lower() in ("http", "https") else None
    payload = block
    http: dict[str, str] = {}
    status = None
    if message is not None:
        all_flags += message.flags
        http = first_values(message.headers)
        payload = message.body
        result = values.get("Result-code", "")
        status = message.status or (int(result) if _STATUS.fullmatch(result) else None)
    if end != "apart" and _counts_final_lf(payload, http, end):
        payload = payload[:-1]
    ip = values["IP-address"]
    return ArchivedRecord(
        container="arc",
        record_type="filedesc" if header.is_filedesc else "arc",
        url=url,
        fetch_time=time,
        server_ip=None if ip in ("-", "", "0.0.0.0") else ip,
        record_headers=header.fields,
        http_status=status,
        http_status_line=None if message is None else message.start_line,
        http_headers=() if message is None else message.headers,
        payload=payload,
        payload_digest=sha1_base32(payload),
        declared_digest=None,
        truncated=http.get("x-commoncrawl-contenttruncated"),
        declared_mime=media_type(http.get("content-type")) or media_type(values["Content-type"]),
        flags=tuple(dict.fromkeys(all_flags)),
    )


def _counts_final_lf(payload: bytes, http: dict[str, str], end: RecordEnd) -> bool:
    if payload[-1:] != b"\n":
        return False
    length = http.get("content-length")
    if length in (str(len(payload)), str(len(payload) - 1)):
        return length != str(len(payload))
    return end == "member" or any(name.startswith("x-commoncrawl-") for name in http)


def read_record(member: bytes, source: str, offset: int, limit: int = DEFAULT_LIMIT) -> ArchivedRecord:
    """Reads the record in ``member``: one range-fetched gzip member, or one uncompressed record.

    A sound gzip member overrides its record's declared length (files of 2012 declare wrong ones): the record is
    flagged and ends with the member. Raises ``DataFault`` if the member is damaged, cut off or larger than ``limit``
    bytes, the first line is no URL record line, or uncompressed content ends too early.
    """
    if member[:3] == GZIP_MAGIC:
        content, flags = inflate_run(member, source, offset, limit, measure_record)
        return parse_record(content, source, offset, flags, sound=True)
    if not member or member[:2] == GZIP_MAGIC[:2]:
        kind, reason = describe_non_gzip(member)
        raise DataFault(kind, source, offset, reason)
    return parse_record(member, source, offset)


def iter_records(stream: ByteSource, source: str, limit: int = DEFAULT_LIMIT) -> Iterator[ArchivedRecord | DataFault]:
    """Yields every record of a complete ARC file, the ``filedesc`` too, as ``warc.iter_records`` for a WARC file."""
    for stored in iter_located(stream, source, limit):
        yield stored.record if isinstance(stored, StoredRecord) else stored


def iter_located(stream: ByteSource, source: str, limit: int = DEFAULT_LIMIT) -> Iterator[StoredRecord | DataFault]:
    """Does the same as ``iter_records``, with the location of each record."""
    return iter_stored(stream, source, ArcGrammar(), limit)


def parse_record(
    content: bytes, source: str, offset: int, flags: tuple[str, ...] = (), sound: bool = False
) -> ArchivedRecord:
    """Returns the first record of ``content``; bytes after its end are flagged. Raises ``DataFault``.

    ``sound``: ``content`` is a complete gzip member with a correct checksum.
    """
    header = parse_header(content, source, offset)
    start = header.block_start
    if header.block_length < 0:
        return build_record(header, content[start:], flags)
    end = start + header.block_length
    if end > len(content):
        block = content[start:]
        if sound:
            return build_record(header, block, (*flags, flag.WRONG_LENGTH))
        if lost_carriage_returns(block, header.block_length):
            return build_record(header, block.rstrip(b"\n"), (*flags, flag.WRONG_LENGTH))
        reason = f"record declares {header.block_length} bytes, {len(block)} are there"
        raise DataFault(DataKind.LENGTH_MISMATCH, source, offset, reason)
    tail = content[end:]
    trailing = tail.lstrip(_BLANK)
    if trailing and sound and not begins_record(trailing):
        return build_record(header, content[start:], (*flags, flag.WRONG_LENGTH))
    if trailing:
        flags += (flag.BYTES_AFTER_RECORD,)
    return build_record(header, content[start:end], flags, "apart" if tail else "member")


class ArcGrammar:
    """The ARC format, for ``walk.iter_stored``."""

    max_header = MAX_LINE
    max_start = MAX_LINE
    measure_record = staticmethod(measure_record)
    starts = staticmethod(record_starts)
    begins = staticmethod(begins_record)
    parse_header = staticmethod(parse_header)

    def elastic(self, header: ArcHeader) -> bool:
        return header.block_length < 0 or header.is_filedesc

    def lost_line_ends(self, header: ArcHeader, block: bytes) -> bool:
        return lost_carriage_returns(block, header.block_length)

    def build(
        self, header: ArcHeader, block: bytes, source: str, flags: tuple[str, ...], tail: bytes
    ) -> ArchivedRecord:
        is_separated = tail[:1] in (b"\n", b"\r") or flag.WRONG_LENGTH in flags
        return build_record(header, block, flags, "apart" if is_separated else "adjacent")

    def single(self, content: bytes, source: str, offset: int) -> ArchivedRecord | None:
        try:
            header = parse_header(content, source, offset)
        except DataFault:
            return None
        end = header.block_start + max(header.block_length, 0)
        has_trailing_bytes = header.block_length < 0 or content[end:].strip(_BLANK)
        if has_trailing_bytes and next(record_starts(content[header.block_start - 1 :]), None) is not None:
            return None
        return parse_record(content, source, offset, sound=True)
