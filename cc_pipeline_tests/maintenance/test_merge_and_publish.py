"""Publishing merges what has become many, unless somebody else merges; its views join nothing for nothing."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.layout import MAX_SMALL_FILES
from cc_pipeline.lake.slice import LOCATE, Slice
from cc_pipeline.lake.slices import Base, SliceRow, commit_slices
from cc_pipeline.locks import locked
from cc_pipeline.maintenance import maintain
from cc_pipeline.maintenance.maintain import merge_and_publish, run_maintenance
from cc_pipeline.publish.views import Blocked, Sharing, publication_views
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import workspace_of

CRAWL = "CC-MAIN-2024-22"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A home with as many small files of the table ``slices`` as it may have, and one more."""
    made = workspace_of(tmp_path / "source", tmp_path / "home")
    for number in range(MAX_SMALL_FILES + 1):
        slice_ = Slice(CRAWL, f"t{number:02}")
        commit_slices(made.lake, [SliceRow(slice_, LOCATE.label, 0, 0)], Base({slice_: 0}, {}))
    return made


def shown(workspace: Workspace) -> list[tuple[object, ...]]:
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        return connection.execute("SELECT target FROM lake.slices ORDER BY target").fetchall()


def files(workspace: Workspace) -> int:
    return len(workspace.lake.pin("slices").files)


def test_a_publication_merges_what_is_due_and_readers_of_before_keep_theirs(workspace: Workspace) -> None:
    before = workspace.lake.pin("slices").files
    merge_and_publish(workspace)
    assert files(workspace) == 1
    assert shown(workspace) == [(f"t{number:02}",) for number in range(MAX_SMALL_FILES + 1)]
    assert all(Path(path).exists() for path in before)
    # where nothing repeats no view looks for repeats or joins records
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        views = dict(
            connection.execute("SELECT view_name, sql FROM duckdb_views() WHERE schema_name = 'main'").fetchall()
        )
    core = {view.name for view in publication_views([], Sharing((), ()), Blocked())}
    assert [name for name, sql in views.items() if name in core and "JOIN" in sql.upper()] == []
    assert "records" not in views["captures"]
    version = workspace.lake.pin("slices").version
    merge_and_publish(workspace)
    assert workspace.lake.pin("slices").version == version


def test_it_waits_for_nobody_who_merges(workspace: Workspace) -> None:
    with locked(workspace.settings.home / "maintenance.lock"):
        merge_and_publish(workspace)
    assert len(shown(workspace)) == MAX_SMALL_FILES + 1
    assert files(workspace) == MAX_SMALL_FILES + 1
    assert run_maintenance(workspace).merged["slices"] == MAX_SMALL_FILES + 1


def test_what_cannot_be_merged_is_published_all_the_same_and_told(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise EnvironmentFault("the disk is full", "Free some space.")

    monkeypatch.setattr(maintain, "compact", full)
    with pytest.raises(EnvironmentFault, match="disk is full"):
        merge_and_publish(workspace)
    assert len(shown(workspace)) == MAX_SMALL_FILES + 1
