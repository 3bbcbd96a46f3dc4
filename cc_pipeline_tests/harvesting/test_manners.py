"""Harvest, lookup and fetch at servers of all manners: the same rows as from a sound one, for few requests more."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.harvesting.crawl_index import commit_row_groups, harvest_footers
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline_tests.world import NEW, Bucket, copy_of, extract, harvested, workspace_of

DOMAINS = ("example.com", "example.org")


def test_a_bucket_that_was_copied_is_the_same_bucket(bucket: Bucket, tmp_path: Path) -> None:
    root = copy_of(bucket[0], tmp_path / "bucket")
    home = tmp_path / "home"
    workspace = harvested(root, home, index="parquet")
    extract(workspace, DOMAINS[0])
    workspace.close()
    footers = FooterStore(workspace.settings.footers_path).read(NEW).entries
    # other inodes and times, the same bytes
    shutil.move(root, tmp_path / "before")
    shutil.copytree(tmp_path / "before", root, copy_function=shutil.copyfile)
    workspace = workspace_of(root, home, index="parquet")
    with pytest.raises(EnvironmentFault, match="differs from the file whose footer was harvested") as refused:
        extract(workspace, DOMAINS[1])
    assert "--refresh" in str(refused.value.advice)
    assert harvest_footers(workspace, NEW, refresh=True).written == len(footers)
    assert commit_row_groups(workspace, [NEW])[NEW].written == 0, "the same index"
    located, fetched, _ = extract(workspace, DOMAINS[1])
    truth = bucket[1].captures_of(NEW, subset="warc", domain=DOMAINS[1])
    assert (located.rows, fetched.per_target[DOMAINS[1]]["fetched"]) == (len(truth), len(truth))
    assert extract(workspace, DOMAINS[0])[0].fresh_slices == 0, "nothing is located again"
