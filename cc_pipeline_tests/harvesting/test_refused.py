"""A source that refuses for a while in the middle of a harvest and of a fetch: it costs time, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.errors import EnvironmentFault, SourceRefuses
from cc_pipeline.harvesting.archives import archive_files
from cc_pipeline.harvesting.crawl_index import commit_manifest, harvest_footers
from cc_pipeline.transport import host_state, rate_limiter
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.frontmanners import Manners, Wave
from cc_pipeline_tests.world import NEW, Bucket, extract, harvest, workspace_of

SUBSETS = ("warc", "crawldiagnostics", "robotstxt")


def refusals_of(server: FaultServer) -> int:
    return sum(hit.status == 503 for hit in server.hits)


def test_a_window_of_refusals_ends_well_by_itself(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 0.3
    # as by default, a hundred times as fast
    monkeypatch.setattr(host_state, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(rate_limiter, "WAIT", 20.0)
    with FaultServer(bucket[0], latency=0.005) as server:
        workspace = workspace_of(server.url, tmp_path, subsets=SUBSETS, concurrency=2)
        server.set_manners(Manners(wave=Wave(2, seconds, 503, "*.parquet")))
        report = harvest(workspace)
        assert (report.rows, report.notes) == (report.written, ())
        assert report.rows > 2
        assert 1 <= refusals_of(server) <= 2 + 4
        server.hits.clear()
        server.set_manners(Manners(wave=Wave(1, seconds, 503, "*.warc.gz")))
        mine = bucket[1].captures_of(NEW, domain="example.com")
        _, fetched, parsed = extract(workspace, "example.com")
        assert fetched.per_target["example.com"]["fetched"] == len(mine)
        assert fetched.notes == ()
        assert parsed.rows
        assert 1 <= refusals_of(server) <= 2 + 4


def test_a_source_that_goes_on_refusing_ends_with_when_to_come_back(bucket: Bucket, tmp_path: Path) -> None:
    with FaultServer(bucket[0]) as server:
        workspace = workspace_of(server.url, tmp_path, wait=0.0)
        commit_manifest(workspace, NEW)
        server.set_rules([Rule("503", times=None)])
        with pytest.raises(SourceRefuses, match="no request is sent before 20") as refused:
            harvest_footers(workspace, NEW)
        assert "it continues from there" in str(refused.value.advice)


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
