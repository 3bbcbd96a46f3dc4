"""From an ARC record's line and content to an ``ArchivedRecord``."""

from __future__ import annotations

import re
from typing import Literal

from cc_pipeline.archive import digests
from cc_pipeline.archive import flags as flag
from cc_pipeline.archive.archeader import ArcHeader
from cc_pipeline.archive.dates import digits_date
from cc_pipeline.archive.headers import decode_url, first_values, media_type
from cc_pipeline.archive.http import parse_response
from cc_pipeline.archive.record import ArchivedRecord

#: What follows a record's content: a line break of the file's, the end of its gzip member, or at once the next record.
RecordEnd = Literal["apart", "member", "adjacent"]

_STATUS = re.compile(r"[1-9]\d\d", re.ASCII)


def build_record(
    header: ArcHeader, block: bytes, odd: tuple[str, ...] = (), end: RecordEnd = "apart"
) -> ArchivedRecord:
    """Make the record of a URL record line and its complete content; ``odd`` are flags found so far.

    Common Crawl's writer of 2012 put an LF behind each record and counted it: where ``end`` is not ``apart``, the
    content's final LF may be that one and is then no part of the payload.
    """
    values = dict(header.fields)
    found = [*header.flags, *odd]
    url, odd_url = decode_url(values["URL"])
    if odd_url:
        found.append(flag.ODD_URL)
    time, plain = digits_date(values["Archive-date"])
    if not plain:
        found.append(flag.UNREADABLE_DATE if time is None else flag.ODD_DATE)
    if header.is_filedesc and block[:1] not in (b"1", b"2"):
        found.append(flag.UNKNOWN_VERSION)
    message = parse_response(block) if url.partition(":")[0].lower() in ("http", "https") else None
    payload = block
    http: dict[str, str] = {}
    status = None
    if message is not None:
        found += message.flags
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
        payload_digest=digests.sha1_base32(payload),
        declared_digest=None,
        truncated=http.get("x-commoncrawl-contenttruncated"),
        declared_mime=media_type(http.get("content-type")) or media_type(values["Content-type"]),
        flags=tuple(dict.fromkeys(found)),
    )


def _counts_final_lf(payload: bytes, http: dict[str, str], end: RecordEnd) -> bool:
    if payload[-1:] != b"\n":
        return False
    length = http.get("content-length")
    if length in (str(len(payload)), str(len(payload) - 1)):
        return length != str(len(payload))
    return end == "member" or any(name.startswith("x-commoncrawl-") for name in http)
