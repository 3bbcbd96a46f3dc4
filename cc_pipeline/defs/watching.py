"""How runs are started, and how Dagster's monitoring learns that the process of one is gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from cc_pipeline.defs.instance import lives
from cc_pipeline.defs.internals import health


class WatchingRunLauncher(dg.DefaultRunLauncher):
    """Starts each run as a process of the code server, as Dagster's own launcher does, and tells the daemon's run
    monitoring whether that process lives: a killed host, or a killed server, ends no run of Dagster's own launcher.

    ``dagster.yaml`` names it (``run_launcher``).
    """

    #: Hosts whose code servers runs are given to.
    host_count = 1

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Mapping[str, Any]) -> WatchingRunLauncher:
        """The launcher that an empty configuration means."""
        return cls(inst_data)

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Whether the monitoring may ask."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> Any:
        """Whether a run that has started has a process: its own counts, not the server that started it. The daemon
        marks a run as failed, and tries it again, that surely has none."""
        return health(found=lives(self._instance, run, self.host_count))
