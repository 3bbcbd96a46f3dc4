"""WARC and ARC bytes made by hand, so that tests can make them wrong on purpose."""

from __future__ import annotations

import gzip
import hashlib
from base64 import b32encode
from collections.abc import Iterable, Sequence

from cc_pipeline.archive.record import ArchivedRecord
from cc_pipeline.errors import DataFault

Fields = Sequence[tuple[str, str]]

HTTP_OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nX-Note: one\r\nX-Note: two\r\n\r\n"


def sha1(payload: bytes) -> str:
    return b32encode(hashlib.sha1(payload).digest()).decode()


def warc(block: bytes, fields: Fields = (), version: str = "WARC/1.0", length: int | str | None = None) -> bytes:
    """One uncompressed record; ``length`` overrides Content-Length (an empty string leaves it out)."""
    declared = len(block) if length is None else length
    lines = [version, *(f"{name}: {value}" for name, value in fields)]
    if declared != "":
        lines.append(f"Content-Length: {declared}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + block + b"\r\n\r\n"


def response(
    body: bytes,
    url: str = "http://example.com/",
    head: bytes = HTTP_OK,
    date: str = "2024-05-18T01:58:10Z",
    digest: str | None = None,
    extra: Fields = (),
    length: int | str | None = None,
) -> bytes:
    """One uncompressed response record, with a right payload digest unless another is given."""
    fields = [
        ("WARC-Type", "response"),
        ("WARC-Date", date),
        ("WARC-Record-ID", "<urn:uuid:00000000-0000-0000-0000-000000000001>"),
        ("Content-Type", "application/http; msgtype=response"),
        ("WARC-Target-URI", url),
        ("WARC-IP-Address", "192.0.2.1"),
        ("WARC-Payload-Digest", digest if digest is not None else f"sha1:{sha1(body)}"),
        *extra,
    ]
    return warc(head + body, fields, length=length)


def arc(
    block: bytes,
    url: str = "http://example.com/",
    date: str = "20120208213013",
    mime: str = "text/html",
    length: int | None = None,
    end: bytes = b"\n",
) -> bytes:
    """One uncompressed version 1 record; ``end`` is what the writer puts between records."""
    declared = len(block) if length is None else length
    return f"{url} 192.0.2.1 {date} {mime} {declared}\n".encode("latin-1") + block + end


def filedesc(name: str = "test.arc") -> bytes:
    block = b"1 0 Test\nURL IP-address Archive-date Content-type Archive-length\n"
    return arc(block, url=f"filedesc://{name}", mime="text/plain")


def member(record: bytes) -> bytes:
    return gzip.compress(record, mtime=0)


def members(records: Iterable[bytes]) -> bytes:
    return b"".join(map(member, records))


def records_of(found: Iterable[ArchivedRecord | DataFault]) -> list[ArchivedRecord]:
    return [one for one in found if isinstance(one, ArchivedRecord)]


def faults_of(found: Iterable[ArchivedRecord | DataFault]) -> list[DataFault]:
    return [one for one in found if isinstance(one, DataFault)]
