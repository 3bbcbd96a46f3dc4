"""A source that goes on refusing, in a harvest and for a path list: it is told, and never called missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.errors import EnvironmentFault, SourceRefuses
from cc_pipeline.harvesting.archives import archive_files
from cc_pipeline.harvesting.crawl_index import commit_manifest, harvest_footers
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import NEW, Bucket, workspace_of


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
