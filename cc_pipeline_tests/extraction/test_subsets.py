"""What other subsets have beside ``warc``: found by what looks for repeats, losses and pages to be made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.extraction.crawl_plan import plan_crawl
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.plan import ReasonKind
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import FETCH
from cc_pipeline_tests.extraction.stored import stored_files
from cc_pipeline_tests.world import NEW, Bucket, Killed, extract, harvested, workspace_of

SITE = "example.com"
BOTH = ("warc", "robotstxt")


def test_a_kill_behind_the_note_of_healed_bytes_hides_no_loss(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = harvested(bucket[0], tmp_path)
    extract(workspace, SITE)
    for path in stored_files(workspace):
        path.unlink()

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Lake, "append", killed)
        with pytest.raises(Killed):
            fetch_captures(workspace, NEW, [SITE])
    again = workspace_of(bucket[0], tmp_path)
    (why,) = plan_crawl(again, NEW, [SITE]).plan.reasons_for(FETCH).values()
    assert (why.kind, why.n) == (ReasonKind.LOST_BYTES, again.lake.read("records").num_rows)
    fetch_captures(again, NEW, [SITE])
    assert plan_crawl(again, NEW, [SITE]).plan.reasons_for(FETCH) == {}
