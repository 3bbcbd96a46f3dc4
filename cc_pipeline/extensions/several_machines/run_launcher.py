"""Distributes runs among several hosts: runs of partitions go to the host with the fewest runs, all others to the
first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from cc_pipeline.defs.instance import Server, read_server, server_listens
from cc_pipeline.defs.internals import start_run_on, unreachable_error
from cc_pipeline.defs.partitions import MACHINE_TAG
from cc_pipeline.defs.partitions_in_flight import UNFINISHED, find_extracted_assets
from cc_pipeline.defs.run_launcher import WatchingRunLauncher
from cc_pipeline.processes import this_machine

_CONFIG = {
    "hosts": dg.Field(
        [{"host": dg.StringSource, "port": dg.IntSource}],
        description="Code servers with the same definitions, each on a host with its own home. The first "
        "also harvests, publishes and exports.",
    )
}


class SpreadingRunLauncher(WatchingRunLauncher):
    """Starts each run at the code server of one of several hosts, as a process there.

    The tag of Dagster's own launcher has the host, so that a termination goes to the right host.
    """

    def __init__(self, hosts: Sequence[Server], inst_data: Any = None) -> None:
        super().__init__(inst_data)
        self.hosts = tuple(hosts)
        self.host_count = len(self.hosts)

    @classmethod
    def config_type(cls) -> Any:
        """The schema of ``run_launcher: config:`` in ``dagster.yaml``."""
        return _CONFIG

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Mapping[str, Any]) -> SpreadingRunLauncher:
        """The launcher of such a configuration."""
        return cls([(server["host"], server["port"]) for server in config_value["hosts"]], inst_data)

    def launch_run(self, context: Any) -> None:
        """Starts a run on the host with the fewest runs. Raises an error that requeues the run if no suitable host
        answers.
        """
        run: dg.DagsterRun = context.dagster_run
        instance: dg.DagsterInstance = self._instance
        servers = self._order_servers(instance, run)
        live_server = next((server for server in servers if server_listens(server)), None)
        if live_server is None:
            raise unreachable_error(
                f"no code server answers for this run: {', '.join(f'{host}:{port}' for host, port in servers)}. Start "
                "the code server of that host (dagster api grpc), or take the host out of run_launcher in dagster.yaml."
            )
        instance.add_run_tags(run.run_id, {MACHINE_TAG: this_machine()})
        # No other host is tried after this one, which may have started the run and answered too late.
        start_run_on(instance, run, *live_server)
        self._run_ids.add(run.run_id)

    def _keeper(self, run: dg.DagsterRun) -> Server | None:
        return self.hosts[0]

    def _order_servers(self, instance: dg.DagsterInstance, run: dg.DagsterRun) -> Sequence[Server]:
        """The servers that may take a run, the one with the fewest runs first."""
        if not find_extracted_assets(run):
            # Footers, the published file and exports are in one home.
            return self.hosts[:1]
        busy = Counter(
            read_server(dagster_run) for dagster_run in instance.get_runs(dg.RunsFilter(statuses=list(UNFINISHED)))
        )
        return sorted(self.hosts, key=lambda server: busy[server])
