"""An hour of ticks while the source is down: skips with reasons. Then it is back, and nothing is done twice."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

import cc_pipeline.defs.automation.schedules as schedules
import cc_pipeline.defs.automation.sensors as sensors
from cc_pipeline.defs.checks.check_runs import left_failed_result
from cc_pipeline.defs.home_namespace import WORKSPACE
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.defs.graph import EXTRACT, began, execute, execute_listed, listed, schedule, sensor
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.world import NEW, OLD, Bucket, harvest, workspace_of

publication = sensor("publication")
source_breaker = sensor("source_breaker")

new_crawls = sensor("new_crawls")
path_lists = sensor("path_lists")
watch_list = sensor("watch_list")

backfill_missing = schedule("backfill_missing")

SITES = ["example.com", "example.org", "no-such.example"]


#: Sensors that are due every minute tick this seldom, so that hours take seconds.
_STEP = timedelta(minutes=10)


class Daemon:
    """What the daemon does with the hands-off set, at a clock of the test's own: ticks, and the runs they ask for."""

    def __init__(self, instance: dg.DagsterInstance, source: str, home: Path) -> None:
        self.instance, self._source, self._home = instance, source, home
        self.now = datetime.now(UTC).replace(minute=20, second=0, microsecond=0)
        self.said: dict[str, list[str]] = {}
        self.asked: Counter[str] = Counter()
        self._cursors: dict[str, str | None] = {}
        self._sensors = {
            one.name: (one, timedelta(seconds=one.minimum_interval_seconds or 30))
            for one in (new_crawls, path_lists, watch_list, source_breaker, publication)
        }
        self._due = dict.fromkeys(self._sensors, self.now)
        self._keys: set[str] = set()

    @property
    def workspace(self) -> Workspace:
        return workspace_of(self._source, self._home)

    def go_on(self, time: timedelta) -> None:
        """Ticks until so much time has passed: sensors when they are due, the schedule every half hour."""
        until = self.now + time
        while self.now < until:
            for name in self._sensors:
                if self._due[name] <= self.now:
                    self._due[name] = self.now + self._sensors[name][1]
                    self._sensor(name)
            if self.now.minute % 30 == 0:
                self._schedule()
            self.now += _STEP

    def _sensor(self, name: str) -> None:
        context = dg.build_sensor_context(
            instance=self.instance, cursor=self._cursors.get(name), resources={WORKSPACE: self.workspace}
        )
        answer = self._sensors[name][0](context)
        if isinstance(answer, dg.SensorResult):
            self._cursors[name] = answer.cursor or self._cursors.get(name)
            for request in answer.dynamic_partitions_requests or ():
                assert isinstance(request, dg.AddDynamicPartitionsRequest)
                self.instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
            if answer.skip_reason is not None:
                self.said.setdefault(name, []).append(answer.skip_reason.skip_message or "")
            job = {"new_crawls": "harvest_crawl", "path_lists": "harvest_crawl"}.get(name, "")
            self._run(name, job, list(answer.run_requests or ()))
        elif isinstance(answer, dg.SkipReason):
            self.said.setdefault(name, []).append(answer.skip_message or "")
        else:
            assert isinstance(answer, dg.RunRequest)
            self._run(name, "publish", [answer])

    def _schedule(self) -> None:
        with dg.build_schedule_context(
            scheduled_execution_time=self.now, resources={WORKSPACE: self.workspace}
        ) as context:
            # Dagster takes only instances on disk here, which cost a second each to make
            context._instance, context._instance_ref = self.instance, object()
            answer = backfill_missing(context)
        if isinstance(answer, dg.SkipReason):
            self.said.setdefault("backfill_missing", []).append(answer.skip_message or "")
        else:
            assert isinstance(answer, list)
            self._run("backfill_missing", EXTRACT, answer)

    def _run(self, name: str, job: str, requests: list[dg.RunRequest]) -> None:
        for request in requests:
            # a run key that was used is not run again
            assert f"{name}:{request.run_key}" not in self._keys
            self._keys.add(f"{name}:{request.run_key}")
            keys = listed(request.run_config) if job == EXTRACT else []
            self.asked.update(keys or [f"{job}:{request.partition_key or ''}"])
            tags = dict(request.tags) | {"dagster/sensor_name": name}
            if keys:
                execute_listed(self.instance, self.workspace, keys, tags)
            else:
                execute(self.instance, self.workspace, job, key=request.partition_key, tags=tags)


@pytest.mark.process
def test_an_hour_without_the_source_is_an_hour_of_reasons(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the source lies behind a port that is closed for an hour; waits between tries would be real ones
    monkeypatch.setattr(RetryPolicy, "next_wait", lambda *_: None)
    home = tmp_path / "home"
    with FaultServer(bucket[0]) as server:
        daemon = Daemon(instance, server.url, home)
        for module in (schedules, sensors):
            monkeypatch.setattr(module, "_now", lambda: daemon.now)
        harvest(daemon.workspace, OLD)
        (home / "domains.txt").write_text("example.com\n", "utf-8")
        daemon.go_on(timedelta(minutes=30))
        assert daemon.asked == Counter({f"harvest_crawl:{NEW}": 1, f"{NEW}|example.com": 1, "publish:": 1})
        port = server.port

    daemon.said.clear()
    (home / "domains.txt").write_text("".join(f"{site}\n" for site in SITES), "utf-8")
    before = daemon.asked.copy()
    daemon.go_on(timedelta(hours=1))
    # what the watch list means is written down and published; nothing else is asked for
    assert set(daemon.asked - before) <= {"publish:"}
    assert instance.get_runs_count(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE])) == 0
    assert len(daemon.said["backfill_missing"]) == 2
    for said in daemon.said["backfill_missing"]:
        assert "does not answer" in said
        assert "2 partitions wait for the source" in said
    assert all(said for told in daemon.said.values() for said in told), "each skip has its reason"

    daemon.said.clear()
    with FaultServer(bucket[0], port=port):
        daemon.go_on(timedelta(hours=5))
    new = daemon.asked - before
    assert {key: new[key] for key in (f"{NEW}|example.org", f"{NEW}|no-such.example")} == dict.fromkeys(
        (f"{NEW}|example.org", f"{NEW}|no-such.example"), 1
    )
    assert f"{NEW}|example.com" not in new, "nothing is done twice"
    assert f"harvest_crawl:{NEW}" not in new
    assert daemon.said["backfill_missing"][-1] == "no partition has to be run"
    assert daemon.said["publication"][-1] == "cc.duckdb is up to date"
    pages = daemon.workspace.lake.read("page_metadata", columns=["domain"])["domain"].to_pylist()
    assert Counter(pages) == {
        site: len(bucket[1].captures_of(NEW, subset="warc", domain=site)) for site in SITES if site in pages
    }
    shutil.rmtree(home)


def test_what_was_left_failed_is_a_standing_check(instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions("crawl", [NEW])
    instance.add_dynamic_partitions("target", SITES)

    assert left_failed_result(instance).passed
    for times in range(4):
        instance.report_run_failed(began(instance, {"dagster/partition": f"{NEW}|{SITES[0]}"}))
        found = left_failed_result(instance)
        assert not found.passed
        assert found.severity is (dg.AssetCheckSeverity.WARN if times < 3 else dg.AssetCheckSeverity.ERROR)
    instance.report_runless_asset_event(dg.AssetMaterialization("page_metadata", partition=f"{NEW}|{SITES[0]}"))
    assert left_failed_result(instance).passed
