"""Publishing merges what has become many, unless somebody else merges; its views join nothing for nothing."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.layout import MAX_SMALL_FILES
from cc_pipeline.locks import locked
from cc_pipeline.maintenance import maintain
from cc_pipeline.maintenance.maintain import merge_and_publish, run_maintenance
from cc_pipeline.publish.views import Sharing, publication_views
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import workspace_of

CRAWL = "CC-MAIN-2024-22"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A home with as many small files of fetches as it may have, and one more."""
    made = workspace_of(tmp_path / "source", tmp_path / "home")
    schema = made.lake.specs["lookups"].schema
    for number in range(MAX_SMALL_FILES + 1):
        target = f"t{number:02}"
        row = {"crawl": CRAWL, "target": target, "located_by": "parquet", "subsets": ["warc"], "complete": True}
        row |= {"unread_files": 0, "unread": [], "captures": 1, "looked_up_at": 0, "input_digest": "a"}
        row |= {"definition": "a", "index_version": "", "record_bytes": 0, "fetch_bytes": 0, "fetch_requests": 0}
        row |= {"unlisted": 0, "removal": "", "repeated": 0}
        where = [{"crawl": CRAWL, "target": target}]
        made.lake.commit("lookups", pa.Table.from_pylist([row], schema=schema), where, {target: "a"})
    return made


def shown(workspace: Workspace) -> list[tuple[object, ...]]:
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        return connection.execute("SELECT target FROM lookups ORDER BY target").fetchall()


def files(workspace: Workspace) -> int:
    return len(workspace.lake.pin("lookups").files)


def test_a_publication_merges_what_is_due_and_readers_of_before_keep_theirs(workspace: Workspace) -> None:
    before = workspace.lake.pin("lookups").files
    assert merge_and_publish(workspace).rows["lookups"] == MAX_SMALL_FILES + 1
    assert files(workspace) == 1
    assert shown(workspace) == [(f"t{number:02}",) for number in range(MAX_SMALL_FILES + 1)]
    assert all(Path(path).exists() for path in before)
    # where nothing repeats no view looks for repeats or joins records
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        views = dict(
            connection.execute("SELECT view_name, sql FROM duckdb_views() WHERE schema_name = 'main'").fetchall()
        )
    core = {view.name for view in publication_views([], Sharing((), ()))}
    assert [name for name, sql in views.items() if name in core and "JOIN" in sql.upper()] == []
    assert "records" not in views["captures"]
    version = workspace.lake.pin("lookups").version
    merge_and_publish(workspace)
    assert workspace.lake.pin("lookups").version == version
    assert not any((workspace.settings.home / "scratch").rglob("merging"))


def test_it_waits_for_nobody_who_merges(workspace: Workspace) -> None:
    with locked(workspace.settings.home / "maintenance.lock"):
        merge_and_publish(workspace)
    assert len(shown(workspace)) == MAX_SMALL_FILES + 1
    assert files(workspace) == MAX_SMALL_FILES + 1
    assert run_maintenance(workspace).merged["lookups"] == MAX_SMALL_FILES + 1


def test_what_cannot_be_merged_is_published_all_the_same_and_told(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise EnvironmentFault("the disk is full", "Free some space.")

    monkeypatch.setattr(maintain, "compact_due", full)
    with pytest.raises(EnvironmentFault, match="disk is full"):
        merge_and_publish(workspace)
    assert len(shown(workspace)) == MAX_SMALL_FILES + 1
