"""Locating: what a key means, what is looked up again, and what is refused before anything is fetched."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from cc_pipeline.errors import UserInputError
from cc_pipeline.extraction.cost_limit import price_of_slices
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.lake.slice import Slice
from cc_pipeline.records.range_plan import FetchEstimate, price_of
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import NEW, Bucket, extract, harvest, harvested, workspace_of


@pytest.fixture(scope="module")
def shared(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace with its index harvested; tests use targets of their own."""
    return harvested(bucket[0], tmp_path_factory.mktemp("home"))


def places(workspace: Workspace, target: str, table: str = "captures") -> Counter[tuple[str, int]]:
    rows = workspace.lake.read(table, {"crawl": NEW, "target": target}).to_pylist()
    return Counter((row["warc_filename"], row["warc_record_offset"]) for row in rows)


def truth_of(bucket: Bucket, domain: str) -> Counter[tuple[str, int]]:
    found = bucket[1].captures_of(NEW, subset="warc", domain=domain)
    return Counter((capture.warc_filename, capture.warc_record_offset) for capture in found)


def test_a_domain_without_captures_is_an_empty_slice_that_counts_as_done(shared: Workspace) -> None:
    first = extract(shared, "no-such-site.org")
    assert [(report.rows, report.fresh_slices) for report in first] == [(0, 1)] * 3
    second = extract(shared, "no-such-site.org")
    assert [(report.rows, report.fresh_slices, report.requests) for report in second] == [(0, 0, 0)] * 3


def test_a_key_made_in_the_ui_means_what_it_says_and_is_written_down(bucket: Bucket, shared: Workspace) -> None:
    locate_captures(shared, NEW, ["exemple-example.fr"])
    assert places(shared, "exemple-example.fr") == truth_of(bucket, "exemple-example.fr")
    [row] = shared.lake.read("targets", {"slug": "exemple-example.fr"}).to_pylist()
    assert (row["kind"], row["definition"]) == ("domain", "exemple-example.fr")


def test_a_plan_above_the_budget_is_refused_and_what_was_located_stays(bucket: Bucket, tmp_path: Path) -> None:
    harvest(workspace_of(bucket[0], tmp_path))
    for limit in ({"max_bytes": 1_000}, {"max_requests": 0}):
        tight = workspace_of(bucket[0], tmp_path, rate=2.0, **limit)
        for stage in (locate_captures, fetch_captures, locate_captures):
            with pytest.raises(UserInputError, match=rf"example\.com in {NEW}.*hours at 2 .*CC_PIPELINE_MAX_.*--yes"):
                stage(tight, NEW, ["example.com"])
        assert tight.lake.read("records").num_rows == 0
    located, fetched, _ = extract(workspace_of(bucket[0], tmp_path), "example.com")
    assert located.fresh_slices == located.requests == 0
    assert fetched.written == located.rows == truth_of(bucket, "example.com").total()
    # what was fetched is not refused because a limit was lowered
    assert extract(workspace_of(bucket[0], tmp_path, max_bytes=1), "example.com")[1].written == 0


def test_a_price_read_from_the_lake_is_that_of_all_places_together(
    shared: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    locate_captures(shared, NEW, ["example.com"])
    rows = shared.lake.read("captures", {"crawl": NEW, "target": "example.com"})
    files = Counter(rows["warc_filename"].to_pylist())
    # sorted on disk, and priced a file at a time
    monkeypatch.setattr("cc_pipeline.lake.ordered.IN_MEMORY", 1_000)
    monkeypatch.setattr("cc_pipeline.records.range_plan._PRICED", max(files.values()))
    assert len(files) > 1
    assert price_of_slices(shared, [Slice(NEW, "example.com")]) == price_of(rows)
    assert price_of_slices(shared, [Slice(NEW, "never-located.org")]) == FetchEstimate(0, 0, 0, 0, 0)
