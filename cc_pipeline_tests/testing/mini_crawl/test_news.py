"""A generated month of CC-NEWS, as other readers see it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from warcio.archiveiterator import ArchiveIterator

from cc_pipeline.archive.plainwalk import StoredRecord
from cc_pipeline.archive.record import UNUSUAL_DATE
from cc_pipeline.archive.warc import iter_located
from cc_pipeline.commoncrawl.paths import WarcFile, parse_path_list, path_list_key
from cc_pipeline_tests.testing.mini_crawl.news import NewsSpec, write_news

SPEC = NewsSpec(files=3, fetches=20)


def test_other_readers_find_every_response_and_no_flag(tmp_path: Path) -> None:
    truth = write_news(tmp_path, replace(SPEC, damaged=None))
    captures = {(one.warc_filename, one.warc_record_offset): one for one in truth.truth.captures}
    assert parse_path_list((tmp_path / path_list_key(SPEC.month, "warc")).read_bytes()) == truth.files
    seen = 0
    for file in truth.files:
        assert WarcFile.from_path(file).crawl == SPEC.month
        with (tmp_path / file).open("rb") as stream:
            kinds = [record.rec_type for record in ArchiveIterator(stream, check_digests="raise")]
        assert kinds[0] == "warcinfo" and kinds[1:] == ["request", "response"] * (len(kinds) // 2)
        for found in iter_located(tmp_path / file, file):
            assert isinstance(found, StoredRecord) and set(found.record.flags) <= {UNUSUAL_DATE}
            if found.record.record_type == "response":
                capture = captures[file, found.offset]
                record = found.record
                assert (record.url, record.fetch_time, record.http_status) == (
                    capture.url, capture.fetch_time, capture.fetch_status,
                )  # fmt: skip
                assert (record.payload_digest, found.length) == (capture.payload_digest, capture.warc_record_length)
                seen += 1
    assert seen == len(captures)
