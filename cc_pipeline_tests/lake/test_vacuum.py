"""Files of tables go a week after a commit superseded them, and not by their age; nor do those of a running commit."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from cc_pipeline.lake.lake import Lake, TableSpec
from cc_pipeline.lake.vacuum import vacuum

SPEC = TableSpec(
    "records", pa.schema([("crawl", pa.string()), ("target", pa.string()), ("x", pa.int64())]), ("crawl", "target")
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    # a name that is escaped wherever somebody escapes it
    return Lake(str(tmp_path / "my läke"), [SPEC])


def commit(lake: Lake, target: str, x: int) -> None:
    rows = pa.table({"crawl": ["C"], "target": [target], "x": [x]}, schema=SPEC.schema)
    lake.commit("records", rows, [{"crawl": "C", "target": target}], {target: f"{x:x}"})


def files(lake: Lake) -> set[Path]:
    return set(Path(lake.address("records")).rglob("*.parquet"))


def age(lake: Lake, path: Path, days: float) -> None:
    when = time.time() - days * 86_400
    os.utime(path, (when, when))


def superseded(lake: Lake, days: float) -> None:
    """Makes all commits that superseded files so many days old."""
    for entry in (Path(lake.address("records")) / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in entry.read_text("utf-8").splitlines()]
        for line in lines:
            if "remove" in line:
                line["remove"]["deletionTimestamp"] = int(time.time() * 1_000 - days * 86_400_000)
        entry.write_text("\n".join(map(json.dumps, lines)) + "\n", "utf-8")


@pytest.mark.parametrize("hours", [0, 1, 168])
def test_a_superseded_file_goes_by_when_it_was_superseded(lake: Lake, hours: int) -> None:
    commit(lake, "a", 1)
    commit(lake, "b", 2)
    for path in files(lake):
        age(lake, path, 400)
    commit(lake, "a", 3)
    assert vacuum(lake, "records", hours) == 0, "however old the file is, and however few hours are asked for"
    superseded(lake, 6.9)
    assert vacuum(lake, "records", hours) == 0
    superseded(lake, 7.1)
    assert vacuum(lake, "records", hours) == 1
    assert sorted(lake.read("records").to_pylist(), key=str) == [
        {"crawl": "C", "target": "a", "x": 3},
        {"crawl": "C", "target": "b", "x": 2},
    ]


def test_what_a_commit_under_way_has_written_stays_and_what_a_killed_one_left_goes(lake: Lake) -> None:
    commit(lake, "a", 1)
    [named] = files(lake)
    under_way, killed = named.with_name("part-under-way.parquet"), named.with_name("part-killed.parquet")
    for path in (under_way, killed):
        path.write_bytes(named.read_bytes())
    age(lake, under_way, 6.9)
    age(lake, killed, 7.1)
    age(lake, named, 400)
    assert vacuum(lake, "records") == 1
    assert files(lake) == {named, under_way}


def test_a_table_that_is_not_there_has_nothing_to_delete(lake: Lake) -> None:
    assert vacuum(lake, "records") == 0
    assert vacuum(lake, "fetch_plan") == 0
