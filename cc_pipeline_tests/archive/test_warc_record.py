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


SOUND = builders.response(BODY)
IP = b"WARC-IP-Address: "
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
IN_CHUNKS = b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n"
FIELDS = (("WARC-Date", "2024-05-18T01:58:10Z"), ("WARC-Target-URI", "http://example.com/"))
INFO = b"software: x\r\n"
INFO_FIELDS = (("WARC-Type", "warcinfo"), FIELDS[0], ("WARC-Block-Digest", f"sha1:{sha1(INFO)}"))

#: Records that are odd, and what is read of them; every one is read as a gzip member and as it is.
ODD: dict[str, tuple[bytes, dict[str, object]]] = {
    "an old version": (SOUND.replace(b"WARC/1.0", b"WARC/0.17", 1), {"flags": ()}),
    "version 1.1": (SOUND.replace(b"WARC/1.0", b"WARC/1.1", 1), {"flags": ()}),
    "a newer version": (SOUND.replace(b"WARC/1.0", b"WARC/2.0", 1), {"flags": (flag.UNKNOWN_VERSION,)}),
    "CR before": (b"\r\n\r\n" + SOUND, {"payload": BODY, "flags": (flag.BLANK_BEFORE,)}),
    "LF before": (b"\n" + SOUND, {"payload": BODY, "flags": (flag.BLANK_BEFORE,)}),
    "folded fields": (SOUND.replace(IP, b"X-Folded: a\r\n\tb\r\n  c\r\n" + IP), {"flags": (flag.FOLDED,)}),
    "line ends without CR": (
        SOUND.replace(b"\r\n", b"\n", 8 + 2).replace(b"\r\n\r\n<html>", b"\r\n\r\n<html>"),
        {"payload": BODY, "flags": (flag.LF_ONLY,)},
    ),
    "line ends lost on the way": (
        SOUND.replace(b"\r\n", b"\n"),
        {"payload": BODY, "flags": (flag.LF_ONLY, flag.WRONG_LENGTH, flag.HTTP_LF_ONLY)},
    ),
    "no colon": (SOUND.replace(IP, b"no colon here\r\n" + IP), {"flags": (flag.MALFORMED_LINE,)}),
    "of contradicting fields the first counts": (
        builders.response(BODY, extra=[("WARC-Target-URI", "http://other.example/")]),
        {"url": "http://example.com/", "flags": (flag.REPEATED_FIELD,)},
    ),
    "the digest of the dechunked body": (
        builders.response(IN_CHUNKS, head=CHUNKED, digest=f"sha1:{sha1(b'hello world')}"),
        {"payload": IN_CHUNKS, "flags": (flag.DIGEST_OF_DECHUNKED,)},
    ),
    "the surplus line of 2018-34 by its digest": (
        builders.response(b"\r\n" + BODY, digest=f"sha1:{sha1(BODY)}"),
        {"payload": BODY, "payload_digest": sha1(BODY), "flags": (flag.EXTRA_CRLF,)},
    ),
    "truncated": (builders.response(BODY, extra=[("WARC-Truncated", "Time")]), {"truncated": "time"}),
    "truncated for no reason": (builders.response(BODY, extra=[("WARC-Truncated", "")]), {"truncated": "unspecified"}),
    "oduwsdl/ipwb#374, iipc/warc-specifications#28: a segment of a record is cut": (
        builders.response(BODY, digest="sha1:" + "A" * 32, extra=[("WARC-Segment-Number", "1")]),
        {"truncated": "segmented", "flags": ()},
    ),
    "a segment that says why": (
        builders.response(BODY, extra=[("WARC-Segment-Number", "1"), ("WARC-Truncated", "length")]),
        {"truncated": "length"},
    ),
    "other types keep their block as payload": (
        builders.warc(INFO, [*INFO_FIELDS, ("Content-Type", "application/warc-fields")]),
        {"payload": INFO, "url": "", "http_status_line": None, "flags": (), "declared_digest": sha1(INFO),
         "declared_mime": "application/warc-fields"},
    ),
    "a request": (
        builders.warc(
            b"POST /a HTTP/1.1\r\nHost: a\r\n\r\nq=1",
            [("WARC-Type", "request"), *FIELDS, ("Content-Type", "application/http; msgtype=request")],
        ),
        {"http_status": None, "http_status_line": "POST /a HTTP/1.1", "payload": b"q=1"},
    ),
    "a dns response is no HTTP": (
        builders.warc(
            b"20240518015810\nexample.com. 1 IN A 192.0.2.1\n",
            [("WARC-Type", "response"), FIELDS[0], ("WARC-Target-URI", "dns:a"), ("Content-Type", "text/dns")],
        ),
        {"http_status_line": None, "declared_mime": "text/dns", "flags": ()},
    ),
    "an unknown type": (
        SOUND.replace(b"WARC-Type: response", b"WARC-Type: novelty"),
        {"flags": (flag.UNKNOWN_TYPE, flag.DIGEST_MISMATCH)},
    ),
    "no end": (SOUND[:-4], {"flags": (flag.MISSING_RECORD_END,)}),
    "half an end": (SOUND[:-2], {"flags": (flag.MISSING_RECORD_END,)}),
    "bytes behind": (SOUND + b"more", {"flags": (flag.BYTES_AFTER_RECORD,)}),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_odd_records(name: str) -> None:
    data, expected = ODD[name]
    record = read(data)
    assert {attribute: getattr(record, attribute) for attribute in expected} == expected


def test_odd_lines_are_kept() -> None:
    for name, line in (("folded fields", ("X-Folded", "a b c")), ("no colon", ("", "no colon here"))):
        assert line in read(ODD[name][0]).record_headers
    assert ("X-Odd", "a\rb") in read(builders.response(BODY, extra=[("X-Odd", "a\rb")])).record_headers
    assert warc.read_record(builders.member(SOUND) + b"\x1f\x8b", "s", 0).flags == (flag.BYTES_AFTER_MEMBER,)


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


def test_a_revisit_has_the_digest_of_another_payload() -> None:
    http = ("Content-Type", "application/http; msgtype=response")
    fields = [("WARC-Type", "revisit"), *FIELDS, http, ("WARC-Payload-Digest", "sha1:" + "B" * 32)]
    record = read(builders.warc(b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", fields))
    assert (record.record_type, record.http_status, record.payload, record.flags) == ("revisit", 304, b"", ())
    assert record.declared_digest == "B" * 32
    empty = read(builders.warc(b"", fields))
    assert (empty.http_status, empty.http_headers, empty.flags) == (None, (), ())


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
