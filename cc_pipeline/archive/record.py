"""One archived HTTP exchange, whatever container it came from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ArchivedRecord:
    """A capture as stored. Header lists keep order and repetition; header text is latin-1 decoded bytes, and a
    line without a colon is kept under an empty name.

    ``container`` is ``warc`` or ``arc``. ``record_type`` is a WARC type (``response``, ``revisit`` ...), ``arc``,
    or ``filedesc`` for the version block of an ARC file. ``url`` is decoded as UTF-8 where its bytes are UTF-8.
    ``payload`` is the body as stored: Common Crawl stores bodies already decoded, so nothing here is
    decompressed a second time (``decoding.decoded_payload`` does where bodies are still encoded); it is the whole
    block of records that are no HTTP message. ``fetch_time`` is aware UTC, ``None`` where the record's own date
    cannot be read. ``http_status`` is ``None`` where there is no readable status line; ``http_status_line`` is the
    request line of a request. ``payload_digest`` is ``sha1`` in base32 without a prefix, computed from
    ``payload``; ``declared_digest`` is what the record claims, in the same form for sha1 and as it stands
    otherwise, ``None`` if nothing. ``truncated`` is the reason WARC-Truncated or the 2012 crawler's
    ``x-commoncrawl-ContentTruncated`` gives. ``declared_mime`` is the Content-Type's media type in lower case.
    ``flags`` are words of a closed list (see archive/flags.py) for what was odd but readable.
    """

    container: str
    record_type: str
    url: str
    fetch_time: datetime | None
    server_ip: str | None
    record_headers: Headers
    http_status: int | None
    http_status_line: str | None
    http_headers: Headers
    payload: bytes
    payload_digest: str
    declared_digest: str | None
    truncated: str | None
    declared_mime: str | None
    flags: tuple[str, ...] = ()
