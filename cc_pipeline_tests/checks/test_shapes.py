"""How rows are distributed, for the pictures of a partition."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from pathlib import Path

import pytest

from cc_pipeline.checks import shapes as module
from cc_pipeline.checks.shapes import shapes
from cc_pipeline.defs.metadata import bars, partition_pictures
from cc_pipeline.lake.slice import PAGE_TABLES
from cc_pipeline.minicrawl.truth import MiniCrawlTruth
from cc_pipeline_tests.world import NEW, extract, harvest, workspace_of

SITE = "example.com"


def test_pictures_count_the_rows_of_their_partition(
    bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = workspace_of(bucket[0], tmp_path / "home")
    harvest(workspace)
    reports = extract(workspace, SITE, "example-foo.com", "absent.example")
    mine = bucket[1].of(NEW, subset="warc", domain=SITE)
    found = shapes(workspace, "captures", NEW, SITE)
    assert found["captures by status"] == {"200": len(mine)}
    assert sum(found["captures by day"].values()) == sum(found["captures by media type"].values()) == len(mine)
    records = workspace.lake.read("records", {"target": SITE}).to_pylist()
    hosts = Counter[str]()
    for row in records:
        hosts[row["url"].split("/")[2]] += row["stored_length"] or 0
    assert shapes(workspace, "records", NEW, SITE)["stored bytes by host"] == dict(hosts.most_common())
    languages = Counter(
        (row["content_languages"] or "none").split(",")[0]
        for row in workspace.lake.read("page_text", {"target": SITE}).to_pylist()
    )
    assert Counter(shapes(workspace, "page_text", NEW, SITE)["texts by language"]) == languages
    for report in reports:
        for table in ("captures", "records", *PAGE_TABLES):
            if f"rows:{table}" in report.per_target[SITE]:
                assert partition_pictures(workspace, NEW, SITE, table, report), table
                assert partition_pictures(workspace, NEW, "absent.example", table, report) == {}
    monkeypatch.setattr(module, "MOST_ROWS", 1)
    assert sum(shapes(workspace, "captures", NEW, SITE)["captures by status"].values()) <= len(mine)


def test_many_values_become_others_and_many_days_months_or_years() -> None:
    common = module._commonest(Counter({f"v{n}": 100 - n for n in range(20)} | {None: 1000}))
    assert [*common][:2] == ["none", "v0"]
    assert (len(common), common["others"]) == (9, sum(100 - n for n in range(7, 20)))
    start = date(2008, 1, 31)
    for days, length in ((30, 10), (300, 7), (3_000, 4)):
        found = module._in_time(Counter(start + timedelta(days=n) for n in range(days)))
        assert {len(when) for when in found} == {length}
        assert [*found] == sorted(found)
        assert sum(found.values()) == days


def test_bars_are_a_table_whose_longest_bar_is_the_most() -> None:
    rows = [dict(record.data) for record in bars({"a|b": 200, "c": 100, "d": 1}).value.records]
    assert [(row[""], row["rows"]) for row in rows] == [("a|b", 200), ("c", 100), ("d", 1)]
    assert [str(row["share"]).count("█") for row in rows] == [24, 12, 0]
    assert rows[2]["share"] == "▏", "what is there is seen"
    assert not bars({}).value.records
