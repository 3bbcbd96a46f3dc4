"""Homes that the growth benchmark makes in bulk are those that a commit a slice makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.growth_home import CRAWL, described, grow, slug_of
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import DEMO
from cc_pipeline_tests.world import workspace_of

pytestmark = pytest.mark.bomb

SLICES = 4


def test_a_home_made_in_bulk_holds_and_answers_the_same(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    ensure(bucket, DEMO)
    told, files = [], []
    for bulk in (False, True):
        workspace = workspace_of(bucket, tmp_path / str(bulk))
        grow(workspace, SLICES, rows=40, page_rows=20, bulk=bulk)
        files.append(len(workspace.lake.pin("captures").files))
        told.append(described(workspace, SLICES))
        rows = workspace.lake.read("captures", {"crawl": CRAWL, "target": slug_of(3)}, ["domain", "warc_filename"])
        assert set(rows["domain"].to_pylist()) == {slug_of(3)}
        assert rows.num_rows == 40
    assert told[0] == told[1]
    # the template's file, and one of each slice, or one of all
    assert files == [1 + SLICES, 2]
