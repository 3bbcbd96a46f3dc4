"""The one resource: the open workspace that all stages of a run work with."""

from collections.abc import Iterator
from dataclasses import replace

import dagster as dg

from cc_pipeline.addresses import holds_access
from cc_pipeline.defs.automation.flight import made_by
from cc_pipeline.defs.internals import share_engines
from cc_pipeline.defs.partitions import ENGINE_TAG
from cc_pipeline.defs.run_notes import note_tried, note_worker
from cc_pipeline.defs.spreading import refuse_alone
from cc_pipeline.errors import UserInputError
from cc_pipeline.settings import Settings, load_settings, split_places
from cc_pipeline.transport.refusals import WAIT_UNATTENDED
from cc_pipeline.workspace.workspace import Workspace, open_workspace

#: The key under which assets, checks, sensors and schedules ask for it.
WORKSPACE = "workspace"

#: Tags of runs that a schedule or a sensor started.
_AUTOMATION = frozenset({"dagster/schedule_name", "dagster/sensor_name"})
_CONFIG = {
    "source": dg.Field(
        str,
        default_value="",
        description="Root of a Common Crawl bucket: folder, https:// or s3://; several with a comma and a space.",
    ),
    "home": dg.Field(str, default_value="", description="Folder of all local state."),
    "engine": dg.Field(
        str, default_value="", description="Where records are fetched and pages parsed: local or spark."
    ),
}


@dg.resource(config_schema=_CONFIG, description="The source and the home, open for one run.")
def workspace_of_settings(context: dg.InitResourceContext) -> Iterator[Workspace]:
    """The workspace of a run (or a tick) that the UI's processes start, closed after it.

    Empty fields, and all other settings, are read from ``CC_PIPELINE_*`` variables; an empty engine from the run's tag
    ``cc_pipeline/engine`` first, which a backfill can have too. The command line opens its own
    workspace instead and lends it to its runs (``launch.Launcher``). Raises ``UserInputError`` for settings that
    cannot be used, for a source with credentials in it, and where more hosts share the instance than the settings say.
    """
    given, run = context.resource_config, context.run
    if run is not None:
        share_engines()
    if run is not None and context.instance is not None:
        note_worker(context.instance, run.run_id)
        if made_by(run):
            # settings that cannot be used are no partition's fault
            note_tried(context.instance, run.run_id, ())
    if any(holds_access(place) for place in split_places(given["source"])):
        # Dagster stores the configuration of each run, so that a secret in it would stay
        raise UserInputError(
            "the run's configuration has credentials in its source; take them out, and set "
            "CC_PIPELINE_SOURCE_USER and CC_PIPELINE_SOURCE_PASSWORD for the UI, or name the host in ~/.netrc"
        )
    settings = load_settings(
        source=given["source"] or None,
        home=given["home"] or None,
        engine=given["engine"] or (run.tags.get(ENGINE_TAG) if run is not None else None),
    )
    refuse_alone(context.instance, settings.hosts)
    settings = replace(settings, wait=patience(settings, run))
    with open_workspace(settings) as workspace:
        yield workspace


def patience(settings: Settings, run: dg.DagsterRun | None) -> float | None:
    """Seconds that a source that refuses is waited for: not in a tick, and not for long in what automation started,
    which comes back."""
    if run is None:
        return 0.0
    if run.tags.keys() & _AUTOMATION:
        return min(WAIT_UNATTENDED, WAIT_UNATTENDED if settings.wait is None else settings.wait)
    return settings.wait


@dg.definitions
def resources() -> dg.Definitions:
    """Resources and the executor: one process a run, parallel work inside the stages."""
    return dg.Definitions(resources={WORKSPACE: workspace_of_settings}, executor=dg.in_process_executor)
