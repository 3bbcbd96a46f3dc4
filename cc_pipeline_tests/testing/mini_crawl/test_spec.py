"""Specifications: what they refuse, and what ``ensure`` keeps."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cc_pipeline.errors import DataFault, UserInputError
from cc_pipeline.testing.mini_crawl import (
    CrawlSpec,
    MiniCrawlSpec,
    MiniCrawlTruth,
    ensure,
    generate,
    truth_path,
)

SMALL = MiniCrawlSpec(
    pages=12, sites=2, crawls=(CrawlSpec("CC-MAIN-2024-22", segments=1, files_per_segment=1, parts=1),)
)


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(UserInputError):
        generate(tmp_path, SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_ensure_generates_once_and_refuses_another_specification(tmp_path: Path) -> None:
    root = tmp_path / "bucket"
    first = ensure(root, SMALL)
    times = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    assert ensure(root, SMALL) == first
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == times
    with pytest.raises(UserInputError):
        ensure(root, replace(SMALL, seed=1))
    assert MiniCrawlTruth.load(truth_path(root)) == first
    truth_path(root).write_bytes(b"broken")
    with pytest.raises(DataFault):
        MiniCrawlTruth.load(truth_path(root))
    with pytest.raises(UserInputError):
        ensure(root, SMALL)


def test_an_interrupted_generation_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupt(crawl: str, done: int, total: int) -> None:
        if done > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure(tmp_path / "bucket", SMALL, interrupt)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_was_building_is_removed(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    abandoned = tmp_path / f"bucket.building-{int(ended.stdout)}"
    (abandoned / "crawl-data").mkdir(parents=True)
    alive = tmp_path / f"bucket.building-{os.getppid()}"
    alive.mkdir()
    ensure(tmp_path / "bucket", SMALL)
    assert not abandoned.exists() and alive.exists()
