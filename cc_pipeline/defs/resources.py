"""The one resource: the open workspace of all stages of a run."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg

from cc_pipeline.addresses import holds_access
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.open_sqlite_files import keep_open
from cc_pipeline.defs.partitions import ENGINE_TAG
from cc_pipeline.defs.partitions_in_flight import find_extracted_assets
from cc_pipeline.defs.run_notes import note_tried, note_worker
from cc_pipeline.errors import UserInputError
from cc_pipeline.settings import Settings
from cc_pipeline.transport.rate_limiter import WAIT
from cc_pipeline.workspace.workspace import Workspace, open_workspace

#: Tags of runs that a schedule or a sensor started.
_AUTOMATION = frozenset({"dagster/schedule_name", "dagster/sensor_name"})


def workspace_of_run(context: dg.InitResourceContext, namespace: HomeNamespace) -> Iterator[Workspace]:
    """Yields the workspace of a run (or a tick) that the UI's processes start, and closes it afterwards.

    Empty fields, and all other settings, are those of the home, else of ``CC_PIPELINE_*`` variables. An empty engine is
    that of the run's tag ``cc_pipeline/engine``, which a backfill can have too. The command line opens its own
    workspace instead and passes it to its runs (``launch.Launcher``). Raises ``UserInputError`` for invalid settings,
    and for a source with credentials in it.
    """
    run_config, run = context.resource_config, context.run
    # in other code locations each step may be a process of its own, and Dagster's files are not ours
    if run is not None and namespace.is_only_home and context.instance is not None:
        keep_open(Path(context.instance.root_directory))
        note_worker(context.instance, run.run_id)
        if find_extracted_assets(run):
            # invalid settings are not the fault of a partition
            note_tried(context.instance, run.run_id, ())
    if holds_access(run_config["source"]):
        # Dagster stores the configuration of each run, so a secret would stay in it
        raise UserInputError(
            "the run's configuration has credentials in its source, and Dagster would store them. Remove the "
            "credentials, and set CC_PIPELINE_SOURCE_USER and CC_PIPELINE_SOURCE_PASSWORD for the UI, or name the host "
            "in ~/.netrc"
        )
    overrides = run_config | {"engine": run_config["engine"] or (run.tags.get(ENGINE_TAG) if run is not None else None)}
    settings = namespace.load_settings(**{name: value for name, value in overrides.items() if value})
    settings = replace(settings, wait=limit_wait(settings, run))
    with open_workspace(settings) as workspace:
        yield workspace


def limit_wait(settings: Settings, run: dg.DagsterRun | None) -> float | None:
    """Returns the seconds to wait for a source that refuses: none in a tick, and at most the default in runs that
    automation started, since automation comes back."""
    if run is None:
        return 0.0
    if settings.wait is not None and run.tags.keys() & _AUTOMATION:
        return min(WAIT, settings.wait)
    return settings.wait
