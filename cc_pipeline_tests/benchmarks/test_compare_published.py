"""Published files of two homes are compared row for row, but for what is of the run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from benchmarks.compare_published import OF_THE_RUN
from cc_pipeline.lake.slice import PAGE_TABLES
from cc_pipeline.minicrawl.truth import MiniCrawlTruth
from cc_pipeline_tests.world import extract, harvest, publish, workspace_of


@pytest.fixture(scope="module")
def published(bucket: tuple[Path, MiniCrawlTruth], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a home's published file of these domains."""

    def made(*domains: str) -> Path:
        home = tmp_path_factory.mktemp("home")
        workspace = workspace_of(bucket[0], home)
        harvest(workspace)
        extract(workspace, *domains)
        publish(workspace)
        workspace.close()
        return workspace.settings.published_path

    return made


def compare(one: Path, other: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.compare_published", str(one), str(other)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_two_homes_of_the_same_are_equal_and_others_are_not(published: Callable[..., Path]) -> None:
    first, again, other = published("example.com"), published("example.com"), published("example.org")
    equal = compare(first, again)
    assert equal.returncode == 0, equal.stdout
    # it says what it left out, and there were rows to compare
    assert all(column in equal.stdout for column in OF_THE_RUN)
    assert all(f"{table}: 0 rows" not in equal.stdout for table in PAGE_TABLES[:1])
    differ = compare(first, other)
    assert differ.returncode == 1
    assert "rows only in one" in differ.stdout


def test_what_is_left_out_is_in_the_tables(published: Callable[..., Path]) -> None:
    with duckdb.connect(str(published("example.com")), read_only=True) as connection:
        named = connection.execute("SELECT DISTINCT column_name FROM information_schema.columns").fetchall()
    assert set(OF_THE_RUN) <= {name for (name,) in named}
