"""One WARC record: what the standard says, what the wild does, and what is refused."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime

import pytest

from cc_pipeline.archive import record as flag
from cc_pipeline.archive import warc
from cc_pipeline.archive.record import ArchivedRecord
from cc_pipeline.errors import DataFault
from cc_pipeline.records.verification import digest_check
from cc_pipeline_tests.archive import builders
from cc_pipeline_tests.archive.builders import HTTP_OK, sha1

BODY = b"<html>caf\xc3\xa9</html>"


def read(record: bytes, source: str = "crawl/x.warc.gz") -> ArchivedRecord:
    """Both ways: as a gzip member and as it is."""
    packed = warc.read_record(builders.member(record), source, 7)
    assert warc.read_record(record, source, 7) == packed
    return packed


def test_every_field_of_a_response() -> None:
    record = read(builders.response(BODY, extra=[("WARC-Protocol", "h2"), ("WARC-Protocol", "tls/1.3")]))
    assert record.container == "warc"
    assert record.record_type == "response"
    assert record.url == "http://example.com/"
    assert record.fetch_time == datetime(2024, 5, 18, 1, 58, 10, tzinfo=UTC)
    assert record.server_ip == "192.0.2.1"
    assert record.record_headers[-3:-1] == (("WARC-Protocol", "h2"), ("WARC-Protocol", "tls/1.3"))
    assert (record.http_status, record.http_status_line) == (200, "HTTP/1.1 200 OK")
    assert record.http_headers == (
        ("Content-Type", "text/html; charset=utf-8"), ("X-Note", "one"), ("X-Note", "two"),
    )  # fmt: skip
    assert record.payload == BODY
    assert record.payload_digest == record.declared_digest == sha1(BODY)
    assert record.declared_mime == "text/html"
    assert (record.truncated, record.flags) == (None, ())


@pytest.mark.parametrize("version", ["WARC/0.17", "WARC/0.18", "WARC/1.0", "WARC/1.1"])
def test_known_versions(version: str) -> None:
    assert read(builders.response(BODY).replace(b"WARC/1.0", version.encode(), 1)).flags == ()


def test_a_newer_version_is_read_and_flagged() -> None:
    assert read(builders.response(BODY).replace(b"WARC/1.0", b"WARC/2.0", 1)).flags == (flag.UNKNOWN_VERSION,)


@pytest.mark.parametrize(
    ("date", "expected", "flags"),
    [
        ("2024-05-18T01:58:10.123456Z", datetime(2024, 5, 18, 1, 58, 10, 123456, UTC), (flag.UNUSUAL_DATE,)),
        ("2024-05-18T01:58:10.123456789Z", datetime(2024, 5, 18, 1, 58, 10, 123456, UTC), (flag.UNUSUAL_DATE,)),
        ("2024-05", datetime(2024, 5, 1, tzinfo=UTC), (flag.UNUSUAL_DATE,)),
        ("2024-05-18T03:58:10+02:00", datetime(2024, 5, 18, 1, 58, 10, tzinfo=UTC), (flag.UNUSUAL_DATE,)),
        ("20240518015810", datetime(2024, 5, 18, 1, 58, 10, tzinfo=UTC), (flag.UNUSUAL_DATE,)),
        ("0001-01-01T00:00:00+14:00", None, (flag.UNREADABLE_DATE,)),
        ("2024-02-30T00:00:00Z", None, (flag.UNREADABLE_DATE,)),
        ("yesterday", None, (flag.UNREADABLE_DATE,)),
        ("", None, (flag.UNREADABLE_DATE,)),
    ],
)
def test_dates(date: str, expected: datetime | None, flags: tuple[str, ...]) -> None:
    record = read(builders.response(BODY, date=date))
    assert (record.fetch_time, record.flags) == (expected, flags)


def test_folded_fields_are_joined() -> None:
    record = read(
        builders.response(BODY).replace(b"WARC-IP-Address: ", b"X-Folded: a\r\n\tb\r\n  c\r\nWARC-IP-Address: ")
    )
    assert ("X-Folded", "a b c") in record.record_headers
    assert record.flags == (flag.FOLDED,)


def test_line_ends_without_cr() -> None:
    record = read(builders.response(BODY).replace(b"\r\n", b"\n", 8 + 2).replace(b"\r\n\r\n<html>", b"\r\n\r\n<html>"))
    assert (record.payload, record.flags) == (BODY, (flag.LF_ONLY,))


def test_line_ends_lost_on_the_way() -> None:
    record = read(builders.response(BODY).replace(b"\r\n", b"\n"))
    assert record.payload == BODY
    assert record.flags == (flag.LF_ONLY, flag.WRONG_LENGTH, flag.HTTP_LF_ONLY)


def test_a_line_without_a_colon_is_kept() -> None:
    record = read(builders.response(BODY).replace(b"WARC-IP-Address: ", b"no colon here\r\nWARC-IP-Address: "))
    assert ("", "no colon here") in record.record_headers
    assert record.flags == (flag.MALFORMED_LINE,)


def test_a_lone_cr_loses_nothing() -> None:
    record = read(builders.response(BODY, extra=[("X-Odd", "a\rb")]))
    assert ("X-Odd", "a\rb") in record.record_headers


def test_of_contradicting_fields_the_first_counts() -> None:
    record = read(builders.response(BODY, extra=[("WARC-Target-URI", "http://other.example/")]))
    assert (record.url, record.flags) == ("http://example.com/", (flag.REPEATED_FIELD,))


@pytest.mark.parametrize(
    ("url", "expected", "flags"),
    [
        ("<http://example.com/>", "http://example.com/", (flag.BRACKETED_URL,)),
        ("http://example.com/a b", "http://example.com/a b", (flag.UNUSUAL_URL,)),
        ("http://example.com/caf\xc3\xa9", "http://example.com/café", ()),
        ("http://example.com/caf\xe9", "http://example.com/café", (flag.UNUSUAL_URL,)),
        ("", "", (flag.MISSING_URL,)),
    ],
)
def test_urls(url: str, expected: str, flags: tuple[str, ...]) -> None:
    record = read(builders.response(BODY, url=url))
    assert (record.url, record.flags) == (expected, flags)


@pytest.mark.parametrize(
    ("digest", "declared", "flags"),
    [
        (sha1(BODY), sha1(BODY), ()),
        (f"SHA-1:{sha1(BODY).lower()}", sha1(BODY), ()),
        ("sha1:" + "A" * 32, "A" * 32, (flag.DIGEST_MISMATCH,)),
        ("crc32:1234", "crc32:1234", (flag.DIGEST_UNKNOWN,)),
        ("sha1:short", "sha1:short", (flag.DIGEST_UNKNOWN,)),
        ("sha256:" + "0" * 64, "sha256:" + "0" * 64, (flag.DIGEST_MISMATCH,)),
        (f"sha1:{sha1(HTTP_OK + BODY)}", sha1(HTTP_OK + BODY), (flag.DIGEST_OF_BLOCK,)),
    ],
)
def test_declared_digests(digest: str, declared: str, flags: tuple[str, ...]) -> None:
    record = read(builders.response(BODY, digest=digest))
    assert (record.declared_digest, record.payload_digest, record.flags) == (declared, sha1(BODY), flags)


def test_the_digest_may_be_that_of_the_dechunked_body() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n"
    record = read(builders.response(body, head=head, digest=f"sha1:{sha1(b'hello world')}"))
    assert (record.payload, record.flags) == (body, (flag.DIGEST_OF_DECHUNKED,))


def test_the_surplus_line_of_2018_34_by_its_digest() -> None:
    record = read(builders.response(b"\r\n" + BODY, digest=f"sha1:{sha1(BODY)}"))
    assert (record.payload, record.payload_digest, record.flags) == (BODY, sha1(BODY), (flag.EXTRA_CRLF,))


@pytest.mark.parametrize("surplus", [1, 2, 3, 4])
def test_a_length_that_takes_in_the_end_of_the_record(surplus: int) -> None:
    length = len(HTTP_OK) + len(BODY) + surplus
    record = read(builders.response(BODY, length=length))
    assert (record.payload, record.payload_digest) == (BODY, sha1(BODY))
    assert flag.END_IN_PAYLOAD in record.flags
    assert flag.DIGEST_MISMATCH not in record.flags
    # without a digest that tells, the body may well end so
    unknown = read(builders.response(BODY, digest="sha1:" + "A" * 32, length=length))
    assert unknown.payload == BODY + b"\r\n\r\n"[:surplus]


def test_the_surplus_line_of_2018_34_by_its_length() -> None:
    head = HTTP_OK.replace(b"X-Note: one", f"Content-Length: {len(BODY)}".encode())
    wrong = builders.response(b"\r\n" + BODY, head=head, digest="sha1:" + "A" * 32)
    record = read(wrong, "crawl-data/CC-MAIN-2018-34/segments/1/warc/x.warc.gz")
    assert (record.payload, record.flags) == (BODY, (flag.EXTRA_CRLF, flag.DIGEST_MISMATCH))
    # Elsewhere a body may well begin with an empty line.
    assert read(wrong).payload == b"\r\n" + BODY
    sound = builders.response(b"\r\n" + BODY)
    assert read(sound, "crawl-data/CC-MAIN-2018-34/x.warc.gz").payload == b"\r\n" + BODY


@pytest.mark.parametrize(("value", "expected"), [("length", "length"), ("Time", "time"), ("", "unspecified")])
def test_truncation(value: str, expected: str) -> None:
    assert read(builders.response(BODY, extra=[("WARC-Truncated", value)])).truncated == expected


def test_a_segment_of_a_record_is_cut() -> None:
    """oduwsdl/ipwb#374, iipc/warc-specifications#28."""
    first = read(builders.response(BODY, digest="sha1:" + "A" * 32, extra=[("WARC-Segment-Number", "1")]))
    assert (first.truncated, first.flags) == ("segmented", ())
    cut = read(builders.response(BODY, extra=[("WARC-Segment-Number", "1"), ("WARC-Truncated", "length")]))
    assert cut.truncated == "length"


