"""Homes that are moved."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.lake.slice import PAGE_TABLES
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.closing import closed_later
from cc_pipeline_tests.oracles.published import list_differences
from cc_pipeline_tests.world import NEW, OLD, Bucket, copy_of, extract, harvest, publish, workspace_of

SITE = "example.com"
#: Compared views; times of the publication are its own.
VIEWS = ("crawls", "targets", "captures", "capture_targets", "records", "ledger", *PAGE_TABLES)


def published_rows(home: Path) -> dict[str, Counter[str]]:
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        return {name: Counter(map(str, connection.execute(f"FROM {name}").fetchall())) for name in VIEWS}


def workspace_in(home: Path) -> Workspace:
    return closed_later(Workspace(load_settings({}, home=str(home))))


@pytest.fixture(scope="module")
def published(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published home with its source inside. Tests work on copies."""
    home = tmp_path_factory.mktemp("published") / "home"
    home.mkdir()
    workspace = workspace_of(copy_of(bucket[0], home / "minicrawl"), home)
    harvest(workspace, NEW)
    extract(workspace, SITE)
    publish(workspace)
    return home


def test_a_home_that_is_moved_has_what_it_had_and_goes_on(published: Path, tmp_path: Path) -> None:
    before = published_rows(published)
    assert before["records"].total() > 0
    home = shutil.copytree(published, tmp_path / "elsewhere" / "a home")
    workspace = workspace_in(home)
    publish(workspace)
    assert list_differences(published / "cc.duckdb", home / "cc.duckdb") == []
    assert [stage(workspace, NEW, [SITE]).written for stage in (locate_captures, fetch_captures)] == [0, 0]
    # the files of the bucket are new ones on this disk, and their footers say which they belong to
    shutil.rmtree(home / "footers")
    harvest(workspace, OLD)
    extract(workspace, "example.co.uk", crawl=OLD)
    publish(workspace)
    assert published_rows(home)["page_metadata"].total() > before["page_metadata"].total()


def test_a_source_within_the_home_may_become_a_link(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    (home / "minicrawl").mkdir(parents=True)
    workspace_of(home / "minicrawl", home).lake.read("crawls")
    (home / "minicrawl").rename(elsewhere)
    (home / "minicrawl").symlink_to(elsewhere)
    assert workspace_of(home / "minicrawl", home).lake.read("crawls").num_rows == 0
