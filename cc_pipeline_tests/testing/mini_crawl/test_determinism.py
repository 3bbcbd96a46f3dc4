"""Same seed, same bytes: in one process, in another one, whatever Python's hash seed and the clock say."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from cc_pipeline.testing.mini_crawl import DEMO, TEST, MiniCrawlTruth, generate, truth_path
from cc_pipeline_tests.testing.mini_crawl.conftest import Bucket


def fingerprint(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_a_second_generation_in_this_process_is_byte_identical_and_counts_every_capture(
    bucket: Bucket, tmp_path: Path
) -> None:
    seen: dict[str, list[tuple[int, int]]] = {}

    def told(crawl: str, done: int, total: int) -> None:
        seen.setdefault(crawl, []).append((done, total))

    assert generate(tmp_path / "again", TEST, told) == bucket.truth
    assert fingerprint(tmp_path / "again") == fingerprint(bucket.root)
    counts = {crawl: len(bucket.truth.captures_of(crawl)) for crawl in bucket.truth.crawls}
    assert seen == {crawl: [(number, all_) for number in range(1, all_ + 1)] for crawl, all_ in counts.items()}


def test_another_process_with_another_hash_seed_and_time_zone_is_byte_identical(bucket: Bucket, tmp_path: Path) -> None:
    out = tmp_path / "bucket"
    command = [sys.executable, "-m", "cc_pipeline.testing.mini_crawl", "--out", str(out), "--preset", "test"]
    environment = os.environ | {"PYTHONHASHSEED": "4242", "TZ": "Asia/Kathmandu", "LC_ALL": "C"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert fingerprint(out) == fingerprint(bucket.root)
    assert MiniCrawlTruth.load(truth_path(out)) == bucket.truth


def test_another_seed_gives_another_bucket(bucket: Bucket, tmp_path: Path) -> None:
    other = generate(tmp_path / "other", replace(TEST, seed=TEST.seed + 1))
    assert {capture.url for capture in other.captures} != {capture.url for capture in bucket.truth.captures}
    assert fingerprint(tmp_path / "other").keys() != fingerprint(bucket.root).keys()


def test_pages_that_stay_the_same_have_the_same_digest_in_two_crawls(bucket: Bucket) -> None:
    by_crawl: dict[str, dict[str, str]] = {}
    for capture in bucket.truth.captures:
        if capture.kind == "html":
            by_crawl.setdefault(capture.crawl, {})[capture.url] = capture.payload_digest
    new, old = by_crawl["CC-MAIN-2024-22"], by_crawl["CC-MAIN-2018-05"]
    same = [url for url in new.keys() & old.keys() if new[url] == old[url]]
    assert 0 < len(same) < len(new.keys() & old.keys())


def test_the_demo_is_of_the_promised_size(tmp_path: Path) -> None:
    truth = generate(tmp_path / "demo", DEMO)
    assert 600 <= len(truth.captures) <= 1500
    assert 6 <= len(truth.domains()) <= 11
    assert len([crawl for crawl in truth.crawls if truth.captures_of(crawl)]) == 3
    listed_without_data = [crawl for crawl in truth.crawls if not truth.captures_of(crawl)]
    assert listed_without_data == ["CC-MAIN-2024-26"]
    assert not (tmp_path / "demo" / "crawl-data" / "CC-MAIN-2024-26").exists()
