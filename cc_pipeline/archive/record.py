"""One archived HTTP exchange of a WARC or ARC file, independent of the format, with its digests and flags for all
anomalies."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cc_pipeline.archive.gzip_members import DEFAULT_LIMIT
from cc_pipeline.codings import DecodedPayload, decoded

#: The spelling of records, and the bare one of the index.
_SHA1: Final = re.compile(r"(?:sha1:)?([A-Z2-7]{32})")
_ALGORITHMS: Final = {"md5": 16, "sha1": 20, "sha256": 32, "sha384": 48, "sha512": 64}

LF_ONLY: Final = "lf-only-header"
CR_CR_LF: Final = "cr-cr-lf-header"
VERSION_CASE: Final = "version-line-case"
FOLDED: Final = "folded-header"
MALFORMED_LINE: Final = "malformed-header-line"
REPEATED_FIELD: Final = "repeated-field"
BLANK_BEFORE: Final = "blank-lines-before"
UNKNOWN_VERSION: Final = "unknown-version"
UNKNOWN_TYPE: Final = "unknown-record-type"
MISSING_URL: Final = "missing-url"
BRACKETED_URL: Final = "url-in-brackets"
UNUSUAL_URL: Final = "odd-url"
UNUSUAL_DATE: Final = "odd-date"
UNREADABLE_DATE: Final = "unreadable-date"
UNUSABLE_LENGTH: Final = "unusable-length"
WRONG_LENGTH: Final = "wrong-length"
MISSING_RECORD_END: Final = "missing-record-end"
BYTES_AFTER_RECORD: Final = "bytes-after-record"
BYTES_AFTER_MEMBER: Final = "bytes-after-member"
SEVERAL_MEMBERS: Final = "several-members"
DAMAGED_MEMBER: Final = "damaged-member"
NO_STATUS_LINE: Final = "no-status-line"
NO_HEADER_END: Final = "no-header-end"
HTTP_LF_ONLY: Final = "http-lf-only"
HTTP_CR_CR_LF: Final = "http-cr-cr-lf"
HTTP_FOLDED: Final = "http-folded-header"
HTTP_MALFORMED_LINE: Final = "http-malformed-line"
INTERIM: Final = "interim-response"
EXTRA_CRLF: Final = "extra-crlf"
END_IN_PAYLOAD: Final = "record-end-in-payload"
DIGEST_MISMATCH: Final = "digest-mismatch"
DIGEST_OF_DECHUNKED: Final = "digest-of-dechunked"
DIGEST_OF_INTERIM: Final = "digest-of-interim"
DIGEST_OF_BLOCK: Final = "digest-of-block"
DIGEST_UNKNOWN: Final = "digest-unknown"

#: Every flag with its meaning.
FLAGS: Final[dict[str, str]] = {
    LF_ONLY: "the record header's lines end in LF without CR",
    CR_CR_LF: "the record header's lines end in CR CR LF",
    VERSION_CASE: "the version line is not in capitals",
    FOLDED: "a record header field goes on over several lines (joined with one space)",
    MALFORMED_LINE: "a record header line has no colon (kept under an empty name)",
    REPEATED_FIELD: "a field that may occur only once is repeated with other values (the first counts)",
    BLANK_BEFORE: "empty lines before the record",
    UNKNOWN_VERSION: "a WARC version other than 0.17, 0.18, 1.0 and 1.1, or an ARC version other than 1 and 2",
    UNKNOWN_TYPE: "no record type, or one that no WARC version defines",
    MISSING_URL: "a record of a kind that has a URL comes without one",
    BRACKETED_URL: "the URL stood in angle brackets (taken off)",
    UNUSUAL_URL: "the URL has blanks, control characters, or bytes that are not UTF-8 (then read as latin-1)",
    UNUSUAL_DATE: "the date has an unusual form, yet it could be read",
    UNREADABLE_DATE: "the date is missing or cannot be read",
    UNUSABLE_LENGTH: "the declared length is negative; the record ends where its gzip member ends",
    WRONG_LENGTH: "the declared length is wrong; the record ends where its sound gzip member or the next record tells",
    MISSING_RECORD_END: "the line breaks that end a record are missing",
    BYTES_AFTER_RECORD: "bytes follow the record's declared end inside its gzip member, or before the next record",
    BYTES_AFTER_MEMBER: "the input has more bytes after the record's gzip member",
    SEVERAL_MEMBERS: "the record lies in several gzip members, one behind the other",
    DAMAGED_MEMBER: "the gzip member that holds the record is damaged, the record itself came out whole",
    NO_STATUS_LINE: "an HTTP response without a readable status line",
    NO_HEADER_END: "no empty line ends the HTTP header (the payload is empty)",
    HTTP_LF_ONLY: "the HTTP header's lines end in LF without CR",
    HTTP_CR_CR_LF: "the HTTP header's lines end in CR CR LF",
    HTTP_FOLDED: "an HTTP field goes on over several lines (joined with one space)",
    HTTP_MALFORMED_LINE: "an HTTP header line has no colon (kept under an empty name)",
    INTERIM: "interim responses (status 1xx) stood before the HTTP response (passed over)",
    EXTRA_CRLF: "a surplus CRLF between HTTP header and payload (CC-MAIN-2018-34) was taken off the payload",
    END_IN_PAYLOAD: "the declared length is too long by line breaks that end the record (taken off the payload)",
    DIGEST_MISMATCH: "the declared digest is not the payload's",
    DIGEST_OF_DECHUNKED: "the declared digest is that of the payload without its chunked coding",
    DIGEST_OF_INTERIM: "the declared digest is that of all behind an interim response, the final HTTP header included",
    DIGEST_OF_BLOCK: "the declared payload digest is that of the whole block, HTTP header included",
    DIGEST_UNKNOWN: "the declared digest cannot be compared (unknown algorithm or spelling)",
}

Headers = tuple[tuple[str, str], ...]


def sha1_base32(payload: bytes) -> str:
    """Returns SHA-1 in base32, 32 characters: the spelling of Common Crawl's index and WARCs."""
    return base64.b32encode(hashlib.sha1(payload, usedforsecurity=False).digest()).decode("ascii")


