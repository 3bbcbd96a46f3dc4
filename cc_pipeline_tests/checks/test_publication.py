"""The published file shows the lake as it stands, or ``doctor`` and ``run`` say that it does not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.checks.doctor import examine
from cc_pipeline.checks.outputs import (
    publication_verdict,
    published_verdict,
)
from cc_pipeline.checks.scope import Scope
from cc_pipeline.lake.compaction import Bounds, compact
from cc_pipeline.lake.target_definitions import delete_definitions
from cc_pipeline.lake.vacuum import vacuum
from cc_pipeline.publish.publish import find_publication_lag
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import Bucket, extract, harvest, publish, workspace_of

SITE, OTHER, THIRD = "example.com", "example-foo.com", "example.org"


@pytest.fixture(scope="module")
def sound(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one site, published."""
    workspace = workspace_of(bucket[0], tmp_path_factory.mktemp("published") / "home")
    harvest(workspace)
    extract(workspace, SITE)
    publish(workspace)
    return workspace.settings.home


@pytest.fixture
def reopened(bucket: Bucket, sound: Path, tmp_path: Path) -> Callable[..., Workspace]:
    """Opens a copy of the home anew, as another command does."""
    home = shutil.copytree(sound, tmp_path / "home")
    return lambda **settings: workspace_of(bucket[0], home, **settings)


def doctor(workspace: Workspace) -> tuple[str, str]:
    """Level and text of what ``doctor`` says of the file."""
    [found] = [one for one in examine(workspace.settings) if one.topic == "cc.duckdb"]
    return found.level, found.text


def sites(workspace: Workspace) -> set[str]:
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        return {domain for (domain,) in connection.execute("SELECT DISTINCT domain FROM page_metadata").fetchall()}


@pytest.mark.process
def test_a_restored_lake_is_published_again_though_its_versions_are_the_same(
    reopened: Callable[..., Workspace], tmp_path: Path
) -> None:
    workspace = reopened()
    backup = shutil.copytree(workspace.settings.home / "lake", tmp_path / "backup")
    extract(workspace, OTHER)
    publish(workspace)
    assert doctor(workspace)[0] == "ok"
    shutil.rmtree(workspace.settings.home / "lake")
    shutil.copytree(backup, workspace.settings.home / "lake")
    restored = reopened()
    assert find_publication_lag(restored) is not None
    extract(restored, THIRD)
    with duckdb.connect(str(restored.settings.published_path), read_only=True) as connection:
        shown = dict(connection.execute("SELECT table_name, version FROM publication").fetchall())
    assert restored.lake.version("slices") == shown["slices"], "numbers tell nothing"
    found = find_publication_lag(restored)
    assert found is not None
    assert "slices" in found.commits
    assert doctor(restored)[0] == "bad"
    publish(restored)
    assert find_publication_lag(restored) is None
    assert sites(restored) == {SITE, THIRD}
    assert doctor(restored)[0] == "ok"
    assert published_verdict(restored, Scope()).passed


def _half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.process
@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(b"no database"), _half])
def test_a_file_that_cannot_be_read_is_a_finding_and_the_next_publication_mends_it(
    reopened: Callable[..., Workspace], harm: Callable[[Path], object]
) -> None:
    workspace = reopened(publish="copy")
    publish(workspace)
    harm(workspace.settings.published_path)
    level, text = doctor(workspace)
    assert (level, "cc.duckdb" in text) == ("bad", True)
    assert publication_verdict(workspace).severity == "error"
    publish(workspace)
    assert doctor(workspace)[0] == "ok"


def test_a_view_whose_files_are_gone_is_a_finding(reopened: Callable[..., Workspace]) -> None:
    workspace = reopened()
    publish(workspace)
    for path in (workspace.settings.home / "lake/tables/page_text").rglob("*.parquet"):
        path.unlink()
    assert doctor(workspace)[0] == "bad"


def test_what_was_committed_after_a_publication_is_a_finding_and_a_harvest_a_note(
    reopened: Callable[..., Workspace],
) -> None:
    workspace = reopened()
    publish(workspace)
    harvest(workspace, "CC-MAIN-2018-05")
    assert doctor(workspace)[0] == "note"
    before = find_publication_lag(workspace)
    extract(workspace, OTHER)
    level, text = doctor(workspace)
    assert (level, "slices" in text) == ("bad", True)
    # what others committed while a run published is not that run's failure
    assert publication_verdict(workspace, before).severity != "error"
    verdict = publication_verdict(workspace, find_publication_lag(workspace))
    assert "cc.duckdb is out of date: tables changed since it was written: slices" in verdict.message
    publish(workspace)
    assert doctor(workspace)[0] == "ok"
    assert publication_verdict(workspace).passed


def test_what_maintenance_deletes_afterwards_is_no_change(reopened: Callable[..., Workspace]) -> None:
    workspace = reopened()
    lake = workspace.lake
    extract(workspace, OTHER)
    assert compact(lake, "captures", Bounds(max_small_files=1)) == 2
    publish(workspace)
    before = lake.version("captures")
    assert vacuum(lake, "captures", None)
    assert lake.version("captures") > before, "the library notes in the log what it deletes"
    assert (find_publication_lag(workspace), doctor(workspace)[0]) == (None, "ok")
    assert published_verdict(workspace, Scope()).passed


def test_rows_of_slices_that_a_purge_hides_are_not_missed(reopened: Callable[..., Workspace]) -> None:
    workspace = reopened()
    delete_definitions(workspace.lake, [SITE])
    publish(workspace)
    assert published_verdict(workspace, Scope()).passed
