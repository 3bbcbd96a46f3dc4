"""What we write, other WARC readers read."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from fastwarc.warc import ArchiveIterator as FastIterator
from warcio.archiveiterator import ArchiveIterator

from cc_pipeline.archive import arc, warc, writing
from cc_pipeline.archive.record import ArchivedRecord
from cc_pipeline.errors import DataFault
from cc_pipeline_tests.archive import builders
from cc_pipeline_tests.archive.builders import records_of
from cc_pipeline_tests.corpus import CORPUS, needs_corpus

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
    b"Content-Encoding: gzip\r\nContent-Length: 3\r\nSet-Cookie: \xe9=1\r\n\r\n"
)


def converted(record: bytes, **options: str) -> ArchivedRecord:
    source = arc.read_record(builders.arc(record, **options), "a.arc.gz", 5)
    stream = io.BytesIO()
    writing.write_records(stream, [writing.arc_as_warc(source, "a.arc.gz", 5, [("WARC-Source-URI", "a.arc.gz")])])
    (record_back,) = records_of(warc.iter_records(stream.getvalue(), "w"))
    for found in ArchiveIterator(io.BytesIO(stream.getvalue()), check_digests="raise"):
        found.raw_stream.read()
    for found in FastIterator(io.BytesIO(stream.getvalue()), parse_http=False):
        assert found.verify_block_digest()
    assert record_back.flags == ()
    return record_back


def test_an_arc_record_as_warc() -> None:
    record = converted(HEAD + b"<html>already decoded</html>")
    assert (record.record_type, record.url, record.http_status) == ("response", "http://example.com/", 200)
    assert record.fetch_time == datetime(2012, 2, 8, 21, 30, 13, tzinfo=UTC)
    assert record.payload == b"<html>already decoded</html>"
    assert record.http_headers == (
        ("Content-Type", "text/html"),
        ("X-Crawler-Content-Encoding", "gzip"),
        ("X-Crawler-Content-Length", "3"),
        ("Content-Length", "28"),
        ("Set-Cookie", "\xe9=1"),
    )
    assert ("WARC-Source-URI", "a.arc.gz") in record.record_headers


def test_what_is_no_http() -> None:
    dns = converted(b"20120208\nexample.com. 1 IN A 192.0.2.1", url="dns:example.com", mime="text/dns")
    assert (dns.record_type, dns.declared_mime) == ("response", "text/dns")
    old = converted(b"<html>old</html>", mime="text/html")
    assert (old.record_type, old.declared_mime, old.payload) == ("resource", "text/html", b"<html>old</html>")
    block = converted(b"1 0 Test\n", url="filedesc://a.arc", mime="text/plain")
    assert (block.record_type, block.url) == ("metadata", "filedesc://a.arc")


def test_urls_become_uris_and_truncation_is_told() -> None:
    head = HEAD.replace(b"\r\n\r\n", b"\r\nx-commoncrawl-ContentTruncated:TruncatedInInflate\r\n\r\n")
    record = converted(head + b"x", url="http://example.com/a b\xe9%20<>")
    assert record.url == "http://example.com/a%20b%C3%A9%20<>"
    assert record.truncated == "length"


def test_without_a_date_there_is_no_warc_record() -> None:
    record = arc.read_record(builders.arc(HEAD + b"x", date="-"), "a", 5)
    with pytest.raises(DataFault, match="date"):
        writing.arc_as_warc(record, "a", 5)


@needs_corpus
def test_a_whole_arc_file_as_warc() -> None:
    path = next((CORPUS / "realcrawl" / "bucket" / "parse-output").rglob("*.arc.gz"))
    stream = io.BytesIO()
    records = records_of(arc.iter_records(path, path.name))
    writing.write_records(stream, (writing.arc_as_warc(one, path.name, place) for place, one in enumerate(records)))
    back = records_of(warc.iter_records(stream.getvalue(), "w"))
    assert [(one.url, one.fetch_time, one.http_status, one.payload_digest) for one in back] == [
        (one.url, one.fetch_time, one.http_status, one.payload_digest) for one in records
    ]
    assert all(not one.flags for one in back)