def declared(value: str | None) -> str | None:
    """Normalizes a declared digest: sha1 as bare upper-case base32, others unchanged; ``None`` for an empty one."""
    if value is None:
        return None
    usual = _SHA1.fullmatch(value)
    if usual is not None:
        return usual[1]
    if not value.strip():
        return None
    value = value.strip()
    algorithm, raw = _parse(value)
    if algorithm == "sha1" and raw is not None:
        return base64.b32encode(raw).decode("ascii")
    return value


def matches(value: str, payload: bytes, computed_sha1: str) -> bool | None:
    """Whether a ``declared`` digest is the payload's; ``None`` if the two cannot be compared."""
    if value == computed_sha1:
        return True
    algorithm, raw = _parse(value)
    if algorithm is None or raw is None:
        return None
    if algorithm == "sha1":
        return base64.b32encode(raw).decode("ascii") == computed_sha1
    return hashlib.new(algorithm, payload, usedforsecurity=False).digest() == raw


def _parse(value: str) -> tuple[str | None, bytes | None]:
    """Parses ``algorithm:text`` into algorithm and raw digest; the length shows whether the text is hexadecimal, base32
    or base64."""
    name, colon, text = value.partition(":")
    algorithm = name.lower().replace("-", "") if colon else "sha1"
    size = _ALGORITHMS.get(algorithm)
    if size is None:
        return None, None
    bare = (text if colon else value).strip().rstrip("=")
    try:
        if len(bare) == 2 * size:
            raw = bytes.fromhex(bare)
        elif len(bare) == -(-size * 8 // 5):
            raw = base64.b32decode(bare.upper() + "=" * (-len(bare) % 8))
        else:
            raw = base64.b64decode(bare + "=" * (-len(bare) % 4), altchars=b"-_" if set(bare) & {"-", "_"} else None)
    except (ValueError, binascii.Error):
        return algorithm, None
    return algorithm, raw if len(raw) == size else None


@dataclass(frozen=True, slots=True)
class ArchivedRecord:
    """A capture as stored. Header lists keep order and repetition; header text is latin-1 decoded bytes, and a
    line without a colon is kept under an empty name.

    ``container`` is ``warc`` or ``arc``. ``record_type`` is a WARC type (``response``, ``revisit`` ...), ``arc``,
    or ``filedesc`` for the version block of an ARC file. ``url`` is decoded as UTF-8 where its bytes are UTF-8.
    ``payload`` is the body as stored: Common Crawl stores decoded bodies, so nothing is decompressed here
    (``decoded_payload`` decodes bodies that are still encoded); for records that are no HTTP message it is the whole
    block. ``fetch_time`` is aware UTC, ``None`` if the record's own date cannot be read. ``http_status`` is ``None``
    without a readable status line; ``http_status_line`` is the request line of a request. ``payload_digest`` is
    ``sha1`` in base32 without a prefix, computed from ``payload``; ``declared_digest`` is the record's own digest, in
    the same form for sha1 and unchanged otherwise, ``None`` if it has none. ``truncated`` is the reason in
    WARC-Truncated or the 2012 crawler's ``x-commoncrawl-ContentTruncated``, ``segmented`` for a segment of a record.
    ``declared_mime`` is the Content-Type's media type in lower case.
    ``flags`` are words of a closed list (``FLAGS``) for readable anomalies.
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


def decoded_payload(record: ArchivedRecord, limit: int = DEFAULT_LIMIT) -> DecodedPayload:
    """Returns the payload without the codings in its HTTP headers, at most ``limit`` bytes. Never raises."""
    return decoded(record.payload, record.http_headers, limit)
