"""Several crawls at once: what the source does not give of one keeps nobody from the others."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from cc_pipeline.minicrawl.truth import MiniCrawlTruth
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline_tests.cli.conftest import NEW, OLD, Cli
from cc_pipeline_tests.faultserver import FaultServer, Rule

pytestmark = pytest.mark.xdist_group("cli")

SITE = "example.com"


def test_a_crawl_that_fails_leaves_the_others_whole(
    cli: Cli, bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = RetryPolicy.next_wait
    monkeypatch.setattr(RetryPolicy, "next_wait", lambda *asked: None if real(*asked) is None else 0.0)
    home = tmp_path / "home"
    # the older one is asked for first
    with FaultServer(bucket[0], rules=[Rule("500", key=f"crawl-data/{OLD}/segments/*", times=None)]) as server:
        said = cli("run", "-c", NEW, "-c", OLD, "-d", SITE, "--source", server.url, "--home", home)
    assert said.status == 3, said.err
    assert f"{SITE} in {OLD}" in " ".join(said.err.split())
    planned = len(bucket[1].of(NEW, subset="warc", domain=SITE))
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        fetched = connection.execute("SELECT crawl, count(*) FROM ledger WHERE outcome = 'fetched' GROUP BY 1")
        assert fetched.fetchall() == [(NEW, planned)]
        pages = connection.execute("SELECT crawl, count(*) FROM page_metadata GROUP BY 1")
        assert pages.fetchall() == [(NEW, planned)]
