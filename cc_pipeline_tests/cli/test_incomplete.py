"""What a source does not give, as a person at the command line meets it: a status, a figure, and what to do."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from cc_pipeline import progress
from cc_pipeline.testing.mini_crawl import MiniCrawlTruth
from cc_pipeline_tests.cli.conftest import NEW, OLD, Cli
from cc_pipeline_tests.faultserver import FaultServer, Rule

DOMAIN = "example.com"


def outcomes(home: Path) -> dict[str, int]:
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        return dict(connection.execute("SELECT outcome, count(*) FROM ledger GROUP BY ALL").fetchall())


@pytest.mark.process
def test_a_portal_that_answers_for_everybody_is_no_success_and_the_same_command_heals_it(
    bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path, cli: Cli
) -> None:
    root, truth = bucket
    mine = len(truth.captures_of(NEW, subset="warc", domain=DOMAIN))
    with FaultServer(root) as server:
        words = ("run", "-c", NEW, DOMAIN, "--home", tmp_path, "--source", server.url)
        server.set_rules(
            [Rule("whole_object", key=key, times=None) for key in ("crawl-data/*/warc/*", "*warc.paths.gz")]
        )
        said = cli(*words)
        assert said.status == 3, said
        for told in (f"{mine} of {mine} captures", "whole_object", "https://example.com/", "run it again"):  # fmt: skip
            assert told in said.told
        server.set_rules([])
        said = cli(*words)
        assert said.status == 0, said
        assert outcomes(tmp_path) == {"fetched": mine}


@pytest.mark.process
def test_a_refused_harvest_is_answered_by_the_url_index_or_ends_with_why_it_was_refused(
    bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path, cli: Cli
) -> None:
    root, truth = bucket
    mine = len(truth.captures_of(NEW, subset="warc", domain=DOMAIN))
    rules = [Rule("403", key="*.parquet", times=None), Rule("404", key=f"*{OLD}*cluster.idx", times=None)]
    with FaultServer(root, rules=rules) as server:
        place = ("--home", tmp_path, "--source", server.url)
        said = cli("run", DOMAIN, "-c", NEW, "-c", OLD, *place)
        assert said.status == 3, said
        assert "none of 2 index files could be fetched, the first because of: forbidden" in said.told
        assert "has not been harvested" not in said.told
        assert "the source refused the harvest; 9 requests through the URL index" in said.shown
        assert outcomes(tmp_path) == {"fetched": mine}
        said = cli("lookup", DOMAIN, "--format", "json", "-c", NEW, *place)
        assert (said.status, len(said.out.splitlines())) == (0, mine), said


def test_a_source_that_refuses_is_waited_for_and_told(
    bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path, cli: Cli
) -> None:
    with FaultServer(bucket[0], rules=[Rule("503", times=None)]) as server:
        words = ("lookup", DOMAIN, "-c", NEW, "--home", tmp_path, "--source", server.url)
        told: list[str] = []
        with progress.progress_to(lambda stage, done, total, detail: told.append(f"{stage}: {detail}")):
            said = cli(*words)
        assert said.status == 3, said
        assert "no request is sent before" in said.told
        assert "waiting: 127.0.0.1" in told[0]
        told.clear()
        with progress.progress_to(lambda stage, done, total, detail: told.append(f"{stage}: {detail}")):
            said = cli(*words, "--no-wait")
        assert (said.status, told) == (3, [])
