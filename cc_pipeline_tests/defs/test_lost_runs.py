"""Runs whose process nobody has any more are ended, and no others."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest
from cc_pipeline.defs.notes import write_notes
from cc_pipeline.defs.partitions_in_flight import ORPHAN_AGE
from cc_pipeline.defs.run_notes import note_worker
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._daemon.monitoring.run_monitoring import execute_run_monitoring_iteration

from cc_pipeline.defs import instance as instances
from cc_pipeline.defs import internals, run_launcher
from cc_pipeline.defs.instance import (
    DAGSTER_YAML,
    PROCESS_TAG,
    SERVER_TAG,
    end_runs_of_dead_processes,
    find_running_partitions,
    find_silent_servers,
    open_instance_in,
)
from cc_pipeline.processes import this_process
from cc_pipeline_tests.defs.graph import listed_run
from cc_pipeline_tests.world import closed_port


@dg.job
def nothing() -> None:
    """A job without a step."""


def test_the_tag_is_the_one_that_dagster_writes() -> None:
    assert import_module("dagster._core.storage.tags").GRPC_INFO_TAG == SERVER_TAG


def under_way(instance: dg.DagsterInstance, server: object, status: dg.DagsterRunStatus) -> str:
    tags = {} if server is None else {SERVER_TAG: json.dumps(server)}
    return instance.create_run_for_job(nothing, tags=tags, status=status).run_id


def at(url: str) -> dict[str, object]:
    return {"host": "127.0.0.1", "port": int(url.rsplit(":", 1)[1])}


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING])
def test_a_run_of_a_code_server_that_is_gone_is_ended(
    instance: dg.DagsterInstance, status: dg.DagsterRunStatus
) -> None:
    gone = [under_way(instance, server, status) for server in (at(closed_port()), {"socket": "/no/such/socket"})]
    assert sorted(end_runs_of_dead_processes(instance)) == sorted(gone)
    # a second look finds nothing to end
    assert end_runs_of_dead_processes(instance) == []


def test_what_cannot_be_told_is_left_alone(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internals, "_ANSWER_SECONDS", 1)
    with socket.socket() as busy:
        # takes connections and says nothing, as a server does that has too much to do
        busy.bind(("127.0.0.1", 0))
        busy.listen(0)
        port = busy.getsockname()[1]
        starting = under_way(instance, {"host": "127.0.0.1", "port": port}, dg.DagsterRunStatus.STARTING)
        others = [under_way(instance, server, dg.DagsterRunStatus.STARTED) for server in (None, {}, "what")]
        assert end_runs_of_dead_processes(instance) == []
        for run in (starting, *others):
            found = instance.get_run_by_id(run)
            assert found is not None
            assert not found.is_finished


def test_a_run_of_another_host_is_not_taken_for_dead(instance: dg.DagsterInstance) -> None:
    number, since, *machine = this_process().split("-")
    elsewhere = "-".join((number, "1", machine[0], "00000000"))

    def command(mark: str) -> str:
        return instance.add_run(listed_run(["CC-MAIN-2024-22|example.com"], {PROCESS_TAG: mark})).run_id

    theirs, gone = command(elsewhere), command("-".join((number, "1", *machine)))
    assert end_runs_of_dead_processes(instance) == [gone]
    assert find_running_partitions(instance) == {"CC-MAIN-2024-22|example.com": theirs}
    assert since != "1"


def test_a_host_that_is_out_of_reach_keeps_its_runs(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = ("one.internal", 4000), ("two.internal", 4000)

    def asked(server: dict[str, object]) -> bool:
        if server["host"] == one[0]:
            return True
        raise TimeoutError("a host that is off says nothing")

    monkeypatch.setattr(instances, "is_listening", asked)
    monkeypatch.setattr(instances, "is_executing", lambda *_: True)
    servers = [{"host": host, "port": port} for host, port in (one, two)]
    for server in servers:
        under_way(instance, server, dg.DagsterRunStatus.STARTED)
    assert find_silent_servers(instance) == {"two.internal:4000": 1}
    assert end_runs_of_dead_processes(instance) == []


def status_of(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRunStatus:
    found = instance.get_run_by_id(run_id)
    assert found is not None
    return found.status


def test_a_process_outlives_its_server_and_counts(instance: dg.DagsterInstance) -> None:
    gone, started = at(closed_port()), dg.DagsterRunStatus.STARTED
    noted = instance.add_run(listed_run(["CC-MAIN-2024-22|example.com"], {SERVER_TAG: json.dumps(gone)})).run_id
    note_worker(instance, noted)
    # before it notes itself it has said that it begins
    begun, ended = (under_way(instance, gone, started) for _ in range(2))
    told = import_module("dagster._core.events").EngineEventData.in_process
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    for run_id, pid in ((begun, os.getpid()), (ended, process.pid)):
        instance.report_engine_event("Started", job_name="nothing", run_id=run_id, engine_event_data=told(pid))
    assert end_runs_of_dead_processes(instance) == [ended]
    assert find_running_partitions(instance) == {"CC-MAIN-2024-22|example.com": noted}


#: Prints the mark of its process.
TELLS = "from cc_pipeline.processes import this_process; print(this_process())"


def created_long_ago(instance: dg.DagsterInstance, **tags: str) -> str:
    run = dg.DagsterRun("nothing", tags=tags)
    instance.run_storage.add_historical_run(run, datetime.now(UTC) - ORPHAN_AGE)
    return run.run_id


def test_what_nobody_will_start_is_cancelled_and_not_tried_again(instance: dg.DagsterInstance) -> None:
    nobodys = created_long_ago(instance)
    ours = created_long_ago(instance, **{PROCESS_TAG: this_process()})
    kept, left = (created_long_ago(instance, **{"dagster/backfill": name}) for name in ("open", "ended"))
    for name, status in (("open", BulkActionStatus.REQUESTED), ("ended", BulkActionStatus.COMPLETED_SUCCESS)):
        instance.add_backfill(
            PartitionBackfill(name, status, False, tags={}, backfill_timestamp=0.0, asset_backfill_data=None)
        )
    assert sorted(end_runs_of_dead_processes(instance)) == sorted([nobodys, left])
    assert {status_of(instance, one) for one in (nobodys, left)} == {dg.DagsterRunStatus.CANCELED}
    # the daemon goes on with those of a backfill, and a command with its own
    assert {status_of(instance, one) for one in (kept, ours)} == {dg.DagsterRunStatus.NOT_STARTED}


def test_a_run_that_the_daemon_took_out_of_the_queue_and_gave_to_nobody_is_ended(instance: dg.DagsterInstance) -> None:
    starting = dg.DagsterRunStatus.STARTING
    old, new = under_way(instance, None, starting), under_way(instance, None, starting)
    for run_id, ago in ((old, ORPHAN_AGE.total_seconds()), (new, 0.0)):
        event = dg.DagsterEvent(dg.DagsterEventType.RUN_STARTING.value, "nothing", message="taken out")
        instance.report_dagster_event(event, run_id, timestamp=datetime.now(UTC).timestamp() - ago)
    assert end_runs_of_dead_processes(instance) == [old]


def monitored(instance: dg.DagsterInstance) -> None:
    daemon = SimpleNamespace(instance=instance, create_request_context=lambda: None)
    assert {*execute_run_monitoring_iteration(daemon, logging.getLogger(__name__))} <= {None}


def test_the_monitoring_of_the_daemon_ends_runs_without_a_process_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dagster.yaml").write_text(DAGSTER_YAML, "utf-8")
    started, clock = dg.DagsterRunStatus.STARTED, [0.0]
    monkeypatch.setattr(run_launcher.time, "monotonic", lambda: clock[0])
    with open_instance_in(tmp_path) as instance, socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        here = {"host": "127.0.0.1", "port": server.getsockname()[1]}
        lost, lives = (under_way(instance, here, started) for _ in range(2))
        of_dev = under_way(instance, {"socket": "/no/such/socket"}, started)
        note_worker(instance, lives)
        gone = under_way(instance, at(closed_port()), started)
        for run_id in (lost, gone):
            of_a_process_that_ended(instance, run_id)
        # tried again at once or never, so not before the code server has come back, and the daemon knows it
        for at_second, listening, ended in (
            (0, False, {of_dev}),
            (100, True, {of_dev}),
            (120, False, {of_dev}),
            (200, True, {of_dev}),
            (229, True, {of_dev}),
            (230, True, {of_dev, lost}),
            (600, True, {of_dev, lost, gone}),
        ):
            clock[0] = at_second
            monkeypatch.setattr(run_launcher, "server_listens", lambda at, up=listening: up and at[1] == here["port"])
            monitored(instance)
            failed = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
            assert {run.run_id for run in failed} == ended
            assert {run.tags["dagster/will_retry"] for run in failed} == {"true"}
        assert status_of(instance, lives) is started


def of_a_process_that_ended(instance: dg.DagsterInstance, run_id: str) -> None:
    with subprocess.Popen([sys.executable, "-c", TELLS], stdout=subprocess.PIPE, text=True) as process:
        mark = process.communicate()[0].strip()
    write_notes(instance, {f"cc_pipeline/worker/{run_id}": mark})
