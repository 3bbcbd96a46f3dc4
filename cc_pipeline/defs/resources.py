"""The one resource of a home: its open workspace, with the subsets that a person may choose in the Launchpad."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import dagster as dg
from pydantic import Field, PrivateAttr

from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.instance import keep_log_open
from cc_pipeline.defs.partitions import ENGINE_TAG
from cc_pipeline.settings import Settings
from cc_pipeline.transport.rate_limiter import WAIT
from cc_pipeline.workspace.workspace import Workspace, open_workspace

#: Tags of runs that a schedule or a sensor started.
_AUTOMATION = frozenset({"dagster/schedule_name", "dagster/sensor_name"})


class HomeResource(dg.ConfigurableResource["HomeResource"]):
    """The source and the home, open for one run."""

    subsets: list[str] = Field(
        default=[], description="Subsets to extract, such as warc and robotstxt; empty: those of the home's settings."
    )
    _workspace: Workspace | None = PrivateAttr(default=None)

    @property
    def workspace(self) -> Workspace:
        """The open workspace, while a run or a tick has the resource."""
        assert self._workspace is not None
        return self._workspace


def make_resource(namespace: HomeNamespace) -> HomeResource:
    """Returns the resource of a home."""

    class OpenHome(HomeResource):
        @contextmanager
        def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[HomeResource]:
            run = context.run
            if context.instance is not None and namespace.is_only_home:
                keep_log_open(context.instance)
            tagged = {"engine": run.tags[ENGINE_TAG]} if run is not None and ENGINE_TAG in run.tags else {}
            chosen = {"subsets": tuple(self.subsets)} if self.subsets else {}
            settings = namespace.load_settings(**tagged, **chosen)
            with open_workspace(replace(settings, wait=limit_wait(settings, run))) as workspace:
                self._workspace = workspace
                yield self

    return OpenHome()


def limit_wait(settings: Settings, run: dg.DagsterRun | None) -> float | None:
    """Returns the seconds to wait for a source that refuses: none in a tick, and at most the default in runs that
    automation started, since automation comes back."""
    if run is None:
        return 0.0
    if settings.wait is not None and run.tags.keys() & _AUTOMATION:
        return min(WAIT, settings.wait)
    return settings.wait
