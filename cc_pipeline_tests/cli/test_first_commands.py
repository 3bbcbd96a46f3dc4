"""What the first commands of a new home request, one after the other, of a front with Common Crawl's manners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import TEST
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline.workspace import crawl_list
from cc_pipeline_tests.cli.conftest import Cli
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.frontmanners import CLOUDFRONT
from cc_pipeline_tests.world import NEW, announce, copy_of

Bucket = tuple[Path, MiniCrawlTruth]
#: More index files than are harvested for one target, so that the URL index is asked.
_FILES = 40


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bucket whose newest crawl has so many index files as to make a harvest dear."""
    newest, *others = TEST.crawls
    root = tmp_path_factory.mktemp("large") / "bucket"
    ensure(root, replace(TEST, crawls=(replace(newest, parts=_FILES), *others)))
    return root


@pytest.fixture
def requests_of(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Calls a command against a server; gives its requests as ``METHOD last-part-of-the-key``."""

    def call(server: FaultServer, home: Path, *words: str) -> list[str]:
        # the list of crawls is kept for a day, as the public one is
        monkeypatch.setattr(crawl_list, "DEFAULT_COLLINFO", f"{server.url}collinfo.json")
        before = len(server.hits)
        said = cli(*words, "--source", server.url, "--home", home)
        assert said.status == 0, said.told
        return [f"{hit.method} {hit.key.rpartition('/')[2]}" for hit in server.hits[before:]]

    return call


def test_a_listed_crawl_is_found_by_its_path_list(
    requests_of: Callable[..., list[str]], bucket: Bucket, tmp_path: Path
) -> None:
    root = copy_of(bucket[0], tmp_path / "bucket")
    announce(root)
    with FaultServer(root, manners=replace(CLOUDFRONT, latency=0.0)) as server:
        first, second, third = (
            requests_of(server, tmp_path / "home", "lookup", domain, "-c", "newest")
            for domain in ("example.org", "example.com", "example.com")
        )
    # the newest is announced and not published: its list is asked for once more by each command
    lists = ["GET cc-index-table.paths.gz"]
    assert first == ["GET collinfo.json", *lists * 2, *["GET cluster.idx"] * 2, "GET cdx-00001.gz"]
    assert second == third == [*lists, "GET cluster.idx", "GET cdx-00000.gz", "GET cdx-00001.gz"]


@pytest.mark.process
def test_a_run_reads_the_path_list_once(requests_of: Callable[..., list[str]], large: Path, tmp_path: Path) -> None:
    with FaultServer(large, manners=replace(CLOUDFRONT, latency=0.0)) as server:
        first, second, third = (
            requests_of(server, tmp_path / "home", "run", domain, "-c", "newest")
            for domain in ("example.org", "example.com", "example.com")
        )
    assert {*first, *second} & {"HEAD cc-index-table.paths.gz", "HEAD cluster.idx"} == set()
    assert [first.count("GET cc-index-table.paths.gz"), second.count("GET cc-index-table.paths.gz")] == [1, 1]
    assert (len(first), len(second), len(third)) == (7, 6, 0)


@pytest.mark.process
def test_all_crawls_go_on_behind_one_that_is_only_announced(cli: Cli, bucket: Bucket, tmp_path: Path) -> None:
    root = copy_of(bucket[0], tmp_path / "bucket")
    (root / "crawl-data" / "CC-MAIN-2018-05" / "cc-index-table.paths.gz").unlink()
    said = cli("run", "-c", "all", "example.org", "--yes", "--source", root, "--home", tmp_path / "home")
    assert said.status == 0, said.told
    assert "CC-MAIN-2018-05 is announced but not published yet, so it is skipped" in said.told
    assert NEW in said.told
