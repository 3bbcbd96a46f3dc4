"""The version of a partition's data: the same for the same rows, in whatever home and however they were had."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.extraction.parse import parse_records
from cc_pipeline.lake import files
from cc_pipeline.lake.content_digests import NOTHING
from cc_pipeline.lake.slice import FETCH, LOCATE, PAGE_TABLES, PARSE, VERSION, Slice, StageReport
from cc_pipeline.lake.slices import invalidate_slices
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import NEW, Bucket, extract, harvested, workspace_of

SITE, OTHER = "example.com", "example-foo.com"
TABLES = ("captures", "records", *PAGE_TABLES)


def versions(reports: list[StageReport], slug: str) -> dict[str, str]:
    found = {
        name.removeprefix(VERSION): str(value)
        for report in reports
        for name, value in report.per_target[slug].items()
        if name.startswith(VERSION)
    }
    assert set(found) in (set(), set(TABLES))
    return found


@pytest.fixture
def home(bucket: Bucket, tmp_path: Path) -> Workspace:
    return harvested(bucket[0], tmp_path / "home")


def again(workspace: Workspace, *slugs: str, crawl: str = NEW) -> list[StageReport]:
    return [stage(workspace, crawl, slugs) for stage in (locate_captures, fetch_captures, parse_records)]


@pytest.mark.process
def test_the_same_rows_have_the_same_version_whenever_and_wherever_they_are_made(
    bucket: Bucket, home: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = extract(home, SITE, OTHER, "absent.example")
    mine = versions(reports, SITE)
    assert NOTHING not in mine.values()
    assert not set(mine.values()) & set(versions(reports, OTHER).values())
    assert set(versions(reports, "absent.example").values()) == {NOTHING}
    # with nothing to do
    with monkeypatch.context() as patch:
        patch.setattr(files, "compute_content_digests", None)  # no rows are looked at for it
        assert versions(again(home, SITE), SITE) == mine
    # made again
    for stage in (LOCATE, FETCH, PARSE):
        invalidate_slices(home.lake, stage, [Slice(NEW, SITE)])
    reports = again(home, SITE)
    assert [report.fresh_slices for report in reports] == [1, 1, 1]
    assert versions(reports, SITE) == mine
    # later, alone, through another index: other times, other places of the bytes
    elsewhere = workspace_of(bucket[0], tmp_path / "elsewhere", index="zipnum")
    there = extract(elsewhere, SITE)
    for table in ("records", *PAGE_TABLES):
        assert versions(there, SITE)[table] == mine[table], table
