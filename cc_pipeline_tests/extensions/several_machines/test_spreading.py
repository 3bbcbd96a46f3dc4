"""Which host a queued run is given to."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import dagster as dg
import pytest
from dagster._core.errors import DagsterUserCodeUnreachableError

from cc_pipeline.defs.instance import MACHINE_TAG, SERVER_TAG, Server, check_host_count
from cc_pipeline.errors import UserInputError
from cc_pipeline.extensions.several_machines import run_launcher
from cc_pipeline.extensions.several_machines.run_launcher import SpreadingRunLauncher
from cc_pipeline.processes import this_machine

ONE, TWO = ("one.internal", 4000), ("two.internal", 4001)
KEY = {"dagster/partition": "CC-MAIN-2024-22|example.com"}


class Hosts:
    """An instance whose launcher starts nothing: ``up`` are the hosts that answer."""

    def __init__(self, instance: dg.DagsterInstance, launcher: SpreadingRunLauncher) -> None:
        self.instance, self._launcher, self.up = instance, launcher, {ONE, TWO}

    def given(self, job: str) -> Server:
        """Where a run of ``job`` goes; it goes on there."""
        run = dg.DagsterRun(job, tags=dict(KEY), status=dg.DagsterRunStatus.STARTED)
        self.instance.add_run(run)
        self._launcher.launch_run(SimpleNamespace(dagster_run=run))
        kept = self.instance.get_run_by_id(run.run_id)
        assert kept is not None
        assert kept.tags[MACHINE_TAG] == this_machine()
        found = run_launcher.read_server(kept)
        assert found is not None
        return found


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    config = {"hosts": [{"host": host, "port": port} for host, port in (ONE, TWO)]}
    launcher = SpreadingRunLauncher.from_config_value(None, config)
    with dg.DagsterInstance.ephemeral() as instance:
        launcher.register_instance(instance)
        made = Hosts(instance, launcher)

        def start_on(instance: dg.DagsterInstance, run: dg.DagsterRun, host: str, port: int) -> None:
            instance.add_run_tags(run.run_id, {SERVER_TAG: f'{{"host": "{host}", "port": {port}}}'})

        monkeypatch.setattr(run_launcher, "start_run_on", start_on)
        monkeypatch.setattr(run_launcher, "server_listens", lambda server: server in made.up)
        yield made


def test_partitions_go_to_whoever_has_the_fewest_runs(hosts: Hosts) -> None:
    assert [hosts.given(job) for job in 2 * ("extract_domain", "extract_targets")] == [ONE, TWO, ONE, TWO]


def test_what_lies_in_one_home_is_made_there(hosts: Hosts) -> None:
    assert {hosts.given(job) for job in ("harvest_crawl", "publish", "maintenance", "build_index")} == {ONE}
    assert hosts.given("extract_domain") == TWO


def test_a_host_that_does_not_answer_is_passed_over_and_none_is_an_error(hosts: Hosts) -> None:
    hosts.up = {ONE}
    assert {hosts.given("extract_domain") for _ in range(3)} == {ONE}
    hosts.up = {TWO}
    # after this error, and no other, Dagster puts the run back into the queue
    with pytest.raises(DagsterUserCodeUnreachableError, match=r"one\.internal:4000"):
        hosts.given("publish")
    assert hosts.given("extract_domain") == TWO


def test_a_host_that_was_not_told_of_the_others_refuses() -> None:
    launcher = SpreadingRunLauncher([ONE, TWO])
    instance = cast("dg.DagsterInstance", SimpleNamespace(run_launcher=launcher))
    with pytest.raises(UserInputError, match="CC_PIPELINE_RATE_SHARES=2"):
        check_host_count(instance, 1)
    # more are on their way, or fetch by commands alone
    for hosts in (2, 3):
        check_host_count(instance, hosts)
    with dg.DagsterInstance.ephemeral() as alone:
        check_host_count(alone, 1)
