"""The lies that a server can be told to tell: as long as the truth, the same every time, and none passes for good."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from cc_pipeline.records.verification import ExpectedRecord, verify_record
from cc_pipeline.testing.mini_crawl.truth import Capture, MiniCrawlTruth
from cc_pipeline_tests.faultlies import LIES, lied
from cc_pipeline_tests.faultserver import LIE_FAULTS

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
