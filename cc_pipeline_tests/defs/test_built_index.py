"""The index of a month of CC-NEWS in Dagster: its record, and its check."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from cc_pipeline.checks.asset_checks import every_file_is_indexed
from cc_pipeline.checks.scope import Scope
from cc_pipeline.defs.stage_runner import StageRunner
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.testing.mini_crawl.news import NewsSpec, write_news
from cc_pipeline_tests.world import harvest, workspace_of

SPEC = NewsSpec(files=2, fetches=6)
MONTH = SPEC.month
EVERYTHING = Scope()


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    write_news(tmp_path / "bucket", SPEC)
    yield workspace_of(tmp_path / "bucket", tmp_path / "home")


def shards(workspace: Workspace) -> list[Path]:
    return list(Path(workspace.settings.lake).glob("built-index/**/*.parquet"))


def test_a_build_is_recorded_with_its_figures(workspace: Workspace) -> None:
    with StageRunner(workspace) as runner:
        for max_files in (1, None):
            runner.build_index(MONTH, max_files)
            latest = runner.instance.get_latest_materialization_event(dg.AssetKey("built_index"))
            assert latest is not None and latest.asset_materialization is not None
            figures = latest.asset_materialization.metadata
            assert figures["to be indexed"].value == (max_files or 0)
        assert figures["parts that could not be read"].value == 1
    assert len(shards(workspace)) == 2


def test_the_check_counts_what_is_missing_and_what_could_not_be_read(workspace: Workspace) -> None:
    assert every_file_is_indexed.verdict(workspace, EVERYTHING).severity == "ok"
    with StageRunner(workspace) as runner:
        runner.build_index(MONTH, max_files=1)
    harvest(workspace, MONTH)
    lacking = every_file_is_indexed.verdict(workspace, EVERYTHING)
    assert (lacking.severity, lacking.wrong) == ("warn", (MONTH,)) and "1 of 2 archive files" in lacking.message
    assert lacking.message.endswith(f"cc-pipeline index build --crawl {MONTH}")
    with StageRunner(workspace) as runner:
        runner.build_index(MONTH)
    damaged = every_file_is_indexed.verdict(workspace, EVERYTHING)
    assert damaged.severity == "warn" and "1 byte range of" in damaged.message
