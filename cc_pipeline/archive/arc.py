"""ARC records, version 1 and 2, as 2008-2012 wrote them and as the wild has them.

Format: https://archive.org/web/researcher/ArcFileFormat.php; what Common Crawl's 2012 writer did differs
in one point: its length counts the LF that ends the record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cc_pipeline.archive import digests
from cc_pipeline.archive import flags as flag
from cc_pipeline.archive.dates import digits_date
from cc_pipeline.archive.headers import first_values, media_type
from cc_pipeline.archive.http import parse_response
from cc_pipeline.archive.members import DEFAULT_LIMIT, GZIP_MAGIC, describe_non_gzip, inflate_member
from cc_pipeline.archive.record import ArchivedRecord, Headers
from cc_pipeline.archive.warc import decode_url
from cc_pipeline.errors import DataFault

#: Bytes the URL record line may have: the longest URLs seen, many times over.
MAX_LINE: Final = 1 << 16

_V1: Final = ("URL", "IP-address", "Archive-date", "Content-type", "Archive-length")
_V2: Final = (*_V1[:4], "Result-code", "Checksum", "Location", "Offset", "Filename", "Archive-length")
_LINE_V1 = re.compile(r"(\S.*?) (\S+) (\d{8,20}|-) (.*?) ?(-?\d{1,18})")
_LINE_V2 = re.compile(r"(\S.*?) (\S+) (\d{8,20}|-) (.*?) (\d{3}|-|0) (\S+) (\S+) (\d+|-) (\S+) (-?\d{1,18})")
_BLANK: Final = b"\r\n"


@dataclass(frozen=True, slots=True)
class ArcHeader:
    """The URL record line: named fields, where the content begins, and its declared length (bytes, may be negative)."""

    fields: Headers
    content_start: int
    length: int
    flags: tuple[str, ...]


def read_record(member: bytes, source: str, offset: int, limit: int = DEFAULT_LIMIT) -> ArchivedRecord:
    """The record in ``member``: one range-fetched gzip member, or one uncompressed record.

    A sound gzip member outranks its record's declared length (files of 2012 declare wrong ones): the record is
    flagged and ends where the member ends. Raises ``DataFault`` where the member is damaged, cut off or larger
    than ``limit`` bytes, the first line is no URL record line, or uncompressed content ends too early.
    """
    if member[:3] == GZIP_MAGIC:
        inflated = inflate_member(member, source, offset, limit)
        odd = () if inflated.consumed == len(member) else (flag.BYTES_AFTER_MEMBER,)
        return parse_record(inflated.content, source, offset, odd, sound=True)
    if not member or member[:2] == GZIP_MAGIC[:2]:
        raise DataFault(source, offset, describe_non_gzip(member))
    return parse_record(member, source, offset)


def parse_record(
    content: bytes, source: str, offset: int, odd: tuple[str, ...] = (), sound: bool = False
) -> ArchivedRecord:
    """The first record of ``content``; bytes behind its end are flagged. Raises ``DataFault``.

    ``sound``: ``content`` is a whole gzip member whose checksum held.
    """
    header = parse_header(content, source, offset)
    there = len(content) - header.content_start
    if header.length < 0:
        return build_record(header, content[header.content_start :], odd)
    if header.length > there and not sound:
        raise DataFault(source, offset, f"record declares {header.length} bytes, {there} are there")
    end = header.content_start + header.length
    tail = content[end:]
    if header.length > there or (sound and tail.strip(_BLANK) and not begins_record(tail)):
        return build_record(header, content[header.content_start :], (*odd, flag.WRONG_LENGTH))
    if tail.strip(_BLANK):
        odd += (flag.BYTES_AFTER_RECORD,)
    return build_record(header, content[header.content_start : end], odd, counts_final_lf=not tail)


def begins_record(data: bytes) -> bool:
    """Whether a URL record line follows, behind any empty lines."""
    line = data[: MAX_LINE + 2].lstrip(_BLANK).partition(b"\n")[0]
    return _split_line(line.decode("latin-1").removesuffix("\r")) is not None


def parse_header(data: bytes, source: str, offset: int) -> ArcHeader:
    """Read the URL record line at the begin of ``data`` (empty lines before it are passed over)."""
    odd: list[str] = []
    start = 0
    if data[:1] in (b"\n", b"\r"):
        start = len(data) - len(data.lstrip(_BLANK))
        odd.append(flag.BLANK_BEFORE)
    end = data.find(b"\n", start, start + MAX_LINE)
    if end < 0:
        raise DataFault(source, offset, f"no ARC record line: {data[start : start + 32]!r}")
    line = data[start:end].decode("latin-1").removesuffix("\r")
    fields = _split_line(line)
    if fields is None:
        raise DataFault(source, offset, f"no ARC record line: {data[start : min(end, start + 64)]!r}")
    length = int(fields[-1][1])
    if length < 0:
        odd.append(flag.UNUSABLE_LENGTH)
    return ArcHeader(fields, end + 1, length, tuple(odd))


def _split_line(line: str) -> Headers | None:
    parts = line.rsplit(" ", 4)
    if len(parts) == 5 and len(parts[2]) == 14 and parts[2].isdigit() and parts[4].isdigit() and len(parts[4]) < 19:
        return tuple(zip(_V1, parts, strict=True))
    for pattern, names in ((_LINE_V2, _V2), (_LINE_V1, _V1)):
        match = pattern.fullmatch(line)
        if match is not None:
            return tuple(zip(names, match.groups(), strict=True))
    return None


def build_record(
    header: ArcHeader, block: bytes, odd: tuple[str, ...] = (), counts_final_lf: bool = False
) -> ArchivedRecord:
    """Make the record of a URL record line and its complete content.

    ``counts_final_lf``: the declared length reached to the end of the member, so a final LF ends the record
    and is no part of the payload (2012), unless the HTTP Content-Length says it is.
    """
    values = dict(header.fields)
    found = [*header.flags, *odd]
    url, odd_url = decode_url(values["URL"])
    if odd_url:
        found.append(flag.ODD_URL)
    time, plain = digits_date(values["Archive-date"])
    if not plain:
        found.append(flag.UNREADABLE_DATE if time is None else flag.ODD_DATE)
    scheme = url.partition(":")[0].lower()
    is_http = scheme in ("http", "https")
    message = parse_response(block) if is_http else None
    payload = block if message is None else message.body
    http_values: dict[str, str] = {}
    if message is not None:
        found += message.flags
        http_values = first_values(message.headers)
    if counts_final_lf and payload.endswith(b"\n") and http_values.get("content-length") != str(len(payload)):
        payload = payload[:-1]
    status = None if message is None else message.status
    if status is None and values.get("Result-code", "").isdigit() and is_http:
        status = int(values["Result-code"]) or None
    ip = values["IP-address"]
    return ArchivedRecord(
        container="arc",
        record_type="filedesc" if scheme == "filedesc" else "arc",
        url=url,
        fetch_time=time,
        server_ip=None if ip in ("-", "", "0.0.0.0") else ip,
        record_headers=header.fields,
        http_status=status,
        http_status_line=None if message is None else message.start_line,
        http_headers=() if message is None else message.headers,
        payload=payload,
        payload_digest=digests.sha1_base32(payload),
        declared_digest=None,
        truncated=http_values.get("x-commoncrawl-contenttruncated"),
        declared_mime=media_type(http_values.get("content-type")) or media_type(values["Content-type"]),
        flags=tuple(dict.fromkeys(found)),
    )
