"""The list of crawls: what it costs to ask, and what happens when it does not come or cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.harvesting.crawl_index import commit_manifest
from cc_pipeline.harvesting.crawls import commit_crawls, find_crawl, is_published, known_crawls, probe
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import (
    ANNOUNCED,
    ARC,
    NEW,
    OLD,
    Bucket,
    announce,
    closed_port,
    copy_of,
    workspace_of,
)


def test_crawls_are_listed_newest_first_and_committed_once(bucket: Bucket, tmp_path: Path) -> None:
    workspace = workspace_of(bucket[0], tmp_path)
    assert [crawl.id for crawl in known_crawls(workspace).crawls] == [NEW, OLD, ARC]
    assert (commit_crawls(workspace).written, commit_crawls(workspace).written) == (3, 0)


def test_a_crawl_is_found_as_people_type_it_and_an_unknown_one_refused_naming_the_newest(
    bucket: Bucket, tmp_path: Path
) -> None:
    assert find_crawl(workspace_of(bucket[0], tmp_path), " cc-main-2024-22 ").id == NEW
    with pytest.raises(UserInputError, match=rf"CC-MAIN-1999-01.*not a crawl of .*{NEW}.*cc-pipeline crawls"):
        find_crawl(workspace_of(bucket[0], tmp_path), "CC-MAIN-1999-01")


def test_a_crawl_announced_but_not_published_is_told_so(bucket: Bucket, tmp_path: Path) -> None:
    root = copy_of(bucket[0], tmp_path / "bucket")
    announce(root)
    workspace = workspace_of(root, tmp_path / "home")
    assert not is_published(workspace, ANNOUNCED)
    assert is_published(workspace, NEW)
    assert is_published(workspace, ARC)
    with pytest.raises(EnvironmentFault, match=rf"{ANNOUNCED}: the crawl is not published yet") as refused:
        commit_manifest(workspace, ANNOUNCED)
    assert "once it is published" in refused.value.advice
    assert workspace.lake.read("index_manifest").num_rows == 0


def test_a_closed_port_is_asked_few_times_and_named(tmp_path: Path) -> None:
    source = closed_port()
    with pytest.raises(EnvironmentFault, match=source) as refused:
        known_crawls(workspace_of(source, tmp_path, collinfo=f"{source}/elsewhere/collinfo.json"))
    assert "CC_PIPELINE_SOURCE" in refused.value.advice
    assert "A crawl that you name (--crawl CC-MAIN-2024-22) needs no list." in str(refused.value.advice)
    assert "after 2 attempts" in str(refused.value)


@pytest.mark.parametrize("kind", ["500", "503"])
def test_one_refusal_of_the_first_request_is_asked_again(bucket: Bucket, tmp_path: Path, kind: str) -> None:
    with FaultServer(bucket[0], rules=[Rule(kind, f"*{NEW}*", times=1, by_key=True)]) as server:
        workspace = workspace_of(server.url, tmp_path)
        assert probe(workspace, NEW).state == "there"
        assert [hit.status for hit in server.hits] == [int(kind), 200]
