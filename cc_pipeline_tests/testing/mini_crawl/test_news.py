"""A generated month of CC-NEWS: as other readers see it, the same again, and growing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from warcio.archiveiterator import ArchiveIterator

from cc_pipeline.archive.plainwalk import StoredRecord
from cc_pipeline.archive.record import UNUSUAL_DATE
from cc_pipeline.archive.warc import iter_located
from cc_pipeline.commoncrawl.paths import WarcFile, parse_path_list, path_list_key
from cc_pipeline.errors import DataFault
from cc_pipeline_tests.testing.mini_crawl.news import PUBLISHERS, NewsSpec, write_news

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


def test_a_month_has_what_makes_it_hard(tmp_path: Path) -> None:
    truth = write_news(tmp_path, SPEC)
    captures = truth.truth.captures
    assert {one.domain for one in captures} == {*PUBLISHERS} and all(truth.of(domain) for domain in PUBLISHERS)
    assert {one.kind for one in captures} == {"html", "redirect", "rss", "truncated", "notfound"}
    per_file = Counter(one.warc_filename for one in captures)
    assert per_file[truth.files[2]] < per_file[truth.files[0]] / 2
    assert len({one.url for one in captures}) < len(captures), "some articles are fetched again"
    [(file, offset, url)] = truth.damaged
    faults = [one for one in iter_located(tmp_path / file, file) if isinstance(one, DataFault)]
    assert [fault.offset for fault in faults] == [offset] and url not in {
        one.url for one in captures if one.warc_filename == file
    }
    records = [
        one.record for f in truth.files for one in iter_located(tmp_path / f, f) if isinstance(one, StoredRecord)
    ]
    assert any(":" in (record.server_ip or "") for record in records)
    assert any(name == "X-Crawler-Content-Encoding" for record in records for name, _ in record.http_headers)


def test_the_same_again_and_more_files_leave_those_before(tmp_path: Path) -> None:
    one = write_news(tmp_path / "one", SPEC)
    two = write_news(tmp_path / "two", replace(SPEC, files=2))
    before = {file: (tmp_path / "two" / file).read_bytes() for file in two.files}
    assert write_news(tmp_path / "two", SPEC) == one
    assert all((tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes() for file in one.files)
    assert {file: (tmp_path / "two" / file).read_bytes() for file in two.files} == before
