"""Purging a target as a whole: its keys and records in the instance, its line on the watch list, its rows and bytes.

Belongs here: the order in which instance, watch list and lake forget a target. Not here: how the lake does (stages).
"""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from cc_pipeline.defs.flight import UNFINISHED, flight
from cc_pipeline.defs.instance import end_runs_of_dead_processes
from cc_pipeline.defs.keys import delete_keys, ordered_keys, unfinished_runs_of
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.stages import watch_list
from cc_pipeline.stages.keeping.purge import PurgeReport, purge, refuse_fetching, remove_whole
from cc_pipeline.stages.keeping.purge_plan import PurgePlan
from cc_pipeline.stages.workspace import Workspace


def purge_target(
    workspace: Workspace, instance: dg.DagsterInstance, plan: PurgePlan, *, now: bool = False, own_run: str = ""
) -> PurgeReport:
    """Purges what ``plan`` says: nobody asks for the target any more, then its rows and bytes go (``stages``).

    ``own_run`` is the run that this is called in, if any. Raises ``EnvironmentFault`` where a run has the target, with
    ``now`` where any run has not ended (nothing was changed then), and when the lake cannot be read or written.
    """
    keys = ordered_keys(instance)
    _refuse_running(instance, plan.slug, keys, own_run, every=now)
    refuse_fetching(workspace, plan)
    _forget(workspace, instance, plan)
    # a schedule's tick may have asked for it in between; from now on none does
    _refuse_running(instance, plan.slug, keys, own_run, every=now)
    return purge(workspace, plan, now=now)


def remove_target(workspace: Workspace, instance: dg.DagsterInstance, plan: PurgePlan) -> None:
    """Takes away a target that found nothing: key, definition, empty slices. Raises ``EnvironmentFault`` where a run
    has the target."""
    _refuse_running(instance, plan.slug, ordered_keys(instance), "", every=False)
    refuse_fetching(workspace, plan)
    _forget(workspace, instance, plan)
    remove_whole(workspace, plan)


def _forget(workspace: Workspace, instance: dg.DagsterInstance, plan: PurgePlan) -> None:
    settings = workspace.settings
    watch_list.remove(settings.watch_list_path, [plan.slug])
    # what counts while the list cannot be read
    watch_list.read_what_is_right(settings.watch_list_path, settings.watch_list_copy)
    delete_keys(instance, domains=[plan.slug])


def _refuse_running(
    instance: dg.DagsterInstance,
    slug: str,
    keys: tuple[Sequence[str], Sequence[str]],
    own_run: str,
    *,
    every: bool,
) -> None:
    end_runs_of_dead_processes(instance)
    runs = unfinished_runs_of(instance, [slug], keys).get(slug, [])
    why = f"the target {slug} is in a run that has not ended"
    if every:
        runs = [run.run_id for run in instance.get_runs(dg.RunsFilter(statuses=list(UNFINISHED)))]
        why = "deleting now takes files from runs that have not ended"
    runs = [run for run in runs if run != own_run]
    if not runs and any(domain == slug for _, domain in flight(instance).pairs):
        raise EnvironmentFault(
            f"a backfill that has not ended is to come to the target {slug}",
            "Wait for its end, or cancel it in the UI; then run this again.",
        )
    if runs:
        raise EnvironmentFault(
            f"{why}: {', '.join(runs[:3])}{' …' if len(runs) > 3 else ''}",
            "Wait for the end, or stop it in the UI; then run this again.",
        )
