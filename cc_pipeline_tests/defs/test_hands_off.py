"""One switch for all sensors and schedules, which a UI and a daemon see, and which sees what they left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from cc_pipeline.defs.automation.automation_status import (
    list_automations,
    read_automation_statuses,
    set_all_automations,
)
from cc_pipeline.defs.internals import LOCATION
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import ManagedGrpcPythonEnvCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import InstigatorStatus, TickData, TickStatus
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from cc_pipeline.defs.instance import open_instance_in
from cc_pipeline.defs.partitions import SUMMARY_TAG

_MOVED = "an upgrade of Dagster moved this; see cc_pipeline/defs/internals.py"
SET = {
    "backfill_missing",
    "default_automation_condition_sensor",
    "failed_runs",
    "new_crawls",
    "history",
    "path_lists",
    "publication",
    "source_breaker",
    "watch_list",
    "weekly_checks",
    "weekly_maintenance",
}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n", "utf-8")
    made = open_instance_in(tmp_path)
    yield made
    made.dispose()


def of_the_ui(name: str):
    """The origin under which a UI on ``workspace.yaml`` knows a sensor or schedule."""
    target = LoadableTargetOrigin(module_name="cc_pipeline.definitions")
    location = ManagedGrpcPythonEnvCodeLocationOrigin(target, location_name=LOCATION)
    return RemoteRepositoryOrigin(location, "__repository__").get_instigator_origin(name)


def test_the_location_is_that_of_the_workspace_file() -> None:
    text = (Path(__file__).resolve().parents[2] / "workspace.yaml").read_text("utf-8")
    assert f"location_name: {LOCATION}\n" in text


def test_all_ship_off_and_one_command_turns_them_on_and_off(instance: dg.DagsterInstance) -> None:
    assert {one.name for one in list_automations()} == SET, "name new ones here, and in docs/dagster.md"
    assert not any(one.is_enabled for one in read_automation_statuses(instance))
    assert set(set_all_automations(instance, is_enabled=True)) == SET
    assert set_all_automations(instance, is_enabled=True) == []
    # a UI and a daemon look them up by their own origins
    for name in SET:
        origin = of_the_ui(name)
        state = instance.get_instigator_state(origin.get_id(), origin.get_selector().get_id())
        assert state is not None, f"get_selector: {_MOVED}"
        assert state.status is InstigatorStatus.RUNNING
    found = {one.name: one for one in read_automation_statuses(instance)}
    assert all(one.is_enabled and one.next is not None for one in found.values())
    assert found["backfill_missing"].next.minute in (0, 30)
    assert set(set_all_automations(instance, is_enabled=False)) == SET
    assert not any(one.is_enabled for one in read_automation_statuses(instance))


def test_what_the_last_tick_said_is_shown(instance: dg.DagsterInstance) -> None:
    run = instance.add_run(dg.DagsterRun("extract_domain", tags={SUMMARY_TAG: "starts 3 partitions"}))
    for name, at, more in (
        ("watch_list", 100.0, {"status": TickStatus.SKIPPED, "skip_reason": "nothing new"}),
        (
            "failed_runs",
            150.0,
            {"status": TickStatus.SKIPPED, "skip_reason": "Initiating failed_runs. Set cursor to x"},
        ),
        ("backfill_missing", 200.0, {"status": TickStatus.SUCCESS, "run_ids": [run.run_id]}),
    ):
        origin = of_the_ui(name)
        kind = "SCHEDULE" if name == "backfill_missing" else "SENSOR"
        instance.create_tick(
            TickData(
                instigator_origin_id=origin.get_id(),
                instigator_name=name,
                instigator_type=InstigatorType[kind],
                timestamp=at,
                selector_id=origin.get_selector().get_id(),
                **more,
            )
        )
    found = {one.name: one for one in read_automation_statuses(instance)}
    assert found["watch_list"].last_message == "nothing new", f"get_ticks: {_MOVED}"
    assert found["watch_list"].last is not None
    assert found["watch_list"].last.timestamp() == 100.0
    assert found["failed_runs"].last_message == "skipped", "what Dagster says to itself is no message"
    assert found["backfill_missing"].last_message == "1 run: starts 3 partitions"
    assert found["publication"].last is None


def test_a_cursor_survives_being_turned_off_and_on(instance: dg.DagsterInstance) -> None:
    set_all_automations(instance, is_enabled=True)
    origin = of_the_ui("new_crawls")
    state = instance.get_instigator_state(origin.get_id(), origin.get_selector().get_id())
    assert state is not None
    instance.update_instigator_state(state.with_data(state.instigator_data._replace(cursor="where it was")))
    set_all_automations(instance, is_enabled=False)
    set_all_automations(instance, is_enabled=True)
    state = instance.get_instigator_state(origin.get_id(), origin.get_selector().get_id())
    assert state is not None
    assert state.instigator_data.cursor == "where it was"
