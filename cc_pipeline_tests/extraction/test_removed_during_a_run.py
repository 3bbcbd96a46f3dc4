"""A target that is purged while a run of it is under way."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.run import TABLES, extract
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.target_definitions import delete_definitions
from cc_pipeline_tests.world import NEW, Bucket, harvested


@pytest.mark.parametrize("swap", [1, 2, 3])
def test_a_run_does_not_bring_a_purged_target_back(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swap: int
) -> None:
    workspace = harvested(bucket[0], tmp_path / "home")
    workspace.register_targets([parse_target("example.org"), parse_target("example-foo.com")])
    commits, real = [0], Lake.swap

    def purges_before_a_commit(self: Lake, table: str, *given: object, **named: object) -> bool:
        commits[0] += table == "slices"
        if table == "slices" and commits[0] == swap:
            delete_definitions(self, ["example.org"])
        return real(self, table, *given, **named)

    monkeypatch.setattr(Lake, "swap", purges_before_a_commit)
    results = {one.slug: one for one in extract(workspace, [(NEW, "example.org"), (NEW, "example-foo.com")], TABLES)}
    monkeypatch.undo()
    for table in ("captures", "records", "page_metadata"):
        assert {*workspace.lake.read(table).column("target").to_pylist()} == {"example-foo.com"}, table
    assert results["example-foo.com"].error is None
    # the commit that was under way is stored under the old epoch; the next one fails
    assert swap == 3 or "was removed" in str(results["example.org"].error)
    assert workspace.lake.read("targets").column("slug").to_pylist() == ["example-foo.com"]
