"""The other rooms read the bucket without a complaint: what they call odd would be odd in a faithful bucket."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from cc_pipeline.archive import arc, warc
from cc_pipeline.archive.record import EXTRA_CRLF, ArchivedRecord
from cc_pipeline.commoncrawl.crawls import parse_collinfo
from cc_pipeline.commoncrawl.paths import (
    IndexFile,
    WarcFile,
    parse_arc_key,
    parse_path_list,
    parse_valid_segments,
    path_list_key,
)
from cc_pipeline.documents.page import PageInput
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.testing.mini_crawl import Capture, CrawlSpec, MiniCrawlSpec, generate
from cc_pipeline_tests.testing.mini_crawl.conftest import ARC, NEW, OLD, Bucket


def record_of(root: Path, capture: Capture) -> ArchivedRecord:
    data = (root / capture.warc_filename).read_bytes()
    member = data[capture.warc_record_offset : capture.warc_record_offset + capture.warc_record_length]
    read = arc.read_record if capture.archive_format == "arc" else warc.read_record
    return read(member, capture.warc_filename, capture.warc_record_offset)


@pytest.mark.parametrize("crawl", [NEW, OLD, ARC])
def test_every_record_reads_without_a_flag(bucket: Bucket, crawl: str) -> None:
    for capture in bucket.truth.captures_of(crawl):
        record = record_of(bucket.root, capture)
        assert record.flags == ()
        assert record.url == capture.url
        assert record.fetch_time == capture.fetch_time
        assert record.http_status == capture.fetch_status
        assert record.payload_digest == capture.payload_digest
        assert record.declared_digest == (capture.content_digest if crawl != ARC else None)


def test_file_names_and_lists_parse(bucket: Bucket) -> None:
    assert [crawl.id for crawl in parse_collinfo((bucket.root / "collinfo.json").read_bytes())] == [NEW, OLD, ARC]
    for crawl in (NEW, OLD):
        table = parse_path_list((bucket.root / path_list_key(crawl, "cc-index-table")).read_bytes())
        assert {IndexFile.from_path(key).subset for key in table} == {"warc", "crawldiagnostics", "robotstxt"}
        files = parse_path_list((bucket.root / path_list_key(crawl, "warc")).read_bytes())
        for file in map(WarcFile.from_path, files):
            assert (file.crawl, file.subset) == (crawl, "warc")
            assert file.started is not None and file.ended is not None
            held = [capture for capture in bucket.truth.captures if capture.warc_filename == file.path]
            assert all(file.started <= capture.fetch_time <= file.ended for capture in held)
    segments = parse_valid_segments((bucket.root / "parse-output/valid_segments.txt").read_bytes())
    assert {parse_arc_key(capture.warc_filename).segment_id for capture in bucket.truth.captures_of(ARC)} == set(
        segments
    )


def test_august_2018_has_its_empty_line_too_many(tmp_path: Path) -> None:
    spec = MiniCrawlSpec(pages=25, sites=2, crawls=(CrawlSpec("CC-MAIN-2018-34", segments=1),))
    truth = generate(tmp_path / "bucket", spec)
    flagged = 0
    for capture in truth.captures:
        record = record_of(tmp_path / "bucket", capture)
        flagged += EXTRA_CRLF in record.flags
        assert record.payload_digest == capture.payload_digest
    assert flagged > 20


def test_before_2016_wire_headers_were_kept_with_decoded_bodies(tmp_path: Path) -> None:
    spec = MiniCrawlSpec(pages=25, sites=2, crawls=(CrawlSpec("CC-MAIN-2014-10", segments=1),))
    truth = generate(tmp_path / "bucket", spec)
    kept = 0
    for capture in truth.captures:
        data = (tmp_path / "bucket" / capture.warc_filename).read_bytes()
        member = gzip.decompress(data[capture.warc_record_offset :][: capture.warc_record_length])
        kept += b"\r\nContent-Encoding: gzip\r\n" in member
        assert record_of(tmp_path / "bucket", capture).payload_digest == capture.payload_digest
    assert kept > 3


def test_titles_and_languages_come_out_as_they_were_put_in(bucket: Bucket) -> None:
    languages: dict[str, set[str | None]] = {}
    titles = 0
    for capture in bucket.truth.captures:
        if capture.title is None or capture.fetch_status != 200:
            continue
        record = record_of(bucket.root, capture)
        page = PageInput(
            crawl=capture.crawl,
            subset=capture.subset,
            url=capture.url,
            payload=record.payload,
            http_status=record.http_status,
            http_headers=record.http_headers,
            mime_detected=capture.content_mime_detected,
            archive_format=capture.archive_format,
        )
        parsed = parse_page(page)
        assert parsed.metadata["content"]["title"] == capture.title
        assert parsed.text is not None
        languages.setdefault(capture.domain, set()).add((parsed.text["content_languages"] or "").split(",")[0])
        titles += 1
    assert titles > 100
    assert "deu" in languages["beispiel-example.de"]
    assert "rus" in languages["primer-example.ru"]
    assert "fra" in languages["exemple-example.fr"]
