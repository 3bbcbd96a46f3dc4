"""Whole runs over several places: complete whenever one of them is whole, whatever the others do."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cc_pipeline.checks.doctor import budget_findings, examine
from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.harvesting.archives import archive_files
from cc_pipeline.harvesting.catalog import read_catalog_table
from cc_pipeline.index.shards import shard_of
from cc_pipeline.settings import load_settings
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import NEW, Bucket, closed_port, extract, harvested, workspace_of


@pytest.fixture
def servers(bucket: Bucket) -> Iterator[list[FaultServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(FaultServer(bucket[0])) for _ in range(3)]


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["refused", "garbage", "404", "other_total", "500"])
def test_a_run_is_complete_whenever_one_place_is_whole(
    bucket: Bucket, servers: list[FaultServer], tmp_path: Path, kind: str
) -> None:
    bad, redirecting, whole = servers
    bad.set_rules([] if kind == "refused" else [Rule(kind, f"*{NEW}*", times=None)])
    redirecting.set_rules([Rule("redirect", times=None, to=f"{whole.url}{{key}}")])
    first = closed_port() if kind == "refused" else bad.url
    workspace = harvested(", ".join([first, redirecting.url, whole.url]), tmp_path, subsets=SUBSETS)
    _, fetched, _ = extract(workspace, "example.com")
    mine = bucket[1].captures_of(NEW, domain="example.com")
    assert fetched.per_target["example.com"]["fetched"] == len(mine)
    footers = read_catalog_table(workspace.lake, "index_files", NEW).to_pylist()
    assert {file["outcome"] for file in footers} == {"decoded"}
    # a place that says other lengths of files may give the records: they are what the index promises
    assert any("mirror" in note for note in fetched.notes) or kind == "other_total"
    # an undeclared redirect is no answer, and the host that gives it is left alone
    assert len(redirecting.hits) <= 25
    # each object of a place that lies has to be seen to be wrong; all else shows at once
    asked = {hit.key for hit in bad.hits if hit.fault}
    assert len(bad.hits) <= (4 * len(asked) + 20 if kind in ("garbage", "other_total") else 25)
    # the home knows its places, in their order
    assert load_settings({"CC_PIPELINE_HOME": str(tmp_path)}).sources == workspace.settings.sources
    workspace.close()
    told = {
        finding.topic for finding in budget_findings(workspace.settings) if "has not answered since" in finding.text
    }
    assert told == {"mirrors"}
    stands = {finding.level for finding in examine(workspace.settings) if finding.topic == "mirrors"}
    assert stands == {"ok", "note"}
    requests = sum(len(server.hits) for server in servers)
    again = extract(workspace_of("", tmp_path, subsets=SUBSETS), "example.com")[1]
    assert again.requests == 0
    assert sum(len(server.hits) for server in servers) - requests <= 8


def test_a_path_list_of_news_that_does_not_decode_is_read_at_the_next_place(tmp_path: Path) -> None:
    folder = tmp_path / "bucket" / "crawl-data" / "CC-NEWS" / "2024" / "05"
    folder.mkdir(parents=True)
    listed = "crawl-data/CC-NEWS/2024/05/CC-NEWS-20240501000000-00001.warc.gz"
    (folder / "warc.paths.gz").write_bytes(gzip.compress(f"{listed}\n".encode()))
    with FaultServer(tmp_path / "bucket", rules=[Rule("garbage", times=None)]) as bad:
        workspace = workspace_of(f"{bad.url}, {tmp_path / 'bucket'}", tmp_path / "home")
        [shard] = archive_files(workspace, "CC-NEWS-2024-05")
        workspace.close()
    assert shard == shard_of("CC-NEWS-2024-05", listed)


def test_a_path_list_of_news_that_is_refused_is_not_called_missing(tmp_path: Path) -> None:
    key = "crawl-data/CC-NEWS/2024/05/warc.paths.gz"
    with FaultServer(tmp_path, rules=[Rule("500", times=None)]) as bad:
        workspace = workspace_of(bad.url, tmp_path / "home", wait=0.0)
        with pytest.raises(EnvironmentFault, match="could not be read") as refused:
            archive_files(workspace, "CC-NEWS-2024-05")
        workspace.close()
    assert key in refused.value.problem
    empty = workspace_of(tmp_path, tmp_path / "other")
    with pytest.raises(EnvironmentFault, match=f"the source has no {key}"):
        archive_files(empty, "CC-NEWS-2024-05")
