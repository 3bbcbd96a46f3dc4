"""The lies that a server can be told to tell: as long as the truth, the same every time, and none passes for good."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from cc_pipeline.records.verification import ExpectedRecord, verify_record
from cc_pipeline.testing.mini_crawl.truth import Capture, MiniCrawlTruth
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import RangeFault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes, RetryPolicy
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.faultlies import LIES, lied
from cc_pipeline_tests.faultserver import LIE_FAULTS, FaultServer, Rule

#: What ``verify_record`` says of the record of a lie: the reason, else the digest check. ARC crawls have no digests,
#: and revisits no payload that could be another.
EXPECTED = {
    "bit_each": {"gzip_corrupt"},
    "login_page": {"mismatch", "absent", "unchecked"},
    "other_url": {"wrong_target"},
    "shifted": {"not_gzip"},
    "zeros": {"not_gzip"},
}


@dataclass(frozen=True, slots=True)
class Files:
    """A bucket, and its captures."""

    root: Path
    captures: tuple[Capture, ...]


@pytest.fixture(scope="module")
def files(bucket: tuple[Path, MiniCrawlTruth]) -> Files:
    root, truth = bucket
    return Files(root, truth.captures)


def promise(capture: Capture) -> ExpectedRecord:
    place = (capture.warc_filename, capture.warc_record_offset, capture.warc_record_length)
    said = (capture.url, capture.url_surtkey, capture.content_digest)
    return ExpectedRecord(capture.crawl, capture.archive_format, *place, *said)


def judged(data: bytes, capture: Capture) -> str | None:
    begin = capture.warc_record_offset
    found = verify_record(data[begin : begin + capture.warc_record_length], promise(capture))
    return found.reason or found.digest_check


def test_each_lie_is_expected_here() -> None:
    assert set(EXPECTED) == set(LIES)
    assert {*LIES, "no_archives"} == LIE_FAULTS


@pytest.mark.parametrize("kind", LIES)
def test_every_record_of_a_lie_is_judged_as_expected(files: Files, kind: str) -> None:
    found: Counter[str | None] = Counter()
    for capture in files.captures:
        found[judged(lied(kind, files.root / capture.warc_filename), capture)] += 1
    assert set(found) <= EXPECTED[kind]
    if kind == "login_page":
        by_kind = Counter((one.archive_format, one.content_mime_type == "warc/revisit") for one in files.captures)
        assert found == {
            "mismatch": by_kind["warc", False],
            "absent": by_kind["arc", False],
            "unchecked": by_kind["warc", True],
        }


@pytest.mark.parametrize("kind", LIES)
def test_a_lie_is_as_long_as_the_truth_and_the_same_every_time(files: Files, kind: str) -> None:
    for key in {capture.warc_filename for capture in files.captures}:
        true = (files.root / key).read_bytes()
        told = LIES[kind](true)
        assert len(told) == len(true)
        assert told != true
        assert told == LIES[kind](true)


def test_a_lie_changes_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "f.warc.gz"
    path.write_bytes(b"abc")
    assert lied("shifted", path) == b"bc\0"
    path.write_bytes(b"abcd")
    assert lied("shifted", path) == b"bcd\0"


@pytest.mark.parametrize("kind", sorted(LIE_FAULTS))
def test_a_server_that_lies_gives_each_byte_the_same_way_in_every_range(files: Files, kind: str) -> None:
    capture = max(files.captures, key=lambda one: one.warc_record_offset)
    key, end = capture.warc_filename, capture.warc_record_offset + capture.warc_record_length
    size = (files.root / key).stat().st_size
    asked = [ByteRange(key, 0, size), ByteRange(key, capture.warc_record_offset, capture.warc_record_length)]
    with (
        FaultServer(files.root, rules=[Rule(kind, times=None)]) as server,
        Transport(server.url, SourceOptions(retry=RetryPolicy(attempts=1))) as transport,
    ):
        answers = list(transport.read_many(asked))
        hits = list(server.hits)
        assert transport.read_all("collinfo.json", 1 << 20), "what is no archive is true"
        assert server.hits[-1].fault is None
    assert [hit.fault for hit in hits] == [kind] * 2
    if kind == "no_archives":
        assert [one.kind.value for one in answers if isinstance(one, RangeFault)] == ["not_found"] * 2
        return
    whole, record = sorted((one for one in answers if isinstance(one, RangeBytes)), key=lambda one: one.offset)
    assert whole.data == lied(kind, files.root / key)
    assert record.data == whole.data[capture.warc_record_offset : end]
    assert whole.total == record.total == size
