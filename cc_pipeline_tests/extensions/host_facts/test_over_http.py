"""Lookups over HTTP: the server counts what is said, passing faults change nothing, a dead source is an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extensions.host_facts.dataset_question import Facts
from cc_pipeline.extensions.host_facts.datasets import shipped_datasets
from cc_pipeline.extensions.host_facts.host_facts import estimate_host_lookups, facts_of_hosts
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline_tests.extensions.host_facts.conftest import CRAWL
from cc_pipeline_tests.extensions.host_facts.keyed import KeyedTruth
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import workspace_of

DATASETS = [shipped_datasets()["host-index"], shipped_datasets()["degrees"]]
TARGET = parse_target("example.com")
PASSING = (Rule("503", "*.parquet", share=0.3, retry_after=0), Rule("reset", "*.parquet", share=0.2))


@pytest.fixture(scope="module")
def running(keyed: tuple[Path, KeyedTruth]) -> Iterator[FaultServer]:
    with FaultServer(keyed[0]) as running:
        yield running


@pytest.fixture
def server(running: FaultServer, monkeypatch: pytest.MonkeyPatch) -> FaultServer:
    """Well, and asked by nobody yet; waits between attempts are not what is tested."""
    real = RetryPolicy.next_wait
    monkeypatch.setattr(RetryPolicy, "next_wait", lambda *asked: None if real(*asked) is None else 0.0)
    running.set_rules(())
    del running.hits[:]
    return running


@pytest.fixture(scope="module")
def sound(running: FaultServer, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """The answer of a server that is well."""
    running.set_rules(())
    return facts_of_hosts(workspace_of(running.url, tmp_path_factory.mktemp("sound")), CRAWL, TARGET, DATASETS)


def test_the_server_counts_what_is_said(server: FaultServer, tmp_path: Path) -> None:
    workspace = workspace_of(server.url, tmp_path / "home")
    found = facts_of_hosts(workspace, CRAWL, TARGET, DATASETS)
    assert found.table.num_rows
    assert found.requests == len(server.hits)
    assert found.bytes == sum(hit.body_bytes for hit in server.hits)
    asked = len(server.hits)
    again = facts_of_hosts(workspace_of(server.url, tmp_path / "home"), CRAWL, TARGET, DATASETS)
    assert again.table.equals(found.table)
    assert len(server.hits) == asked
    # footers are of no target: another one costs pages alone
    facts_of_hosts(workspace, CRAWL, parse_target("tld:org"), DATASETS)
    assert all(not (hit.range or "").startswith("bytes=-") for hit in server.hits[asked:])


def test_a_stored_footer_with_a_wrong_byte_is_fetched_again(sound: Facts, server: FaultServer, tmp_path: Path) -> None:
    facts_of_hosts(workspace_of(server.url, tmp_path), CRAWL, TARGET, DATASETS)
    segment = next(tmp_path.rglob("segment-*.footers"))
    damaged = bytearray(segment.read_bytes())
    damaged[-5] ^= 1
    segment.write_bytes(damaged)
    asked = len(server.hits)
    assert facts_of_hosts(workspace_of(server.url, tmp_path), CRAWL, TARGET, DATASETS).table.equals(sound.table)
    assert [hit.range for hit in server.hits[asked:] if (hit.range or "").startswith("bytes=-")]


def test_passing_faults_change_nothing(sound: Facts, server: FaultServer, tmp_path: Path) -> None:
    server.set_rules(PASSING)
    other = facts_of_hosts(workspace_of(server.url, tmp_path), CRAWL, TARGET, DATASETS)
    assert other.table.equals(sound.table)
    assert not other.gaps
    assert other.requests > sound.requests


@pytest.mark.parametrize("kind", ["unknown_total", "416"])
def test_servers_of_other_manners_give_the_same(sound: Facts, server: FaultServer, tmp_path: Path, kind: str) -> None:
    server.set_rules((Rule(kind, "*.parquet", times=None, ranges=("bytes=-*",) if kind == "416" else ()),))
    workspace = workspace_of(server.url, tmp_path)
    other = facts_of_hosts(workspace, CRAWL, TARGET, DATASETS)
    assert other.table.equals(sound.table)
    assert not other.gaps
    del server.hits[:]
    facts_of_hosts(workspace, CRAWL, parse_target("tld:org"), DATASETS)
    footers = [hit for hit in server.hits if hit.method == "HEAD" or (hit.range or "").startswith("bytes=-")]
    assert not footers, "no footer is asked for again"


def test_a_source_that_refuses_is_an_error_and_no_gap(server: FaultServer, tmp_path: Path) -> None:
    workspace = workspace_of(server.url, tmp_path / "home")
    estimate_host_lookups(workspace, CRAWL, TARGET, DATASETS)
    server.set_rules((Rule("404", "*.parquet", times=None),))
    gone = facts_of_hosts(workspace, CRAWL, TARGET, DATASETS[1:])
    assert set(gone.gaps) == {"degrees"}
    server.set_rules((Rule("403", "*", times=None),))
    with pytest.raises(EnvironmentFault):
        facts_of_hosts(workspace_of(server.url, tmp_path / "other"), CRAWL, TARGET, DATASETS)


def test_after_an_outage_all_is_asked_for_again(server: FaultServer, tmp_path: Path) -> None:
    server.set_rules((Rule("404", "*.parquet", times=None),))
    workspace = workspace_of(server.url, tmp_path / "home")
    assert facts_of_hosts(workspace, CRAWL, TARGET, DATASETS).table.num_rows == 0
    server.set_rules(())
    found = facts_of_hosts(workspace, CRAWL, TARGET, DATASETS)
    assert found.table.num_rows
    assert not found.gaps
