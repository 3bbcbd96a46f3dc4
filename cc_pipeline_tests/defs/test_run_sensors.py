"""What is said of failed runs and of a source that refuses, and when a publication is asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from unittest.mock import ANY

import cc_pipeline.defs.automation.sensors as run_sensors
import dagster as dg
import pytest
from cc_pipeline.defs.automation.sensors import name_partitions

from cc_pipeline.defs.home_namespace import OWN_HOME, WORKSPACE
from cc_pipeline.defs.partitions import KIND_TAG, range_tags
from cc_pipeline.defs.resources import limit_wait
from cc_pipeline.locks import locked
from cc_pipeline.publish.publish import PublicationLag, find_publication_lag
from cc_pipeline.settings import load_settings
from cc_pipeline.transport.budget import Budget
from cc_pipeline.transport.circuit_breaker import RefusalPolicy
from cc_pipeline.transport.rates import SourceLimits
from cc_pipeline.transport.states import reset_breaker
from cc_pipeline_tests.defs.graph import execute_listed, listed_run, sensor
from cc_pipeline_tests.refusal_events import forbidden
from cc_pipeline_tests.world import NEW, Bucket, extract, harvest, publish, workspace_of

failed_runs = sensor("failed_runs")
publication = sensor("publication")
source_breaker = sensor("source_breaker")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, object]]:
    heard: list[Mapping[str, object]] = []
    monkeypatch.setattr(run_sensors, "post_event", lambda address, what: heard.append({"to": address} | dict(what)))
    return heard


def test_a_failed_run_is_told_with_its_partitions_and_reason(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance, told: list[Mapping[str, object]]
) -> None:
    workspace = workspace_of(bucket[0], tmp_path, webhook="http://127.0.0.1:9/hook")
    run = instance.add_run(listed_run([f"{NEW}|site-{n}.example" for n in range(12)], {KIND_TAG: "repair"}))
    failure = instance.report_run_failed(run, "two partitions failed")
    context = dg.build_run_status_sensor_context(
        sensor_name="failed_runs",
        dagster_event=failure,
        dagster_instance=instance,
        dagster_run=run,
        resources={WORKSPACE: workspace},
    ).for_run_failure()
    failed_runs(context)
    [one] = told
    assert one["to"] == "http://127.0.0.1:9/hook"
    assert one["event"] == "run failed"
    assert (one["job"], one["kind"]) == ("extract_targets", "repair")
    partitions = one["partitions"]
    assert isinstance(partitions, list)
    assert len(partitions) == 11
    assert partitions[-1] == "2 more"
    assert "two partitions failed" in str(one["reason"])


def test_the_failed_partitions_of_a_run_are_told_with_their_reasons(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance, told: list[Mapping[str, object]]
) -> None:
    workspace = workspace_of(bucket[0], tmp_path, webhook="http://127.0.0.1:9/hook")
    # nobody registered these targets, so each partition fails by itself
    keys = [f"{NEW}|nobody-{n}.example" for n in range(12)]
    failed = execute_listed(instance, workspace, keys)
    run = instance.get_run_by_id(failed.run_id)
    assert run is not None
    [failure_event] = [event for event in failed.all_events if event.event_type is dg.DagsterEventType.RUN_FAILURE]
    context = dg.build_run_status_sensor_context(
        sensor_name="failed_runs",
        dagster_event=failure_event,
        dagster_instance=instance,
        dagster_run=run,
        resources={WORKSPACE: workspace},
    ).for_run_failure()
    failed_runs(context)
    [one] = told
    assert str(one["reason"]).startswith("12 of 12 partitions failed")
    assert one["failed_partitions_count"] == 12
    named = one["failed_partitions"]
    assert isinstance(named, list)
    assert [row["partition"] for row in named] == keys[:10]
    assert all("of which this home has a partition key" in row["reason"] for row in named)


def test_partitions_are_named_however_the_run_has_them() -> None:
    def named(tags: Mapping[str, str]) -> list[str]:
        return name_partitions(dg.DagsterRun("extract_domain", tags=dict(tags)), OWN_HOME)

    assert named(range_tags("A|x", "B|y")) == ["A|x", "B|y"]
    assert named({"dagster/partition": "A|x"}) == ["A|x"]
    assert named({}) == []
    assert name_partitions(listed_run(["A|x", "B|y"]), OWN_HOME) == ["A|x", "B|y"]
    assert name_partitions(listed_run([]), OWN_HOME) == []
    assert name_partitions(dg.DagsterRun("extract_targets"), OWN_HOME) == []


@pytest.mark.parametrize(
    ("source", "host"),
    [
        ("https://bucket.example", "bucket.example"),
        ("https://bucket.example:8443/cc", "bucket.example:8443"),
        ("s3://bucket", "bucket.s3.us-east-1.amazonaws.com"),
    ],
)
def test_an_open_breaker_is_told_when_it_opens_and_when_it_closes(
    tmp_path: Path, instance: dg.DagsterInstance, told: list[Mapping[str, object]], source: str, host: str
) -> None:
    workspace = workspace_of(source, tmp_path)
    cursor: str | None = None

    def tick() -> str:
        nonlocal cursor
        answer = source_breaker(
            dg.build_sensor_context(instance=instance, cursor=cursor, resources={WORKSPACE: workspace})
        )
        assert isinstance(answer, dg.SensorResult)
        cursor = answer.cursor
        assert answer.skip_reason is not None
        return answer.skip_reason.skip_message or ""

    assert "as usual" in tick()
    budget = Budget(workspace.settings.budget_path, host, SourceLimits(10.0, 8), RefusalPolicy(probes=(60.0,)))
    try:
        budget.apply_event(forbidden(why="403"))
        assert f"{host} refuses requests (403): none is sent until " in tick()
        tick()
        assert [one["event"] for one in told] == ["circuit breaker open"], "told once"
        assert reset_breaker(workspace.settings.budget_path, host)
        assert "as usual" in tick()
        assert [one["event"] for one in told] == ["circuit breaker open", "circuit breaker closed"]
    finally:
        budget.close()


def test_what_automation_starts_outlasts_a_window_and_waits_no_longer(tmp_path: Path) -> None:
    def waits(of: Mapping[str, str] | None, **settings: str) -> float | None:
        given = load_settings({f"CC_PIPELINE_{name}": text for name, text in settings.items()}, home=str(tmp_path))
        return limit_wait(given, None if of is None else dg.DagsterRun(job_name="x", tags=dict(of)))

    sensor = {"dagster/sensor_name": "new_crawls"}
    assert waits(None) == waits(None, WAIT="inf") == 0
    assert waits(sensor) is None
    assert waits(sensor, WAIT="inf") == 370
    assert waits(sensor, WAIT="0.1") == 0.1
    assert waits({"dagster/backfill": "x"}) is None
    assert waits({}, WAIT="inf") == math.inf


def test_the_published_file_is_behind_until_it_shows_every_version(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = workspace_of(bucket[0], tmp_path)
    assert find_publication_lag(workspace) is None, "there is nothing to show"
    harvest(workspace)
    first = find_publication_lag(workspace)
    assert first is not None
    assert first.longer_than(10), "there is no file"
    publish(workspace)
    with monkeypatch.context() as patch:
        patch.setattr("cc_pipeline.publish.publish.connect_newest", None)  # no server that asks need open it
        assert find_publication_lag(workspace) is None
        extract(workspace, "example.org")
        second = find_publication_lag(workspace)
        assert second is not None
    for lost in ("", "[]", "{"):  # nor does the answer hang on what was kept in words
        (workspace.settings.cache_path / "published.json").write_text(lost)
        assert find_publication_lag(workspace) == replace(second, since=ANY)
    assert second.state != first.state
    assert not second.longer_than(10)
    publish(workspace)
    assert find_publication_lag(workspace) is None
    workspace.settings.published_path.write_bytes(b"no database")
    broken = find_publication_lag(workspace)
    assert broken is not None
    assert broken.longer_than(10)


class TestPublication:
    """Asked for when all ended, or when the file is old; once for each state of the tables."""

    @pytest.fixture
    def tick(self, bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch):
        workspace = workspace_of(bucket[0], tmp_path)

        def one(state: str | None, minutes: float | None = 1.0) -> dg.RunRequest | str:
            since = None if minutes is None else timedelta(minutes=minutes)
            found = None if state is None else PublicationLag(state, since)
            monkeypatch.setattr("cc_pipeline.publish.publish.find_publication_lag", lambda _: found)
            answer = publication(dg.build_sensor_context(instance=instance, resources={WORKSPACE: workspace}))
            return answer if isinstance(answer, dg.RunRequest) else answer.skip_message or ""

        return one

    def test_when_all_is_quiet_it_is_asked_for_at_once(self, tick) -> None:
        assert tick(None) == "cc.duckdb is up to date"
        request = tick("a")
        assert request.run_key == "a:0"

    def test_while_runs_go_on_only_when_the_file_is_old(self, tick, instance: dg.DagsterInstance) -> None:
        instance.add_run(listed_run(["A|x"]))
        assert (
            tick("a", 9) == "runs are in flight, and cc.duckdb is less than 10 minutes old (CC_PIPELINE_PUBLISH_EVERY)"
        )
        assert tick("a", 11).run_key == "a:0"
        assert tick("a", None).run_key == "a:0"

    def test_not_while_a_command_publishes_without_a_run(self, tick, tmp_path: Path) -> None:
        with locked(tmp_path / "publish.lock"):
            assert tick("a") == "another run is publishing cc.duckdb now"
        assert tick("a").run_key == "a:0"

    def test_one_at_a_time_and_what_fails_is_not_asked_for_for_ever(self, tick, instance: dg.DagsterInstance) -> None:
        for attempt in range(3):
            request = tick("a")
            assert request.run_key == f"a:{attempt}"
            run = instance.add_run(
                dg.DagsterRun("publish", tags=dict(request.tags), status=dg.DagsterRunStatus.STARTED)
            )
            assert tick("a") == "another run is publishing cc.duckdb now"
            instance.report_run_failed(run)
        assert "publishing cc.duckdb failed 3 times" in tick("a")
        assert tick("b").run_key == "b:0", "another state is another question"
