"""ARC records as the format says, as Common Crawl wrote them, and as other writers did."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime

import pytest

from cc_pipeline.archive import arc
from cc_pipeline.archive import record as flag
from cc_pipeline.errors import DataFault
from cc_pipeline_tests.archive import builders
from cc_pipeline_tests.archive.builders import faults_of, records_of, sha1

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type:text/html\r\nContent-Encoding:gzip\r\nx-commoncrawl-DetectedCharset:UTF-8\r\n\r\n"
)
BODY = b"<html>\n\n</html>\n"


def of_2012(body: bytes, **options: str) -> bytes:
    """As Common Crawl's writer of 2012: the length counts the LF that ends the record."""
    return builders.arc(HEAD + body + b"\n", end=b"", **options)


def test_a_record_of_2012() -> None:
    record = arc.read_record(builders.member(of_2012(BODY)), "s", 0)
    assert (record.container, record.record_type) == ("arc", "arc")
    assert record.url == "http://example.com/"
    assert record.server_ip == "192.0.2.1"
    assert record.fetch_time == datetime(2012, 2, 8, 21, 30, 13, tzinfo=UTC)
    assert record.record_headers[-1] == ("Archive-length", str(len(HEAD + BODY) + 1))
    assert (record.http_status, record.http_status_line) == (200, "HTTP/1.1 200 OK")
    assert record.http_headers[1] == ("Content-Encoding", "gzip")
    assert record.payload == BODY
    assert record.payload_digest == sha1(BODY)
    assert (record.declared_digest, record.declared_mime, record.flags) == (None, "text/html", ())


def test_the_final_lf_is_the_bodys_where_the_http_length_says_so() -> None:
    head = f"HTTP/1.0 200 OK\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()
    packed = builders.member(builders.arc(head + BODY, end=b""))
    assert arc.read_record(packed, "s", 0).payload == BODY


@pytest.mark.parametrize(
    ("date", "expected", "flags"),
    [
        ("20120208213013", datetime(2012, 2, 8, 21, 30, 13, tzinfo=UTC), ()),
        ("2012020821", datetime(2012, 2, 8, 21, tzinfo=UTC), (flag.UNUSUAL_DATE,)),
        ("201202082130133", datetime(2012, 2, 8, 21, 30, 13, tzinfo=UTC), (flag.UNUSUAL_DATE,)),
        ("2012020821301300", datetime(2012, 2, 8, 21, 30, 13, tzinfo=UTC), (flag.UNUSUAL_DATE,)),
        ("201404010000000000", datetime(2014, 4, 1, tzinfo=UTC), (flag.UNUSUAL_DATE,)),
        ("20121332000000", None, (flag.UNREADABLE_DATE,)),
        ("-", None, (flag.UNREADABLE_DATE,)),
    ],
)
def test_dates(date: str, expected: datetime | None, flags: tuple[str, ...]) -> None:
    record = arc.read_record(builders.arc(HEAD + BODY, date=date), "s", 0)
    assert (record.fetch_time, record.flags) == (expected, flags)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "http://example.com/a b  c?d=e 1.2.3.4 20120101000000",
            "http://example.com/a b  c?d=e 1.2.3.4 20120101000000",
        ),
        ("http://example.com/a\rb", "http://example.com/a\rb"),
        ("http://example.com/a\x0cb", "http://example.com/a\x0cb"),
        ("http://example.com/caf\xe9", "http://example.com/café"),
    ],
)
def test_urls_as_they_should_not_be(url: str, expected: str) -> None:
    record = arc.read_record(builders.arc(HEAD + BODY, url=url), "s", 0)
    assert (record.url, record.flags) == (expected, (flag.UNUSUAL_URL,))


@pytest.mark.parametrize(
    "mime", ["text/html", "no-type", "", "text/html, application/x-javascript", "text/html; charset=utf-8"]
)
def test_media_types_with_blanks(mime: str) -> None:
    record = arc.read_record(builders.arc(b"plain", url="dns:example.com", mime=mime), "s", 0)
    assert (record.url, record.payload) == ("dns:example.com", b"plain")
    assert dict(record.record_headers)["Content-type"] == mime


def test_version_2_lines() -> None:
    line = b"http://example.com/a b 192.0.2.1 20120208213013 text/html 404 abc123 - 1234 x.arc.gz %d\n"
    record = arc.read_record(line % len(BODY) + BODY + b"\n", "s", 0)
    assert record.url == "http://example.com/a b"
    assert [name for name, _ in record.record_headers][4:6] == ["Result-code", "Checksum"]
    assert (record.http_status, record.payload) == (404, BODY)