def test_a_revisit_has_the_digest_of_another_payload() -> None:
    fields = [
        ("WARC-Type", "revisit"), ("WARC-Date", "2024-05-18T01:58:10Z"), ("WARC-Target-URI", "http://example.com/"),
        ("Content-Type", "application/http; msgtype=response"), ("WARC-Payload-Digest", "sha1:" + "B" * 32),
    ]  # fmt: skip
    record = read(builders.warc(b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", fields))
    assert (record.record_type, record.http_status, record.payload, record.flags) == ("revisit", 304, b"", ())
    assert record.declared_digest == "B" * 32
    empty = read(builders.warc(b"", fields))
    assert (empty.http_status, empty.http_headers, empty.flags) == (None, (), ())


def test_other_types_keep_their_block_as_payload() -> None:
    block = b"software: x\r\n"
    fields = [
        ("WARC-Type", "warcinfo"),
        ("WARC-Date", "2024-05-18T01:58:10Z"),
        ("WARC-Block-Digest", f"sha1:{sha1(block)}"),
    ]
    record = read(builders.warc(block, [*fields, ("Content-Type", "application/warc-fields")]))
    assert (record.payload, record.url, record.http_status_line, record.flags) == (block, "", None, ())
    assert (record.declared_digest, record.declared_mime) == (sha1(block), "application/warc-fields")


def test_a_request_keeps_its_request_line() -> None:
    fields = [
        ("WARC-Type", "request"), ("WARC-Date", "2024-05-18T01:58:10Z"), ("WARC-Target-URI", "http://example.com/"),
        ("Content-Type", "application/http; msgtype=request"),
    ]  # fmt: skip
    record = read(builders.warc(b"POST /a HTTP/1.1\r\nHost: example.com\r\n\r\nq=1", fields))
    assert (record.http_status, record.http_status_line, record.payload) == (None, "POST /a HTTP/1.1", b"q=1")


def test_a_dns_response_is_no_http() -> None:
    fields = [
        ("WARC-Type", "response"), ("WARC-Date", "2024-05-18T01:58:10Z"), ("WARC-Target-URI", "dns:example.com"),
        ("Content-Type", "text/dns"),
    ]  # fmt: skip
    record = read(builders.warc(b"20240518015810\nexample.com. 1 IN A 192.0.2.1\n", fields))
    assert (record.http_status_line, record.declared_mime, record.flags) == (None, "text/dns", ())


def test_an_unknown_type_is_flagged() -> None:
    assert read(builders.response(BODY).replace(b"WARC-Type: response", b"WARC-Type: novelty")).flags == (
        flag.UNKNOWN_TYPE, flag.DIGEST_MISMATCH,
    )  # fmt: skip


@pytest.mark.parametrize("behind", [b"", b"\r\n", b"\n"])
def test_a_missing_end_is_flagged(behind: bytes) -> None:
    assert read(builders.response(BODY)[:-4] + behind).flags == (flag.MISSING_RECORD_END,)


def test_bytes_behind_are_flagged() -> None:
    record = builders.response(BODY)
    assert read(record + b"more").flags == (flag.BYTES_AFTER_RECORD,)
    assert warc.read_record(builders.member(record) + b"\x1f\x8b", "s", 0).flags == (flag.BYTES_AFTER_MEMBER,)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (builders.response(BODY, length=len(HTTP_OK + BODY) + 5), "declares"),
        (builders.response(BODY, length=10**17), "declares"),
        (builders.response(BODY, length=""), "no Content-Length"),
        (builders.response(BODY, length="-1"), "unusable Content-Length"),
        (builders.response(BODY, length="1e3"), "unusable Content-Length"),
        (builders.response(BODY, length="\xb2"), "unusable Content-Length"),
        (builders.response(BODY, length="9" * 5000), "unusable Content-Length"),
        (b"WARC/1.0\r\nWARC-Type: response\r\n", "no end"),
        (b"WARC/WARC\r\n\r\n", "no WARC version line"),
        (b"\r\n\r\nWARC/\r\n\r\n", "no WARC version line"),
    ],
)
def test_what_cannot_be_read_is_refused(record: bytes, words: str) -> None:
    for data in (record, gzip.compress(record, mtime=0)):
        with pytest.raises(DataFault, match=words):
            warc.read_record(data, "s", 0)


@pytest.mark.parametrize("content", [b"", b"\r\n\r\n", b"<html>an error page</html>", b"\x00" * 100])
def test_a_member_without_a_record_is_refused(content: bytes) -> None:
    with pytest.raises(DataFault):
        warc.read_record(gzip.compress(content, mtime=0), "s", 0)
    with pytest.raises(DataFault):
        warc.read_record(content, "s", 0)


@pytest.mark.parametrize("of_all", [False, True])
def test_digests_behind_an_interim_response(of_all: bool) -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    digest = f"sha1:{sha1(HTTP_OK + BODY if of_all else BODY)}"
    record = read(builders.response(BODY, head=interim + HTTP_OK, digest=digest))
    assert (record.http_status, record.payload) == (200, BODY)
    assert record.flags == ((flag.INTERIM, flag.DIGEST_OF_INTERIM) if of_all else (flag.INTERIM,))
    assert digest_check(record, record.declared_digest) == "match"
