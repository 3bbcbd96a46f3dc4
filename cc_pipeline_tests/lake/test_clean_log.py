"""Entries of a log go after a month, up to a checkpoint; what the table says, and what readers pinned, stays."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pytest
from cc_pipeline.lake.digests.log import UNKNOWN_DIGESTS

from cc_pipeline.lake.lake import Lake, TableSpec
from cc_pipeline.lake.vacuum import clean_log

SPEC = TableSpec(
    "records", pa.schema([("crawl", pa.string()), ("target", pa.string()), ("x", pa.int64())]), ("crawl", "target")
)
#: Two checkpoints, of every hundredth commit, and entries behind them.
COMMITS = 205


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lake")
    lake = Lake(str(root), [SPEC])
    for number in range(COMMITS):
        slug = f"t{number % 40}"
        rows = pa.table({"crawl": ["C"], "target": [slug], "x": [number]}, schema=SPEC.schema)
        lake.commit("records", rows, [{"crawl": "C", "target": slug}], {slug: f"{number:x}"})
    return root


@pytest.fixture
def lake(made: Path, tmp_path: Path) -> Lake:
    shutil.copytree(made, tmp_path / "lake")
    return Lake(str(tmp_path / "lake"), [SPEC])


def entries(lake: Lake) -> list[int]:
    log = Path(lake.address("records")) / "_delta_log"
    return sorted(int(path.stem) for path in log.glob("*.json"))


def age(lake: Lake, upto: int, days: float = 40) -> None:
    when = time.time() - days * 86_400
    for path in (Path(lake.address("records")) / "_delta_log").iterdir():
        if path.name[:20].isdigit() and int(path.name[:20]) <= upto:
            os.utime(path, (when, when))


def said(lake: Lake) -> tuple[list[dict[str, object]], dict[str, str | None]]:
    names = lake.digest_names("records")
    assert names is not None
    return sorted(lake.read("records").to_pylist(), key=str), lake.digests("records", sorted(names))


def test_old_entries_go_up_to_a_checkpoint_of_their_age(lake: Lake) -> None:
    rows = said(lake)
    assert len(rows[1]) == 80, "a digest and a count of each slice"
    first, last = entries(lake)[0], entries(lake)[-1]
    age(lake, 150)
    gone = clean_log(lake, "records")
    kept_from = entries(lake)[0]
    assert first < kept_from <= 150, "the newest checkpoint of a month ago, and nothing behind it"
    assert gone == kept_from - first
    assert entries(lake) == list(range(kept_from, last + 1))
    again = Lake(lake.root, [SPEC])
    assert said(again) == rows == said(lake)
    assert again.pin("records", kept_from).version == kept_from
    assert clean_log(lake, "records") == 0


def test_nothing_goes_while_it_is_young_or_named(lake: Lake) -> None:
    assert clean_log(lake, "records") == 0
    age(lake, 150, days=29)
    assert clean_log(lake, "records") == 0
    age(lake, 150)
    assert clean_log(lake, "records", keep=[60, 204]) == 0
    assert lake.pin("records", 60).version == 60
    assert clean_log(lake, "records", keep=[150, 204]) > 0
    assert lake.pin("records", 150).version == 150


def test_a_young_checkpoint_of_a_quiet_table_takes_no_version_that_is_named(lake: Lake) -> None:
    log = Path(lake.address("records")) / "_delta_log"
    newest = max(int(path.name.partition(".")[0]) for path in log.glob("*.checkpoint.parquet"))
    age(lake, newest - 1)
    assert clean_log(lake, "records", keep=[newest - 1]) == 0
    assert Lake(lake.root, [SPEC]).pin("records", newest - 1).version == newest - 1
    assert clean_log(lake, "records", keep=[newest]) > 0
    assert Lake(lake.root, [SPEC]).pin("records", newest).version == newest


def test_a_lake_goes_on_behind_a_cleaned_log(lake: Lake) -> None:
    age(lake, COMMITS)
    assert clean_log(lake, "records") > 0
    rows = pa.table({"crawl": ["C"], "target": ["t1"], "x": [-1]}, schema=SPEC.schema)
    lake.commit("records", rows, [{"crawl": "C", "target": "t1"}], {"t1": "ff"})
    assert lake.digest("records", "t1") == f"{255:015x}"
    assert len(said(Lake(lake.root, [SPEC]))[0]) == 40
    assert lake.changed_since("records", 3, lake.version("records")) is UNKNOWN_DIGESTS


def test_a_table_that_is_not_there_has_no_log(tmp_path: Path) -> None:
    assert clean_log(Lake(str(tmp_path), [SPEC]), "records") == 0
