"""WARC records of our own, written with warcio: the ``warcinfo`` of a file, and ARC records as WARC.

Identifiers follow from the content, so the same input gives the same bytes.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, BinaryIO, Final
from urllib.parse import quote

from warcio.recordloader import ArcWarcRecord
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from cc_pipeline.archive import arc
from cc_pipeline.archive.gzip_members import inflate_member
from cc_pipeline.archive.record import ArchivedRecord, Headers, decoded_payload, sha1_base32
from cc_pipeline.errors import DataFault, DataKind

_HOP_FIELDS: Final = {
    "content-encoding": "X-Crawler-Content-Encoding",
    "transfer-encoding": "X-Crawler-Transfer-Encoding",
}
_URI_SAFE: Final = "".join(map(chr, range(0x21, 0x7F)))
#: Returns the address at the source for the key of an archive file.
Address = Callable[[str], str]


def warcinfo_record(filename: str, fields: Mapping[str, str], created_at: datetime) -> ArcWarcRecord:
    """Returns the ``warcinfo`` record that opens a WARC file: ``fields`` such as software, format, isPartOf.

    ``created_at`` is aware; line breaks inside a value become blanks.
    """
    lines = (f"{name}: {' '.join(value.split())}\r\n" for name, value in fields.items())
    block = "".join(lines).encode("utf-8")
    headers = [("WARC-Type", "warcinfo"), ("WARC-Date", _date(created_at)), ("WARC-Filename", filename)]
    identity = f"{filename}\n{_date(created_at)}"
    return _record("warcinfo", headers, block, block, "application/warc-fields", identity)


def arc_as_warc(
    record: ArchivedRecord, source: str, offset: int, extra: Iterable[tuple[str, str]] = ()
) -> ArcWarcRecord:
    """Returns an ARC record as a WARC record: ``filedesc`` becomes ``metadata``, others ``response`` or ``resource``.

    Common Crawl's ARC files keep the headers of codings that it had removed: those are renamed to ``X-Crawler-…`` and
    Content-Length is corrected, as Common Crawl does today. ``extra`` are WARC header fields to add. Raises
    ``DataFault`` for a record without a readable date, which WARC requires.
    """
    if record.fetch_time is None:
        raise DataFault(DataKind.UNSUPPORTED, source, offset, "an ARC record without a readable date has no WARC form")
    is_http = record.http_status_line is not None or bool(record.http_headers)
    if record.record_type == "filedesc":
        record_type, content_type = "metadata", "text/plain"
    elif is_http:
        record_type, content_type = "response", "application/http; msgtype=response"
    else:
        dns = record.url.startswith("dns:")
        record_type, content_type = (
            ("response" if dns else "resource"),
            record.declared_mime or "application/octet-stream",
        )
    headers = [("WARC-Type", record_type), ("WARC-Date", _date(record.fetch_time))]
    headers.append(("WARC-Target-URI", quote(record.url, safe=_URI_SAFE)))
    if record.server_ip is not None:
        headers.append(("WARC-IP-Address", record.server_ip))
    if record.truncated is not None:
        headers.append(("WARC-Truncated", "length"))
    head = _http_head(record) if is_http else b""
    headers += extra
    return _record(record_type, headers, head + record.payload, record.payload, content_type, f"{source}\n{offset}")


def arc_as_warc_member(record: ArchivedRecord, source: str, offset: int, length: int, address: str) -> bytes:
    """Returns an ARC record, the ``length`` bytes at ``offset`` of ``source``, as one gzip member with its WARC record.

    ``address`` (absolute) is the URL of ``source``: the record's header has it and the range as ``WARC-Source-URI``
    and ``WARC-Source-Range``. Raises as ``arc_as_warc`` does.
    """
    extra = [("WARC-Source-URI", address), ("WARC-Source-Range", f"bytes={offset}-{offset + length - 1}")]
    out = io.BytesIO()
    write_records(out, [arc_as_warc(record, source, offset, extra)])
    return out.getvalue()


def delivered_member(kind: str, row: Mapping[str, Any], member: bytes, address: Address) -> bytes:
    """Returns a stored record in the form of a file of ``kind`` (warc or arc). An ARC record in a WARC file is
    converted.

    ``row`` is the record's row of the records table. Raises ``DataFault`` for damaged gzip members, and for a record
    that has no WARC form.
    """
    source, offset = row["warc_filename"], row["warc_record_offset"]
    if kind == "warc" and row["archive_format"] == "arc":
        return arc_as_warc_member(arc.read_record(member, source, offset), source, offset, len(member), address(source))
    # The bytes were sound when they were stored; the disk may have changed them since.
    inflate_member(member, source, offset)
    return member


def write_records(stream: BinaryIO, records: Iterable[ArcWarcRecord]) -> None:
    """Appends records to a binary stream, one gzip member each."""
    writer = WARCWriter(stream, gzip=True)
    for record in records:
        writer.write_record(record)


def _http_head(record: ArchivedRecord) -> bytes:
    undone = set(decoded_payload(record).codings)
    fields: list[tuple[str, str]] = []
    length = str(len(record.payload))
    for name, value in record.http_headers:
        lowered = name.lower()
        if lowered in _HOP_FIELDS and not undone.issuperset(
            {part.strip().lower() for part in value.split(",")} - {"", "identity"}
        ):
            fields.append((_HOP_FIELDS[lowered], value))
        elif lowered == "content-length" and value != length:
            fields += (("X-Crawler-Content-Length", value), ("Content-Length", length))
        else:
            fields.append((name, value))
    lines = [record.http_status_line] if record.http_status_line is not None else []
    lines += [f"{name}: {value}" if name else value for name, value in fields]
    return "\r\n".join((*lines, "", "")).encode("latin-1", "replace")


def _record(
    record_type: str, headers: list[tuple[str, str]], block: bytes, payload: bytes, content_type: str, identity: str
) -> ArcWarcRecord:
    fields: Headers = (
        *headers,
        ("WARC-Record-ID", f"<urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, identity)}>"),
        ("WARC-Block-Digest", f"sha1:{sha1_base32(block)}"),
    )
    if record_type != "warcinfo":
        fields += (("WARC-Payload-Digest", f"sha1:{sha1_base32(payload)}"),)
    warc_headers = StatusAndHeaders("", list(fields), protocol="WARC/1.0")
    return ArcWarcRecord("warc", record_type, warc_headers, io.BytesIO(block), None, content_type, len(block))


def _date(moment: datetime) -> str:
    return f"{moment.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat()}Z"
