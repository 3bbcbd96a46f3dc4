"""Same seed, same bytes, in another process too, whatever Python's hash seed and the clock say."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from cc_pipeline.testing.mini_crawl import MiniCrawlTruth, truth_path
from cc_pipeline_tests.testing.mini_crawl.conftest import Bucket


def fingerprint(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_another_process_with_another_hash_seed_and_time_zone_is_byte_identical(bucket: Bucket, tmp_path: Path) -> None:
    out = tmp_path / "bucket"
    command = [sys.executable, "-m", "cc_pipeline.testing.mini_crawl", "--out", str(out), "--preset", "test"]
    environment = os.environ | {"PYTHONHASHSEED": "4242", "TZ": "Asia/Kathmandu", "LC_ALL": "C"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert fingerprint(out) == fingerprint(bucket.root)
    assert MiniCrawlTruth.load(truth_path(out)) == bucket.truth


def test_pages_that_stay_the_same_have_the_same_digest_in_two_crawls(bucket: Bucket) -> None:
    by_crawl: dict[str, dict[str, str]] = {}
    for capture in bucket.truth.captures:
        if capture.kind == "html":
            by_crawl.setdefault(capture.crawl, {})[capture.url] = capture.payload_digest
    new, old = by_crawl["CC-MAIN-2024-22"], by_crawl["CC-MAIN-2018-05"]
    same = [url for url in new.keys() & old.keys() if new[url] == old[url]]
    assert 0 < len(same) < len(new.keys() & old.keys())
