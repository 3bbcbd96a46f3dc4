"""A command publishes without a run: what is recorded of it then, and how it ends where something fails."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from cc_pipeline.defs.checks.check_runs import CheckContext, check_publication
from cc_pipeline.defs.checks.steps import LEFT_FAILED
from cc_pipeline.defs.launcher import Launcher
from sqlalchemy.exc import OperationalError

from cc_pipeline.checks.check import Check
from cc_pipeline.defs.checks import check_runs
from cc_pipeline.defs.home_namespace import OWN_HOME
from cc_pipeline.errors import EnvironmentFault, PlaceFault
from cc_pipeline.lake.snapshot import Publication
from cc_pipeline.maintenance import maintain
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

    publish = maintain.merge_and_publish

    def publish_beside_a_run(workspace: Workspace) -> Publication:
        published = publish(workspace)
        record_captures("A|later")
        return published

    shown = record_captures("A|before")
    monkeypatch.setattr(maintain, "merge_and_publish", publish_beside_a_run)
    launcher.publish()
    newest = launcher.instance.get_latest_materialization_event(WAREHOUSE)
    assert newest is not None and newest.asset_materialization is not None
    assert (newest.asset_materialization.tags or {})["dagster/input_event_pointer/captures"] == shown


def test_a_publication_that_was_not_recorded_is_made_again(launcher: Launcher) -> None:
    assert launcher.publish_changes() is not None
    assert launcher.publish_changes() is None
    # as where a command was killed in between
    maintain.merge_and_publish(launcher._workspace)
    assert launcher.publish_changes() is not None
    assert launcher.publish_changes() is None


@pytest.mark.parametrize(
    ("place", "error", "family", "said"),
    [
        (
            "defs.publication.record_publication",
            sqlite3.OperationalError("attempt to write"),
            EnvironmentFault,
            "could not record",
        ),
        (
            "defs.publication.record_publication",
            sqlite3.OperationalError("No space left"),
            PlaceFault,
            "the disk is full",
        ),
        ("defs.publication.find_inputs", sqlite3.OperationalError("locked"), EnvironmentFault, "could not record"),
        ("maintenance.maintain.publish_warehouse", RuntimeError("a bug"), EnvironmentFault, "RuntimeError: a bug"),
        ("maintenance.maintain.publish_warehouse", OSError(28, "No space left"), PlaceFault, "No space left"),
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


def test_checks_that_break_outside_of_a_run_say_so_in_a_line_each(
    bucket: Bucket,
    tmp_path: Path,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise EnvironmentFault("it is broken", "Mend it.")

    broken = Check(asset="warehouse", name="sound", description="", step="looks", verdict=fail)
    monkeypatch.setattr(check_runs, "checks_of", lambda _: [broken])
    monkeypatch.setattr(check_runs, "left_failed_result", fail)
    check_publication(
        CheckContext(instance, logging.getLogger("looks")), workspace_of(bucket[0], tmp_path), OWN_HOME, {}
    )
    told = [record for record in caplog.records if record.name == "looks"]
    assert [one.getMessage() for one in told] == [
        f"the check {name} failed with an error: it is broken. Mend it." for name in ("sound", LEFT_FAILED)
    ]
    assert all(one.exc_info is None for one in told)
    keys = [dg.AssetCheckKey(WAREHOUSE, name) for name in ("sound", LEFT_FAILED)]
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    for key in keys:
        event = found[key].event
        assert event is not None and event.dagster_event is not None
        evaluation = event.dagster_event.asset_check_evaluation_data
        assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.ERROR)
