"""Verifies that bytes are the record that an index row names: gzip member, record, target URI, digest. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cc_pipeline.archive import arc, warc
from cc_pipeline.archive import record as flag
from cc_pipeline.archive.gzip_members import DEFAULT_LIMIT, GZIP_MAGIC, inflate_member
from cc_pipeline.archive.record import ArchivedRecord, declared, matches
from cc_pipeline.commoncrawl.crawls import index_is_built
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.errors import DataFault, DataKind, Kind
from cc_pipeline.transport.faults import FaultKind

#: Names the reader in the ``parser`` column; raised when reading the same bytes may give another answer.
PARSER: Final = "cc_pipeline.archive/1"

_CAPTURE_TYPES: Final = frozenset({"response", "revisit", "resource", "conversion", "arc"})


@dataclass(frozen=True, slots=True)
class ExpectedRecord:
    """The record that the index predicts for a capture. ``length`` is ``None`` if it is not known. ``digest`` is
    spelled as in the index, ``None`` if the index has none."""

    archive_format: str
    key: str
    offset: int
    length: int | None
    url: str | None
    surtkey: str | None
    digest: str | None


def expected_record(row: Mapping[str, Any]) -> ExpectedRecord:
    """Returns the record that the index predicts for a row of ``captures`` or ``records``."""
    return build_expected(row["crawl"], {name: (value,) for name, value in row.items()}, 0)


def build_expected(crawl: str, columns: Mapping[str, Sequence[Any]], row: int) -> ExpectedRecord:
    """Returns the record that the index predicts for a row of captures, which come as columns. An index that was built
    from the same records promises no digest."""
    return ExpectedRecord(
        columns["archive_format"][row],
        columns["warc_filename"][row],
        columns["warc_record_offset"][row],
        columns["warc_record_length"][row] or None,
        columns["url"][row],
        columns["url_surtkey"][row],
        None if index_is_built(crawl) else columns["content_digest"][row],
    )


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """The result of verifying some bytes. ``reason`` is ``None`` if they are good. Then ``member`` has the exact bytes
    of the record and ``content`` the inflated ones. ``detail`` may have a note on good bytes too."""

    reason: str | None
    detail: str | None
    digest_check: str | None
    record: ArchivedRecord | None
    member: bytes
    content: bytes

    @property
    def is_cut_off(self) -> bool:
        """Whether the bytes after these may complete the record."""
        plain = self.member[:2] != GZIP_MAGIC[:2]
        return self.reason == DataKind.GZIP_TRUNCATED.value or (plain and self.reason == DataKind.LENGTH_MISMATCH.value)


def verify_record(data: bytes, expected: ExpectedRecord, *, limit: int = DEFAULT_LIMIT) -> VerificationResult:
    """Verifies ``data``, the bytes at the expected location; inflates at most ``limit`` bytes."""
    if not data:
        return _rejected(FaultKind.EMPTY_BODY, "no bytes", data)
    notes: list[str] = []
    gzipped = data[:2] == GZIP_MAGIC[:2]
    member, content = data, data
    if gzipped:
        try:
            inflated = inflate_member(data, expected.key, expected.offset, limit)
        except DataFault as fault:
            return _rejected(fault.kind, fault.reason, data)
        member, content = data[: inflated.consumed], inflated.content
        if inflated.consumed != len(data) and expected.length is not None:
            notes.append(f"the member ends {len(data) - inflated.consumed} bytes before the promised length")
    elif not _has_record_start(data, expected.archive_format):
        return _rejected(DataKind.NOT_GZIP, f"begins with {data[:8].hex(' ')}", data)
    # if the length is not known, the headers of a plain record say where it ends
    open_ended = expected.length is None and not gzipped
    end = (arc if expected.archive_format == "arc" else warc).measure_record(data) if open_ended else 0
    if end < 0:
        return _rejected(DataKind.LENGTH_MISMATCH, f"its header does not end within {len(data)} bytes", data)
    try:
        if expected.archive_format == "arc":
            record = arc.parse_record(content, expected.key, expected.offset, sound=gzipped)
        else:
            record = warc.parse_record(content, expected.key, expected.offset)
    except DataFault as fault:
        return _rejected(fault.kind, fault.reason, data)
    if open_ended and flag.BYTES_AFTER_RECORD in record.flags:
        end = len(data) - len(data[end:].lstrip(b"\r\n"))
        return verify_record(data[:end], expected, limit=limit)
    return _compare(record, expected, member, content, notes)


def _compare(
    record: ArchivedRecord,
    expected: ExpectedRecord,
    member: bytes,
    content: bytes,
    notes: list[str],
) -> VerificationResult:
    if record.record_type not in _CAPTURE_TYPES:
        return VerificationResult("wrong_type", f"a {record.record_type} record", None, record, member, content)
    if not _same_target(record.url, expected):
        detail = f"the record is of {record.url[:300]!r}"
        return VerificationResult("wrong_target", detail, None, record, member, content)
    check = digest_check(record, expected.digest)
    if check == "mismatch":
        expected_digest = expected.digest or record.declared_digest
        notes.append(f"payload sha1 is {record.payload_digest}, promised {expected_digest}")
    notes.extend(record.flags)
    return VerificationResult(None, "; ".join(notes) or None, check, record, member, content)


def digest_check(record: ArchivedRecord, expected_digest: str | None) -> str:
    """Returns one of ``DIGEST_CHECKS``: the payload against the index's digest, else against the record's own
    digest."""
    if record.record_type == "revisit":
        return "unchecked"
    claimed = declared(expected_digest) or record.declared_digest
    if claimed is None:
        return "absent"
    if (
        not {flag.DIGEST_OF_DECHUNKED, flag.DIGEST_OF_INTERIM}.isdisjoint(record.flags)
        and claimed == record.declared_digest
    ):
        return "match"
    verdict = matches(claimed, record.payload, record.payload_digest)
    if verdict is None:
        return "unchecked"
    return "match" if verdict else "mismatch"


def _same_target(url: str, expected: ExpectedRecord) -> bool:
    if expected.url is None or url == expected.url:
        return True
    key = surt_key(url)
    # old indexes have a URL made from the key, so scheme, "www." and case may differ
    return key in (expected.surtkey, surt_key(expected.url))


def _has_record_start(data: bytes, archive_format: str) -> bool:
    if archive_format == "arc":
        return data[:4].lower() in (b"http", b"ftp:", b"dns:")
    return data.lstrip(b"\r\n")[:5] == b"WARC/"


def _rejected(kind: Kind, detail: str, data: bytes) -> VerificationResult:
    return VerificationResult(kind.value, detail, None, None, data, b"")
