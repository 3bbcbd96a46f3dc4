"""Purges a whole target: its keys in the instance, its line on the watch list, its rows and bytes."""

from collections.abc import Collection, Mapping

import dagster as dg

from cc_pipeline.automation import watch_list
from cc_pipeline.commoncrawl.slice_slugs import is_named_captures
from cc_pipeline.commoncrawl.target import WHERE_SLUG
from cc_pipeline.defs.dynamic_keys import UNFINISHED, delete_keys
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.slice import LOCATE, Slice
from cc_pipeline.lake.slices import list_slices
from cc_pipeline.maintenance.purge import PurgeReport, purge, remove_empty_targets
from cc_pipeline.maintenance.purge_plan import PurgePlan
from cc_pipeline.records.file_leases import list_active_leases
from cc_pipeline.workspace.workspace import Workspace


def purge_target(
    workspace: Workspace, instance: dg.DagsterInstance, plan: PurgePlan, *, now: bool = False
) -> PurgeReport:
    """Purges the target of ``plan``: first it is removed from watch list and keys, then its rows and bytes are deleted.
    What a run commits for it afterwards counts no more.

    Raises ``EnvironmentFault`` if ``now`` would delete files of runs that have not ended (nothing was changed then),
    and when the lake cannot be read or written.
    """
    if now:
        runs = instance.get_runs(dg.RunsFilter(statuses=list(UNFINISHED)))
        unfinished = [run.run_id for run in runs]
        if unfinished:
            raise EnvironmentFault(
                f"--now would delete files that these unfinished runs use: {', '.join(unfinished[:3])}"
                f"{' …' if len(unfinished) > 3 else ''}",
                "Wait for the end of these runs, or stop them in the UI; then purge again.",
            )
    _unregister(workspace, instance, plan)
    return purge(workspace, plan, now=now)


def remove_target(workspace: Workspace, instance: dg.DagsterInstance, plan: PurgePlan) -> None:
    """Removes a target without captures: its key and definition."""
    _unregister(workspace, instance, plan)
    remove_empty_targets(workspace, {plan.slug})


def forget_unfound_targets(
    workspace: Workspace, instance: dg.DagsterInstance, slices: Mapping[str, Collection[Slice]]
) -> list[str]:
    """Removes targets of which a run found nothing in ``slices``: their keys and definitions; returns them. Targets are
    kept if they are on the watch list, in a fetch that goes on, located elsewhere, or have captures that a person
    listed. Raises ``EnvironmentFault`` when the lake cannot be read or written."""
    keep = {target.slug for target in watch_list.read(workspace.settings.watch_list_path)}
    keep |= {slug for slug in slices if is_named_captures(slug) and WHERE_SLUG not in slug}
    run_slices = {slice_ for target_slices in slices.values() for slice_ in target_slices}
    located = list_slices(workspace.lake, LOCATE, {"target": sorted({slice_.target for slice_ in run_slices})})
    keep |= {slice_.partition.target for slice_ in located if slice_ not in run_slices}
    for crawl in {slice_.crawl for slice_ in run_slices}:
        for holding in list_active_leases(workspace.storage, crawl):
            keep |= {slug for slug in slices if holding.concerns([slug])}
    removed = [slug for slug in slices if slug not in keep]
    if removed:
        delete_keys(instance, targets=removed)
        remove_empty_targets(workspace, {*removed})
    return removed


def _unregister(workspace: Workspace, instance: dg.DagsterInstance, plan: PurgePlan) -> None:
    watch_list.remove(workspace.settings.watch_list_path, [plan.slug])
    delete_keys(instance, targets=[plan.slug])