def test_an_old_response_without_a_header() -> None:
    record = arc.read_record(builders.arc(b"<html>old</html>"), "s", 0)
    assert (record.http_status, record.payload, record.flags) == (None, b"<html>old</html>", (flag.NO_STATUS_LINE,))


def test_truncation_as_the_2012_crawler_marked_it() -> None:
    head = HEAD.replace(b"\r\n\r\n", b"\r\nx-commoncrawl-ContentTruncated:TruncatedInDownload\r\n\r\n")
    assert arc.read_record(builders.arc(head + BODY), "s", 0).truncated == "TruncatedInDownload"


@pytest.mark.parametrize("error", [-1000, -10, 10, 100_000, 10**15])
def test_a_sound_member_outranks_its_length(error: int) -> None:
    body = BODY * 100
    record = arc.read_record(
        builders.member(builders.arc(HEAD + body, length=len(HEAD + body) + error, end=b"")), "s", 0
    )
    assert (record.payload, record.flags) == (body, (flag.WRONG_LENGTH,))


@pytest.mark.parametrize(
    "record",
    [
        builders.arc(HEAD + BODY, length=10_000),
        b"",
        b"\x1f\x8b",
        b"no record line\n",
        b"http://example.com/ 192.0.2.1 20120208213013 text/html abc\n\n",
        b"http://example.com/ 192.0.2.1 20120208213013 text/html 5",
        b"http://example.com/ 192.0.2.1 20120208213013 text/html 2635 TESTFILE.arc 0\n",
        b"a" * 100_000 + b"\n",
        gzip.compress(of_2012(BODY), mtime=0)[:-1],
        gzip.compress(b"<html></html>", mtime=0),
    ],
)
def test_what_cannot_be_read_is_refused(record: bytes) -> None:
    with pytest.raises(DataFault):
        arc.read_record(record, "s", 0)


URLS = [f"http://example.com/{number}" for number in range(12)]
BODIES = [bytes((65 + number,)) * number * 100 for number in range(12)]
STANDARD = [builders.filedesc(), *(builders.arc(HEAD + body, url=url) for url, body in zip(URLS, BODIES, strict=True))]
YEAR_2012 = [builders.filedesc(), *(of_2012(body, url=url) for url, body in zip(URLS, BODIES, strict=True))]


@pytest.mark.parametrize("parts", [STANDARD, YEAR_2012])
@pytest.mark.parametrize("how", ["by record", "uncompressed", "one member"])
def test_whole_files(parts: list[bytes], how: str) -> None:
    whole = b"".join(parts)
    data = {"by record": builders.members(parts), "uncompressed": whole, "one member": gzip.compress(whole, mtime=0)}[
        how
    ]
    first, *records = list(arc.iter_records(data, "s"))
    assert not isinstance(first, DataFault)
    assert (first.record_type, first.url, first.server_ip) == ("filedesc", "filedesc://test.arc", "192.0.2.1")
    assert [(one.url, one.payload, one.flags) for one in records_of(records)] == [
        (url, body, ()) for url, body in zip(URLS, BODIES, strict=True)
    ]
    assert len(records) == 12


@pytest.mark.parametrize("how", ["by record", "uncompressed"])
def test_damage_costs_one_record(how: str) -> None:
    parts = [builders.member(part) if how == "by record" else part for part in STANDARD]
    bad = parts[5][:20] + b"\n\xff" + parts[5][22:]
    found = list(arc.iter_records(b"".join((*parts[:5], bad, *parts[6:])), "s"))
    assert [one.url for one in records_of(found)][1:] == URLS[:4] + URLS[5:]
    assert [fault.offset for fault in faults_of(found)] == [sum(map(len, parts[:5]))]


@pytest.mark.parametrize("length", [-1, 3, 76, 90_000])
def test_the_length_of_a_version_block_is_advice(length: int) -> None:
    block = b"1 0 Test\nURL IP-address Archive-date Content-type Archive-length\n"
    first = builders.arc(block, url="filedesc://test.arc", mime="text/plain", length=length)
    found = list(arc.iter_records(b"".join((first, *STANDARD[1:])), "s"))
    assert [one.url for one in records_of(found)][1:] == URLS
    assert not faults_of(found)
    assert records_of(found)[0].payload == block.rstrip()
