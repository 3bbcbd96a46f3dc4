"""Specifications: what they refuse, and what ``ensure`` keeps."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


@pytest.mark.parametrize(
    "wrong",
    [
        {"pages": 3, "sites": 4},
        {"sites": 0},
        {"crawls": (CrawlSpec("CC-MAIN-2024-22"), CrawlSpec("CC-MAIN-2024-22"))},
        {"crawls": (CrawlSpec("CC-MAIN-2024-22", parts=0),)},
        {"crawls": (CrawlSpec("CC-MAIN-2024-22", coverage=0.0),)},
    ],
)
def test_specifications_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UserInputError):
        replace(SMALL, **wrong)


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


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**40),
    pages=st.integers(3, 40),
    sites=st.integers(1, 3),
    row_group_rows=st.integers(1, 30),
    parts=st.integers(1, 5),
    shards=st.integers(1, 3),
    files=st.integers(1, 3),
    crawl=st.sampled_from(
        ["CC-MAIN-2014-10", "CC-MAIN-2017-51", "CC-MAIN-2019-47", "CC-MAIN-2022-05", "CC-MAIN-2026-30"]
    ),
)
def test_any_small_bucket_holds_together(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    pages: int,
    sites: int,
    row_group_rows: int,
    parts: int,
    shards: int,
    files: int,
    crawl: str,
) -> None:
    shape = CrawlSpec(
        crawl, segments=1, files_per_segment=files, parts=parts, row_group_rows=row_group_rows, zipnum_shards=shards
    )
    root = tmp_path_factory.mktemp("any") / "bucket"
    spec = MiniCrawlSpec(
        seed=seed, pages=pages, sites=sites, crawls=(shape, CrawlSpec("CC-MAIN-2012", segments=1)), truncate_bytes=4096
    )
    truth = generate(root, spec)
    places = {(c.warc_filename, c.warc_record_offset) for c in truth.captures}
    assert len(places) == len(truth.captures) > 0
    for capture in truth.captures:
        data = (root / capture.warc_filename).read_bytes()[capture.warc_record_offset :][: capture.warc_record_length]
        assert data[:2] == b"\x1f\x8b" and len(data) == capture.warc_record_length
    saved = root.with_name("truth.gz")
    truth.save(saved)
    assert MiniCrawlTruth.load(saved) == truth
