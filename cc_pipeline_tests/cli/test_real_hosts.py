"""The command line at Common Crawl's own host names and default settings, behind a proxy."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline_tests.cli.conftest import NEW
from cc_pipeline_tests.frontmanners import CLOUDFRONT
from cc_pipeline_tests.lab import DATA, INDEX, PROXY, common_crawl_lab, why_no_lab

pytestmark = [pytest.mark.process, pytest.mark.skipif(bool(why_no_lab()), reason=why_no_lab())]

Bucket = tuple[Path, MiniCrawlTruth]
COMMAND = Path(sys.executable).with_name("cc-pipeline")


def environment_of(home: Path) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("CC_PIPELINE_", "DAGSTER_"))}
    # what was learnt of the hosts is the user's, and each home here is a user's own
    state = str(home.with_name(f"{home.name}-state"))
    return kept | {"CC_PIPELINE_HOME": str(home), "XDG_STATE_HOME": state, "NO_COLOR": "1", "COLUMNS": "200"}


def test_a_proxy_between_is_used_for_all(bucket: Bucket, tmp_path: Path) -> None:
    environment = environment_of(tmp_path / "home") | {"HTTPS_PROXY": PROXY}
    with common_crawl_lab(bucket[0], tmp_path / "lab", CLOUDFRONT) as lab:
        looked_up = lab.run([COMMAND, "lookup", "example.com", "-c", "newest", "--format", "json"], environment)
        tunnels = {hit.key for hit in lab.hits(PROXY) if hit.method == "CONNECT"}
        other = environment_of(tmp_path / "other") | {"HTTPS_PROXY": "socks5://127.0.0.1:1"}
        wrong = lab.run([COMMAND, "crawls"], other)
    assert looked_up.returncode == 0, looked_up.stderr
    assert len(looked_up.stdout.splitlines()) == len(bucket[1].captures_of(NEW, subset="warc", domain="example.com"))
    assert tunnels == {f"{DATA}:443", f"{INDEX}:443"}
    assert wrong.returncode == 1
    assert "HTTPS_PROXY is 'socks5://127.0.0.1:1', which is no address of an HTTP proxy" in wrong.stderr
