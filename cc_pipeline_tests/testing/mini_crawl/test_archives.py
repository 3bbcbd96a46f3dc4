"""Every archive file, judged by libraries that did not write it."""

from __future__ import annotations

import zlib
from io import BytesIO
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from cc_pipeline.testing.mini_crawl import Capture
from cc_pipeline.testing.mini_crawl.spec import sha1_base32
from cc_pipeline_tests.testing.mini_crawl.conftest import ARC, NEW, OLD, Bucket


def warc_files(bucket: Bucket) -> list[Path]:
    return sorted(bucket.root.rglob("*.warc.gz"))


def the_member(bucket: Bucket, capture: Capture) -> bytes:
    """The decoded bytes of the range; fails unless the range is exactly one gzip member."""
    with (bucket.root / capture.warc_filename).open("rb") as file:
        file.seek(capture.warc_record_offset)
        raw = file.read(capture.warc_record_length)
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    data = unpacker.decompress(raw)
    assert unpacker.eof and not unpacker.unused_data and len(raw) == capture.warc_record_length
    return data


def test_warcio_reads_every_warc_and_finds_every_digest_right(bucket: Bucket) -> None:
    kinds: dict[str, int] = {}
    for path in warc_files(bucket):
        with path.open("rb") as file:
            for record in ArchiveIterator(file, check_digests="raise"):
                record.content_stream().read()
                kinds[record.rec_type] = kinds.get(record.rec_type, 0) + 1
    exchanges = len(bucket.truth.captures_of(NEW)) + len(bucket.truth.captures_of(OLD))
    assert kinds["request"] == kinds["metadata"] == exchanges == kinds["response"] + kinds["revisit"]
    assert kinds["revisit"] >= 1
    assert kinds["warcinfo"] == len(warc_files(bucket))


@pytest.mark.parametrize("crawl", [NEW, OLD])
def test_every_capture_is_one_whole_member_with_its_url_and_digest(bucket: Bucket, crawl: str) -> None:
    for capture in bucket.truth.captures_of(crawl):
        record = next(iter(ArchiveIterator(BytesIO(the_member(bucket, capture)))))
        assert record.rec_headers.get_header("WARC-Target-URI") == capture.url
        assert record.rec_headers.get_header("WARC-Date") == f"{capture.fetch_time:%Y-%m-%dT%H:%M:%SZ}"
        assert record.http_headers.get_statuscode() == str(capture.fetch_status)
        body = record.raw_stream.read()
        assert sha1_base32(body) == capture.payload_digest
        assert len(body) == capture.payload_length
        declared = record.rec_headers.get_header("WARC-Payload-Digest")
        assert declared == (f"sha1:{capture.content_digest}" if capture.content_digest else None)


def test_an_arc_record_is_as_2012_wrote_it(bucket: Bucket) -> None:
    still_encoded = charsets = 0
    for capture in bucket.truth.captures_of(ARC):
        line, _, content = the_member(bucket, capture).partition(b"\n")
        url, _, moment, _, length = line.decode().split(" ")
        assert url == capture.url and moment == f"{capture.fetch_time:%Y%m%d%H%M%S}"
        assert int(length) == len(content) and content.endswith(b"\n")
        head, _, body = content[:-1].partition(b"\r\n\r\n")
        assert sha1_base32(body) == capture.payload_digest
        still_encoded += b"\r\nContent-Encoding:gzip" in head and not body.startswith(b"\x1f\x8b")
        charsets += b"\r\nx-commoncrawl-DetectedCharset:" in head
    assert still_encoded > 5 and charsets > 20
