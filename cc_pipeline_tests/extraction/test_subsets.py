"""What other subsets have beside ``warc``: found by what looks for repeats, losses and pages to be made again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from cc_pipeline.capture_columns import CAPTURE
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.crawl_plan import plan_crawl
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.parse import parse_records
from cc_pipeline.extraction.plan import ReasonKind
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import FETCH
from cc_pipeline.maintenance.purge import drop_subset
from cc_pipeline_tests.extraction.stored import stored_files
from cc_pipeline_tests.world import NEW, Bucket, Killed, extract, harvested, publish, workspace_of

SITE = "example.com"
BOTH = ("warc", "robotstxt")


@pytest.mark.process
def test_targets_that_overlap_share_records_of_every_subset(bucket: Bucket, tmp_path: Path) -> None:
    import duckdb  # noqa: PLC0415

    workspace = harvested(bucket[0], tmp_path, subsets=BOTH)
    extract(workspace, SITE)
    _, fetched, _ = extract(workspace, f"host:www.{SITE}")
    assert fetched.requests == 0
    publish(workspace)
    with duckdb.connect(str(tmp_path / "cc.duckdb"), read_only=True) as connection:
        for view in ("captures", "records", "page_metadata"):
            rows = connection.execute(f"SELECT {', '.join(CAPTURE)} FROM {view} WHERE crawl = '{NEW}'").fetchall()
            assert rows
            assert max(Counter(rows).values()) == 1, view


@pytest.mark.process
def test_dropping_a_subset_leaves_the_others(bucket: Bucket, tmp_path: Path) -> None:
    workspace = harvested(bucket[0], tmp_path, subsets=BOTH)
    extract(workspace, SITE)
    planned = {subset: len(bucket[1].captures_of(NEW, subset=subset, domain=SITE)) for subset in BOTH}
    assert drop_subset(workspace, SITE, "robotstxt") == planned["robotstxt"] > 0
    rows = workspace.lake.read("records", {"crawl": NEW}, ["target", "subset"]).to_pylist()
    assert Counter((row["target"], row["subset"]) for row in rows) == {(SITE, "warc"): planned["warc"]}
    assert {todo.slice_.subset for todo in plan_crawl(workspace, NEW, [SITE]).plan.slice_plans} == {"robotstxt"}
    assert plan_crawl(workspace_of(bucket[0], tmp_path), NEW, [SITE]).plan.slice_plans == ()


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


def test_pages_of_a_target_that_has_other_subsets_alone_are_no_error(bucket: Bucket, tmp_path: Path) -> None:
    robots = harvested(bucket[0], tmp_path, subsets=("robotstxt",))
    extract(robots, SITE)
    assert parse_target(SITE).slug == SITE
    report = parse_records(workspace_of(bucket[0], tmp_path), NEW, [SITE])
    assert report.fresh_slices == 0
