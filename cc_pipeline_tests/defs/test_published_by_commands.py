"""A command publishes without a run: what is recorded of it then, and how it ends where something fails."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from sqlalchemy.exc import OperationalError

from cc_pipeline.defs.launch import Launcher
from cc_pipeline.errors import EnvironmentFault, PlaceFault
from cc_pipeline.lake.snapshot import Publication
from cc_pipeline.upkeep import upkeep
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import Bucket, harvest, workspace_of

WAREHOUSE = dg.AssetKey("warehouse")


@pytest.fixture
def launcher(bucket: Bucket, tmp_path: Path) -> Iterator[Launcher]:
    workspace = workspace_of(bucket[0], tmp_path)
    harvest(workspace)
    with Launcher(workspace) as made:
        yield made


def test_what_is_recorded_while_a_command_publishes_counts_as_newer(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record_captures(partition: str) -> str:
        made = dg.AssetMaterialization("captures", partition=partition)
        launcher.instance.report_runless_asset_event(made)
        [newest] = launcher.instance.fetch_materializations(dg.AssetKey("captures"), limit=1).records
        return str(newest.storage_id)

    publish = upkeep.merge_and_publish

    def publish_beside_a_run(workspace: Workspace) -> Publication:
        published = publish(workspace)
        record_captures("A|later")
        return published

    shown = record_captures("A|before")
    monkeypatch.setattr(upkeep, "merge_and_publish", publish_beside_a_run)
    launcher.publish()
    newest = launcher.instance.get_latest_materialization_event(WAREHOUSE)
    assert newest is not None and newest.asset_materialization is not None
    assert (newest.asset_materialization.tags or {})["dagster/input_event_pointer/captures"] == shown


def test_a_publication_that_was_not_recorded_is_made_again(launcher: Launcher) -> None:
    assert launcher.publish_what_is_new() is not None
    assert launcher.publish_what_is_new() is None
    # as where a command was killed in between
    upkeep.merge_and_publish(launcher._workspace)
    assert launcher.publish_what_is_new() is not None
    assert launcher.publish_what_is_new() is None


@pytest.mark.parametrize(
    ("place", "error", "family", "said"),
    [
        ("defs.publication.record", sqlite3.OperationalError("attempt to write"), EnvironmentFault, "could not record"),
        ("defs.publication.record", sqlite3.OperationalError("No space left"), PlaceFault, "the disk is full"),
        ("defs.publication.find_inputs", sqlite3.OperationalError("locked"), EnvironmentFault, "could not record"),
        ("upkeep.upkeep.publish_warehouse", RuntimeError("a bug"), EnvironmentFault, "RuntimeError: a bug"),
        ("upkeep.upkeep.publish_warehouse", OSError(28, "No space left"), PlaceFault, "No space left"),
    ],
)
def test_whatever_fails_of_a_publication_is_a_fault(
    launcher: Launcher,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    error: Exception,
    family: type[EnvironmentFault],
    said: str,
) -> None:
    def fail(*_: object) -> None:
        if isinstance(error, sqlite3.Error):
            raise OperationalError("INSERT INTO event_logs", {}, error)
        raise error

    monkeypatch.setattr(f"cc_pipeline.{place}", fail)
    with pytest.raises(EnvironmentFault, match=said) as caught:
        launcher.publish()
    assert type(caught.value) is family
    assert "INSERT" not in str(caught.value)
