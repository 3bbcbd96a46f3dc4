"""Files of tables go a week after a commit superseded them, and not by their age; nor do those of a running commit."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from cc_pipeline.lake.compaction import Bounds, compact
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.vacuum import vacuum
from cc_pipeline_tests.lake.things import commit, content, lake_in


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    # a name that is escaped wherever somebody escapes it
    return lake_in(tmp_path / "my läke")


def files(lake: Lake) -> set[Path]:
    return set(Path(lake.address("things")).rglob("*.parquet"))


def age(lake: Lake, path: Path, days: float) -> None:
    when = time.time() - days * 86_400
    os.utime(path, (when, when))


def superseded(lake: Lake, days: float) -> None:
    """Makes all commits that superseded files so many days old."""
    for entry in (Path(lake.address("things")) / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in entry.read_text("utf-8").splitlines()]
        for line in lines:
            if "remove" in line:
                line["remove"]["deletionTimestamp"] = int(time.time() * 1_000 - days * 86_400_000)
        entry.write_text("\n".join(map(json.dumps, lines)) + "\n", "utf-8")


@pytest.mark.parametrize("hours", [0, 1, 168])
def test_a_superseded_file_goes_by_when_it_was_superseded(lake: Lake, hours: int) -> None:
    commit(lake, {"a": [1]}, "C ü%41")
    commit(lake, {"b": [2]}, "C ü%41")
    pinned = lake.pin("things")
    for path in files(lake):
        age(lake, path, 400)
    compact(lake, "things", Bounds(1))
    assert vacuum(lake, "things", hours) == 0, "however old the file is, and however few hours are asked for"
    superseded(lake, 6.9)
    assert vacuum(lake, "things", hours) == 0
    superseded(lake, 7.1)
    lake = lake_in(lake.root)
    assert vacuum(lake, "things", hours, keep=[pinned.version]) == 0, "a published file names them"
    assert vacuum(lake, "things", hours) == 2
    assert content(lake) == [("C ü%41", "a", 1), ("C ü%41", "b", 2)]


def test_what_a_commit_under_way_has_written_stays_and_what_a_killed_one_left_goes(lake: Lake) -> None:
    commit(lake, {"a": [1]})
    [named] = files(lake)
    under_way, killed = named.with_name("part-under-way.parquet"), named.with_name("part-killed.parquet")
    for path in (under_way, killed):
        path.write_bytes(named.read_bytes())
    age(lake, under_way, 6.9)
    age(lake, killed, 7.1)
    age(lake, named, 400)
    assert vacuum(lake, "things") == 1
    assert files(lake) == {named, under_way}
