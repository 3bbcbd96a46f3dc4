"""The command line at Common Crawl's own host names and default settings, on a day with ordinary trouble."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.testing.mini_crawl.generate import generate
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, MiniCrawlSpec
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


def test_a_new_user_gets_a_site_on_an_ordinary_day(bucket: Bucket, tmp_path: Path) -> None:
    manners = replace(CLOUDFRONT, lone_503=0.15, whole_objects=0.1, seed=3)
    with common_crawl_lab(bucket[0], tmp_path / "lab", manners) as lab:
        done = lab.run([COMMAND, "run", "-c", "newest", "example.com"], environment_of(tmp_path / "home"))
        hits = lab.hits(DATA)
        listed = lab.hits(INDEX)
    assert done.returncode == 0, done.stdout + done.stderr
    mine = bucket[1].captures_of(NEW, subset="warc", domain="example.com")
    with duckdb.connect(str(tmp_path / "home" / "cc.duckdb"), read_only=True) as published:
        [[fetched]] = published.sql("select count(*) from ledger where outcome = 'fetched'").fetchall()
    assert fetched == len(mine)
    assert [hit.key for hit in listed] == ["collinfo.json"]
    assert any(hit.fault == "lone_503" for hit in hits), "the day had no trouble"
    assert {hit.headers["host"] for hit in hits} == {DATA}


def test_a_proxy_between_is_used_for_all(bucket: Bucket, tmp_path: Path) -> None:
    environment = environment_of(tmp_path / "home") | {"HTTPS_PROXY": PROXY}
    with common_crawl_lab(bucket[0], tmp_path / "lab", CLOUDFRONT) as lab:
        looked_up = lab.run([COMMAND, "lookup", "example.com", "-c", "newest", "--format", "jsonl"], environment)
        tunnels = {hit.key for hit in lab.hits(PROXY) if hit.method == "CONNECT"}
        other = environment_of(tmp_path / "other") | {"HTTPS_PROXY": "socks5://127.0.0.1:1"}
        wrong = lab.run([COMMAND, "crawls"], other)
    assert looked_up.returncode == 0, looked_up.stderr
    assert len(looked_up.stdout.splitlines()) == len(bucket[1].captures_of(NEW, subset="warc", domain="example.com"))
    assert tunnels == {f"{DATA}:443", f"{INDEX}:443"}
    assert wrong.returncode == 1
    assert "HTTPS_PROXY is 'socks5://127.0.0.1:1', which is no address of an HTTP proxy" in wrong.stderr


def test_two_homes_at_once_send_what_one_may(tmp_path: Path) -> None:
    # a whole address was seen refused at six connections
    manners = replace(CLOUDFRONT, latency=1.0, max_connections=5, refused=600)
    bucket = tmp_path / "bucket"
    generate(bucket, MiniCrawlSpec(pages=90, sites=4, crawls=(CrawlSpec(NEW, segments=1, parts=30, row_group_rows=5),)))
    with common_crawl_lab(bucket, tmp_path / "lab", manners) as lab:
        words = [COMMAND, "index", "harvest", "-c", NEW]
        homes = [lab.start(words, environment_of(tmp_path / name)) for name in ("one", "other")]
        said = [home.communicate() for home in homes]
        hits = lab.hits(DATA)
    assert [home.returncode for home in homes] == [0, 0], said
    assert {hit.fault for hit in hits} == {None}
    moments = [hit.at for hit in hits]
    assert len(moments) > 60
    assert max(sum(start <= at < start + 4 for at in moments) for start in moments) <= 21
