"""Entries of a log go after a month, up to a checkpoint; what the table says, and what readers pinned, stays."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.vacuum import clean_log
from cc_pipeline_tests.lake.things import commit, content, lake_in

#: Two checkpoints, of every hundredth commit, and entries behind them.
COMMITS = 205


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lake")
    lake = lake_in(root)
    for number in range(COMMITS):
        if number % 5 == 0:
            commit(lake, {f"t{number // 5 % 40}": [number]})
        else:
            lake.commit_files("slices", lake.prepare("slices"), [])
    return root


@pytest.fixture
def lake(made: Path, tmp_path: Path) -> Lake:
    shutil.copytree(made, tmp_path / "lake")
    return lake_in(tmp_path / "lake")


def entries(lake: Lake) -> list[int]:
    log = Path(lake.address("slices")) / "_delta_log"
    return sorted(int(path.stem) for path in log.glob("*.json"))


def age(lake: Lake, upto: int, days: float = 40) -> None:
    when = time.time() - days * 86_400
    for path in (Path(lake.address("slices")) / "_delta_log").iterdir():
        if path.name[:20].isdigit() and int(path.name[:20]) <= upto:
            os.utime(path, (when, when))


def test_old_entries_go_up_to_a_checkpoint_of_their_age(lake: Lake) -> None:
    rows = content(lake)
    assert len(rows) == 40
    first, last = entries(lake)[0], entries(lake)[-1]
    age(lake, 150)
    gone = clean_log(lake, "slices")
    kept_from = entries(lake)[0]
    assert first < kept_from <= 150, "the newest checkpoint of a month ago, and nothing behind it"
    assert gone == kept_from - first
    assert entries(lake) == list(range(kept_from, last + 1))
    again = lake_in(lake.root)
    assert content(again) == rows == content(lake)
    assert again.pin("slices", kept_from).version == kept_from
    assert clean_log(lake, "slices") == 0


def test_nothing_goes_while_it_is_young_or_named(lake: Lake) -> None:
    assert clean_log(lake, "slices") == 0
    age(lake, 150, days=29)
    assert clean_log(lake, "slices") == 0
    age(lake, 150)
    assert clean_log(lake, "slices", keep=[60, 204]) == 0
    assert lake.pin("slices", 60).version == 60
    assert clean_log(lake, "slices", keep=[150, 204]) > 0
    assert lake.pin("slices", 150).version == 150


def test_a_young_checkpoint_of_a_quiet_table_takes_no_version_that_is_named(lake: Lake) -> None:
    log = Path(lake.address("slices")) / "_delta_log"
    newest = max(int(path.name.partition(".")[0]) for path in log.glob("*.checkpoint.parquet"))
    age(lake, newest - 1)
    assert clean_log(lake, "slices", keep=[newest - 1]) == 0
    assert lake_in(lake.root).pin("slices", newest - 1).version == newest - 1
    assert clean_log(lake, "slices", keep=[newest]) > 0
    assert lake_in(lake.root).pin("slices", newest).version == newest
