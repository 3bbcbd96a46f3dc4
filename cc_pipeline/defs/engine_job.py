"""Extracts a command's partitions on an engine that needs a step of Dagster, as Dagster Pipes do: the job
``extract_targets``, in the command's process."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import dagster as dg

from cc_pipeline.defs.assets.extraction import listed_job
from cc_pipeline.defs.home_namespace import OWN_HOME
from cc_pipeline.defs.partitions import MAX_PARTITIONS_PER_RUN, group_by_crawl
from cc_pipeline.defs.recording import PartitionsFailed, read_failure
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.workspace.workspace import Workspace


def extract_by_job(
    instance: dg.DagsterInstance, workspace: Workspace, keys: Sequence[str], tables: Sequence[str]
) -> None:
    """Makes ``tables`` of partitions in runs of limited size. Raises ``PartitionsFailed`` after all runs, and
    ``EnvironmentFault`` at once for a run that was ended by another error."""
    errors: dict[str, Exception] = {}
    job = dg.Definitions(
        jobs=[listed_job(OWN_HOME)],
        resources={OWN_HOME.resource: SimpleNamespace(workspace=workspace)},
        executor=dg.in_process_executor,
    ).resolve_job_def("extract_targets")
    for start in range(0, len(keys), MAX_PARTITIONS_PER_RUN):
        config = {"partitions": group_by_crawl(keys[start : start + MAX_PARTITIONS_PER_RUN]), "tables": [*tables]}
        result = job.execute_in_process(
            instance=instance,
            # the daemon must not retry runs of a terminal
            tags={"dagster/max_retries": "0"},
            run_config={"ops": {"extract_listed": {"config": config}}},
            raise_on_error=False,
        )
        if not result.success:
            reason, failed = read_failure([event for event in result.all_events if event.is_step_failure])
            where = f"The log of the run {result.run_id} is in the UI."
            if not failed:
                raise EnvironmentFault(reason.partition("\n")[0], where)
            errors |= {key: EnvironmentFault(text.partition("\n")[0], where) for key, text in failed.items()}
    if errors:
        raise PartitionsFailed(errors, len(keys))
