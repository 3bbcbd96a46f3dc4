"""The sensors on an instance that forgets: what each tick registers, starts, skips, and reports."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import dagster as dg
import pytest

import cc_pipeline.extraction.run as stages
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs import partitions, sensors
from cc_pipeline.defs.home_namespace import OWN_HOME
from cc_pipeline.defs.instance import prepare_instance
from cc_pipeline.defs.sensors import report_failed_run
from cc_pipeline.errors import PlaceFault
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline_tests.defs.graph import execute_listed, listed, materialize, settings_of
from cc_pipeline_tests.world import (
    ANNOUNCED,
    ARC,
    NEW,
    OLD,
    Bucket,
    announce,
    copy_of,
    harvest,
    workspace_of,
)

DECISIONS = {
    "new_crawls": sensors.find_new_crawls,
    "watch_list": sensors.register_watched,
    "backfill_missing": sensors.find_due_partitions,
    "publication": sensors.find_unpublished,
}


class Ticks:
    """One sensor ticked again and again, as the daemon does: requests are carried out, the cursor is kept."""

    def __init__(self, name: str, instance: dg.DagsterInstance, settings: Settings) -> None:
        self._decide, self._instance, self._settings = DECISIONS[name], instance, settings
        self.cursor: str | None = None

    def tick(self) -> dg.SensorResult | dg.SkipReason | dg.RunRequest:
        with open_workspace(self._settings) as workspace:
            context = dg.build_sensor_context(instance=self._instance, cursor=self.cursor)
            answer = self._decide(context, workspace, OWN_HOME)
        if isinstance(answer, dg.SensorResult):
            for request in answer.dynamic_partitions_requests or ():
                self._instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
            self.cursor = answer.cursor or self.cursor
        assert isinstance(answer, dg.SensorResult | dg.SkipReason | dg.RunRequest)
        return answer

    def requests(self) -> list[dg.RunRequest]:
        """The runs that the next tick starts."""
        answer = self.tick()
        if isinstance(answer, dg.RunRequest):
            return [answer]
        return list(answer.run_requests or ()) if isinstance(answer, dg.SensorResult) else []

    def reason(self) -> str:
        """Why the next tick starts nothing."""
        answer = self.tick()
        assert not isinstance(answer, dg.RunRequest)
        words = answer.skip_message if isinstance(answer, dg.SkipReason) else answer.skip_reason
        return str(words.skip_message if isinstance(words, dg.SkipReason) else words)


def ahead(monkeypatch: pytest.MonkeyPatch, **time: float) -> None:
    """Lets the next ticks be so long from now."""
    monkeypatch.setattr(sensors, "_now", lambda: datetime.now(UTC) + timedelta(**time))


@pytest.fixture
def settings(bucket: Bucket, tmp_path: Path) -> Settings:
    return settings_of(bucket[0], tmp_path / "home")


def test_new_crawls_are_registered_and_the_newest_is_harvested_once_a_day(
    settings: Settings, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = Ticks("new_crawls", instance, settings)
    [request] = ticks.requests()
    assert request.partition_key == NEW
    assert instance.get_dynamic_partitions("crawl") == [ARC, OLD, NEW], "oldest first, as they came"
    # Dagster does not run a key again, so a failed harvest is repeated on the next day
    assert [one.run_key for one in ticks.requests()] == [request.run_key]
    ahead(monkeypatch, days=1)
    assert [one.run_key for one in ticks.requests()] != [request.run_key]
    tags = {"dagster/partition": NEW}
    instance.add_run(dg.DagsterRun("harvest_crawl", status=dg.DagsterRunStatus.STARTED, tags=tags))
    assert ticks.reason() == "no new crawl"


def test_a_crawl_that_a_person_harvested_is_not_harvested_again(
    settings: Settings, instance: dg.DagsterInstance
) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization("row_groups", partition=NEW))
    assert Ticks("new_crawls", instance, settings).requests() == []
    assert NEW in instance.get_dynamic_partitions("crawl")


def test_a_crawl_that_is_only_announced_waits(bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    source = copy_of(bucket[0], tmp_path / "bucket")
    announce(source)
    ticks = Ticks("new_crawls", instance, settings_of(source, tmp_path / "home"))
    assert ticks.requests() == []
    assert ticks.reason() == f"no new crawl; {ANNOUNCED}: not published yet"


def test_targets_of_the_watch_list_become_partitions_up_to_the_cap(
    settings: Settings, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_instance(settings)
    settings.watch_list_path.write_text("example.com\nhost:www.example.org\nno such host!\n", "utf-8")
    ticks = Ticks("watch_list", instance, settings)
    assert "added 2 targets" in ticks.reason()
    assert instance.get_dynamic_partitions("target") == ["example.com", "host_www.example.org"]
    assert "line 3" in ticks.reason()
    instance.add_dynamic_partitions("crawl", [NEW])
    settings.watch_list_path.write_text("example.net\n", "utf-8")
    monkeypatch.setattr(partitions, "MAX_PARTITIONS", 2)
    assert "would be 3 partitions" in ticks.reason()


@pytest.fixture
def watched(settings: Settings, instance: dg.DagsterInstance) -> Ticks:
    """The sensor of the backfill, over two watched targets in a harvested crawl."""
    with open_workspace(settings) as workspace:
        harvest(workspace)
        workspace.register_targets([parse_target("example.com"), parse_target("example.org")])
    settings.watch_list_path.write_text("example.com\nexample.org\n", "utf-8")
    instance.add_dynamic_partitions("crawl", [OLD, NEW])
    instance.add_dynamic_partitions("target", ["example.com", "example.org"])
    instance.report_runless_asset_event(dg.AssetMaterialization("row_groups", partition=NEW))
    return Ticks("backfill_missing", instance, settings)


KEYS = [f"{NEW}|example.com", f"{NEW}|example.org"]


def test_what_is_missing_is_extracted_and_then_nothing(
    settings: Settings, instance: dg.DagsterInstance, watched: Ticks
) -> None:
    [request] = watched.requests()
    assert listed(request.run_config) == KEYS
    assert request.tags == {"cc_pipeline/kind": "watch", "dagster/priority": "-1"}
    # a run that goes on has them
    going = instance.add_run(
        dg.DagsterRun("extract_targets", run_config=dict(request.run_config), status=dg.DagsterRunStatus.STARTED)
    )
    assert watched.reason() == "2 due partitions are queued or running"
    instance.delete_run(going.run_id)
    # a run of a person made one of them
    assert materialize(instance, settings, KEYS[0]).success
    [request] = watched.requests()
    assert listed(request.run_config) == KEYS[1:]
    assert execute_listed(instance, settings, KEYS[1:]).success
    assert watched.reason() == "no partition has to be run"


def test_what_failed_is_tried_again_later_and_an_error_of_all_counts_for_none(
    settings: Settings, instance: dg.DagsterInstance, watched: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    locate = stages.locate_captures

    def fail(error: Exception) -> None:
        def failing(workspace, crawl, slugs, **given):  # type: ignore[no-untyped-def]
            if "example.com" in slugs:
                raise error
            return locate(workspace, crawl, slugs, **given)

        monkeypatch.setattr(stages, "locate_captures", failing)

    [request] = watched.requests()
    of_sensor = dict(request.tags) | {"dagster/sensor_name": "backfill_missing"}
    fail(PlaceFault("the disk is full", "Free some"))
    execute_listed(instance, settings, KEYS, of_sensor)
    [request] = watched.requests()
    assert listed(request.run_config) == KEYS, "nothing is known of any of them"
    fail(ValueError("a bad partition"))
    execute_listed(instance, settings, KEYS, of_sensor)
    assert watched.reason() == "1 partition failed, to be tried again later"
    ahead(monkeypatch, minutes=31)
    [request] = watched.requests()
    assert (listed(request.run_config), request.tags["cc_pipeline/kind"]) == (KEYS[:1], "repair")


def test_a_publication_is_started_when_the_file_is_behind_and_once_an_hour(
    settings: Settings, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = Ticks("publication", instance, settings)
    assert ticks.reason() == "cc.duckdb is up to date"
    harvest(workspace_of(settings.source, settings.home))
    [request] = ticks.requests()
    busy = instance.add_run(dg.DagsterRun("publish", status=dg.DagsterRunStatus.STARTED))
    assert ticks.reason() == "another run is publishing cc.duckdb now"
    instance.delete_run(busy.run_id)
    ahead(monkeypatch, hours=1)
    [again] = ticks.requests()
    assert again.run_key != request.run_key


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, object]]]:
    """What the webhook has received."""
    received: list[dict[str, object]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("CC_PIPELINE_WEBHOOK", f"http://127.0.0.1:{server.server_port}/")
    yield received
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_failed_run_is_reported_with_the_reasons_of_its_partitions(
    settings: Settings, instance: dg.DagsterInstance, posted: list[dict[str, object]]
) -> None:
    instance.add_dynamic_partitions("crawl", [NEW])
    done = execute_listed(instance, settings, [f"{NEW}|unknown.example"])
    [run] = instance.get_runs(dg.RunsFilter(run_ids=[done.run_id]))
    [failure] = [
        entry.dagster_event for entry in instance.all_logs(done.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
    ]
    context = dg.build_run_status_sensor_context(
        sensor_name="failed_runs", dagster_event=failure, dagster_instance=instance, dagster_run=run
    )
    report_failed_run(context, OWN_HOME)
    [event] = posted
    assert event["job"] == "extract_targets" and event["failed_partitions_count"] == 1
    assert "'unknown.example' is no partition" in str(event["failed_partitions"])
