"""Starts runs, and tells Dagster's monitoring when the process of a run is dead."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import dagster as dg

from cc_pipeline.defs.instance import Server, may_be_alive, read_server, server_listens
from cc_pipeline.defs.internals import make_health_answer

#: Seconds that the code server has to be reachable before a lost run is reported. Dagster retries a failed run at once
#: or never, and a daemon that was started before the code server notices the server within ten seconds.
_MIN_SERVER_SECONDS: Final = 30.0
#: Seconds after which a lost run is reported though its code server has not come back.
_MAX_LOST_SECONDS: Final = 600.0


class WatchingRunLauncher(dg.DefaultRunLauncher):
    """Starts each run as a process of the code server, as Dagster's own launcher does, and tells the daemon's run
    monitoring whether that process lives. With Dagster's own launcher a killed host or server ends no run.

    ``dagster.yaml`` names it (``run_launcher``).
    """

    def __init__(self, inst_data: Any = None) -> None:
        super().__init__(inst_data)
        #: Since when a run is known to be lost, and a server to be reachable.
        self._since: dict[str | Server, float] = {}

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Mapping[str, Any]) -> WatchingRunLauncher:
        """Returns the launcher of an empty configuration."""
        return cls(inst_data)

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Whether the monitoring may ask."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> Any:
        """Returns whether a started run has a process: its own counts, not the server that started it. The daemon marks
        a run without a process as failed, and retries it."""
        is_alive = may_be_alive(self._instance, run)
        is_lost = not is_alive and self._can_be_tried_again(run)
        if is_alive or is_lost:
            self._since.pop(run.run_id, None)
        return make_health_answer(is_alive=not is_lost)

    def _can_be_tried_again(self, run: dg.DagsterRun) -> bool:
        server, now = read_server(run), time.monotonic()
        if server is None:
            return True  # a server of `dagster dev`, which starts its code servers first
        lost = self._since.setdefault(run.run_id, now)
        if not server_listens(server):
            self._since.pop(server, None)
            return now - lost >= _MAX_LOST_SECONDS
        return now - self._since.setdefault(server, now) >= _MIN_SERVER_SECONDS
