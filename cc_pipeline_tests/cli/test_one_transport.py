"""A command has one connection to each place it needs, and reads the list of crawls once."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cc_pipeline.harvesting.crawls import find_crawl
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.cli.conftest import NEW, Cli, World
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.world import extract, harvest, workspace_of

pytestmark = pytest.mark.xdist_group("cli homes")

Bucket = tuple[Path, MiniCrawlTruth]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many transports were made to each place."""
    places: Counter[str] = Counter()
    make = Transport.__init__

    def counted(self: Transport, source: str, *chosen: Any, **options: Any) -> None:
        places[source] += 1
        make(self, source, *chosen, **options)

    monkeypatch.setattr(Transport, "__init__", counted)
    return places


@pytest.mark.process
def test_a_run_opens_each_place_once_and_reads_the_list_once(
    cli: Cli, opened: Counter[str], bucket: Bucket, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with FaultServer(bucket[0]) as server:
        said = cli("run", "--crawl", "newest", "example.com", "--source", server.url, "--home", home)
        assert said.status == 0, said.err
    assert opened == {server.url.rstrip("/"): 1, str(home / "lake"): 1}
    assert [hit.key for hit in server.hits].count("collinfo.json") == 1


@pytest.mark.process
def test_a_list_of_crawls_on_a_host_of_its_own_is_one_place_more(
    opened: Counter[str], bucket: Bucket, tmp_path: Path
) -> None:
    with FaultServer(bucket[0]) as server, FaultServer(bucket[0]) as lists:
        there = lists.url.rstrip("/")
        workspace = workspace_of(server.url, tmp_path, collinfo=f"{there}/collinfo.json")
        harvest(workspace)
        extract(workspace, "example.com")
        assert find_crawl(workspace, NEW).id == NEW
    assert opened == {workspace.settings.source: 1, there: 1, workspace.settings.lake: 1}
    assert [hit.key for hit in lists.hits] == ["collinfo.json"]


def test_a_command_leaves_the_environment_as_it_was(cli: Cli, world: World) -> None:
    before = dict(os.environ)
    said = cli("lookup", "example.com", "-c", NEW, "--index", "parquet", "--home", world.home)
    assert said.status == 0, said.err
    assert dict(os.environ) == before | {"COLUMNS": "200"}
