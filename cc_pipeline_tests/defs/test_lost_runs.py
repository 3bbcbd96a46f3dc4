"""Runs whose process nobody has any more are ended, and no others."""

from __future__ import annotations

import json
import socket
from importlib import import_module

import dagster as dg
import pytest

from cc_pipeline.defs import instance as instances
from cc_pipeline.defs.instance import (
    MACHINE_TAG,
    PROCESS_TAG,
    SERVER_TAG,
    end_runs_of_dead_processes,
    partitions_under_way,
    silent_servers,
)
from cc_pipeline.processes import this_machine, this_process
from cc_pipeline_tests.defs.graph import keys_tags
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


def test_what_cannot_be_told_is_left_alone(instance: dg.DagsterInstance) -> None:
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
    key = keys_tags(["CC-MAIN-2024-22|example.com"])

    def command(mark: str) -> str:
        tags = {**key, PROCESS_TAG: mark}
        run = dg.DagsterRun("extract_domain", tags=tags, status=dg.DagsterRunStatus.STARTED)
        return instance.add_run(run).run_id

    theirs, gone = command(elsewhere), command("-".join((number, "1", *machine)))
    of_before = command(f"{number}-1")
    assert sorted(end_runs_of_dead_processes(instance, 2)) == sorted([gone, of_before])
    assert partitions_under_way(instance, 2) == {"CC-MAIN-2024-22|example.com": theirs}
    assert since != "1"


def test_an_address_of_loopback_is_that_of_its_own_machine(instance: dg.DagsterInstance) -> None:
    server = at(closed_port())
    theirs = under_way(instance, server, dg.DagsterRunStatus.STARTED)
    here = under_way(instance, server, dg.DagsterRunStatus.STARTED)
    instance.add_run_tags(theirs, {MACHINE_TAG: "1-00000000"})
    instance.add_run_tags(here, {MACHINE_TAG: this_machine()})
    assert end_runs_of_dead_processes(instance, 2) == [here]
    # nobody else can have made it where there is one host
    assert end_runs_of_dead_processes(instance, 1) == [theirs]


class Spreads:
    """A launcher that gives runs to these hosts."""

    def __init__(self, *hosts: tuple[str, int]) -> None:
        self.hosts = hosts


def test_a_host_that_is_out_of_reach_keeps_its_runs_until_it_is_taken_out(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = ("one.internal", 4000), ("two.internal", 4000)

    def asked(server: dict[str, object]) -> bool:
        if server["host"] == one[0]:
            return True
        raise TimeoutError("a host that is off says nothing")

    monkeypatch.setattr(instances, "answers", asked)
    monkeypatch.setattr(instances, "executes", lambda *_: True)
    servers = [{"host": host, "port": port} for host, port in (one, two)]
    kept, gone = (under_way(instance, server, dg.DagsterRunStatus.STARTED) for server in servers)
    assert silent_servers(instance) == {"two.internal:4000": 1}
    for hosts in ((), (one, two)):
        monkeypatch.setattr(instances, "launcher_of", lambda _, hosts=hosts: Spreads(*hosts))
        assert end_runs_of_dead_processes(instance, 2) == []
    # a host that answers ends its runs itself, though it is taken out
    monkeypatch.setattr(instances, "launcher_of", lambda _: Spreads(("three.internal", 4000)))
    assert end_runs_of_dead_processes(instance, 2) == [gone]
    found = instance.get_run_by_id(kept)
    assert found is not None
    assert found.status is dg.DagsterRunStatus.STARTED
    assert silent_servers(instance) == {}
