"""The closed list of words in ``ArchivedRecord.flags``: odd, but readable.

What cannot be read is a ``DataFault`` instead. A flag never changes what ``payload`` holds, except where its
meaning says so.
"""

from __future__ import annotations

from typing import Final

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
ODD_URL: Final = "odd-url"
ODD_DATE: Final = "odd-date"
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
EXTRA_CRLF: Final = "extra-crlf"
DIGEST_MISMATCH: Final = "digest-mismatch"
DIGEST_OF_DECHUNKED: Final = "digest-of-dechunked"
DIGEST_OF_BLOCK: Final = "digest-of-block"
DIGEST_UNKNOWN: Final = "digest-unknown"

#: Every flag there is, with what it tells.
FLAGS: Final[dict[str, str]] = {
    LF_ONLY: "the record header's lines end in LF without CR",
    CR_CR_LF: "the record header's lines end in CR CR LF",
    VERSION_CASE: "the version line is not in capitals",
    FOLDED: "a record header field goes on over several lines (joined with one space)",
    MALFORMED_LINE: "a record header line has no colon (kept under an empty name)",
    REPEATED_FIELD: "a field that may occur once occurs more often with other values (the first counts)",
    BLANK_BEFORE: "empty lines before the record",
    UNKNOWN_VERSION: "a WARC version other than 0.17, 0.18, 1.0 and 1.1, or an ARC version other than 1 and 2",
    UNKNOWN_TYPE: "no record type, or one that no WARC version defines",
    MISSING_URL: "a record of a kind that has a URL comes without one",
    BRACKETED_URL: "the URL stood in angle brackets (taken off)",
    ODD_URL: "the URL has blanks, control characters, or bytes that are not UTF-8 (then read as latin-1)",
    ODD_DATE: "the date has an unusual form, yet it could be read",
    UNREADABLE_DATE: "the date is missing or cannot be read",
    UNUSABLE_LENGTH: "the declared length is negative; the record ends where its gzip member ends",
    WRONG_LENGTH: "the declared length is wrong; the record ends where its sound gzip member or the next record tells",
    MISSING_RECORD_END: "the line breaks that end a record are missing",
    BYTES_AFTER_RECORD: "bytes follow the record's declared end inside its gzip member, or before the next record",
    BYTES_AFTER_MEMBER: "the bytes handed in go on behind the record's gzip member",
    SEVERAL_MEMBERS: "the record lies in several gzip members, one behind the other",
    DAMAGED_MEMBER: "the gzip member that holds the record is damaged, the record itself came out whole",
    NO_STATUS_LINE: "an HTTP response without a readable status line",
    NO_HEADER_END: "no empty line ends the HTTP header (the payload is empty)",
    HTTP_LF_ONLY: "the HTTP header's lines end in LF without CR",
    HTTP_CR_CR_LF: "the HTTP header's lines end in CR CR LF",
    HTTP_FOLDED: "an HTTP field goes on over several lines (joined with one space)",
    HTTP_MALFORMED_LINE: "an HTTP header line has no colon (kept under an empty name)",
    EXTRA_CRLF: "a surplus CRLF between HTTP header and payload (CC-MAIN-2018-34) was taken off the payload",
    DIGEST_MISMATCH: "the declared digest is not the payload's",
    DIGEST_OF_DECHUNKED: "the declared digest is that of the payload without its chunked coding",
    DIGEST_OF_BLOCK: "the declared payload digest is that of the whole block, HTTP header included",
    DIGEST_UNKNOWN: "the declared digest cannot be compared (unknown algorithm or spelling)",
}
