"""Several crawls at once: what the source does not give of one keeps nobody from the others."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from cc_pipeline.minicrawl.truth import MiniCrawlTruth
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline_tests.cli.conftest import NEW, OLD, Cli
from cc_pipeline_tests.faultserver import FaultServer, Rule

SITE = "example.com"


#: What fails of the older crawl, which is asked for first: its archive files, or an index file where there is no other
#: index. Then its look-up fails, in a run over both crawls.
TROUBLES = {
    "records": [Rule("500", key=f"crawl-data/{OLD}/segments/*", times=None)],
    "index": [
        Rule("404", key=f"*crawl={OLD}/subset=warc/part-00000*", times=None),
        Rule("404", key="*cluster.idx", times=None),
    ],
}


@pytest.mark.parametrize("what", TROUBLES)
def test_a_crawl_that_fails_leaves_the_others_whole(
    cli: Cli, bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    real = RetryPolicy.next_wait
    monkeypatch.setattr(RetryPolicy, "next_wait", lambda *asked: None if real(*asked) is None else 0.0)
    home = tmp_path / "home"
    with FaultServer(bucket[0], rules=TROUBLES[what]) as server:
        said = cli("run", "-c", NEW, "-c", OLD, "-d", SITE, "--source", server.url, "--home", home)
    assert said.status == 3, said.err
    assert (f"{SITE} in {OLD}" if what == "records" else f"index files of {OLD}") in " ".join(said.err.split())
    planned = len(bucket[1].of(NEW, subset="warc", domain=SITE))
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        fetched = connection.execute("SELECT crawl, count(*) FROM ledger WHERE outcome = 'fetched' GROUP BY 1")
        assert fetched.fetchall() == [(NEW, planned)]
        pages = connection.execute("SELECT crawl, count(*) FROM page_metadata GROUP BY 1")
        assert pages.fetchall() == [(NEW, planned)]
