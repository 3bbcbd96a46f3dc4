"""Purges a whole target: its keys and records in the instance, its line on the watch list, its rows and bytes. Also the
job that does it from the UI."""

from collections.abc import Collection, Mapping, Sequence

import dagster as dg

from cc_pipeline.automation import watch_list
from cc_pipeline.automation.known_keys import find_target, find_unfinished_purges, read_defined_slugs
from cc_pipeline.commoncrawl.slice_slugs import is_named_captures
from cc_pipeline.commoncrawl.target import WHERE_SLUG
from cc_pipeline.defs.automation.watched import refuse_watched
from cc_pipeline.defs.declared.collected_parts import owns
from cc_pipeline.defs.declared.jobs import PurgeConfig
from cc_pipeline.defs.dynamic_keys import delete_keys, find_unfinished_runs
from cc_pipeline.defs.home_namespace import OWN_HOME, HomeNamespace
from cc_pipeline.defs.instance import end_runs_of_dead_processes
from cc_pipeline.defs.partition_runs import logged_progress
from cc_pipeline.defs.partitions_in_flight import UNFINISHED, find_in_flight
from cc_pipeline.defs.run_notes import ordered_keys
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.slice import LOCATE, Slice
from cc_pipeline.lake.slices import list_slices
from cc_pipeline.lake.target_definitions import read_definitions
from cc_pipeline.maintenance.purge import PurgeReport, purge, remove_empty_targets
from cc_pipeline.maintenance.purge_plan import PurgePlan, plan_purge, require_plan_digest
from cc_pipeline.records.file_leases import list_active_leases
from cc_pipeline.workspace.workspace import Workspace


def purge_target(
    workspace: Workspace,
    instance: dg.DagsterInstance,
    plan: PurgePlan,
    namespace: HomeNamespace = OWN_HOME,
    *,
    now: bool = False,
    own_run: str = "",
) -> PurgeReport:
    """Purges the target of ``plan``: first it is removed from watch list and keys, then its rows and bytes are deleted
    (``stages``).

    ``own_run`` is the run that calls this, if any. Raises ``EnvironmentFault`` if a run has the target, with ``now`` if
    any run has not ended (no row was deleted then), and when the lake cannot be read or written.
    """
    keys = ordered_keys(instance, namespace)
    _refuse_running(workspace, instance, namespace, plan.slug, keys, own_run, any_run=now)
    _unregister(workspace, instance, plan, namespace)
    # a schedule's tick may have started it in between; from now on none does
    try:
        _refuse_running(workspace, instance, namespace, plan.slug, keys, own_run, any_run=now)
    except EnvironmentFault as fault:
        problem = f"{plan.slug} was removed from the watch list and the partitions, but none of its rows was deleted"
        raise EnvironmentFault(f"{problem}: {fault.problem}", fault.advice) from fault
    return purge(workspace, plan, now=now)


def remove_target(workspace: Workspace, instance: dg.DagsterInstance, plan: PurgePlan) -> None:
    """Removes a target without captures: its key and definition. Raises ``EnvironmentFault`` if a run has the
    target."""
    _refuse_running(workspace, instance, OWN_HOME, plan.slug, ordered_keys(instance), "", any_run=False)
    _unregister(workspace, instance, plan, OWN_HOME)
    remove_empty_targets(workspace, {plan.slug})


def forget_unfound_targets(
    workspace: Workspace, instance: dg.DagsterInstance, slices: Mapping[str, Collection[Slice]]
) -> list[str]:
    """Removes targets of which a run found nothing in ``slices``: their keys and definitions; returns them. Targets are
    kept if they are on the watch list, in an unfinished run, located elsewhere, or have captures that a person listed.
    Raises ``EnvironmentFault`` when the lake cannot be read or written."""
    keep = {target.slug for target in watch_list.read(workspace.settings.watch_list_path)}
    keep |= {slug for slug in slices if is_named_captures(slug) and WHERE_SLUG not in slug}
    run_slices = {slice_ for target_slices in slices.values() for slice_ in target_slices}
    located = list_slices(workspace.lake, LOCATE, {"target": sorted({slice_.target for slice_ in run_slices})})
    keep |= {slice_.partition.target for slice_ in located if slice_ not in run_slices}
    keep |= {*find_unfinished_runs(instance, [*slices])}
    for crawl in {slice_.crawl for slice_ in run_slices}:
        for holding in list_active_leases(workspace.storage, crawl):
            keep |= {slug for slug in slices if holding.concerns([slug])}
    removed = [slug for slug in slices if slug not in keep]
    if removed:
        delete_keys(instance, domains=removed)
        remove_empty_targets(workspace, {*removed})
    return removed


def _unregister(workspace: Workspace, instance: dg.DagsterInstance, plan: PurgePlan, namespace: HomeNamespace) -> None:
    settings = workspace.settings
    watch_list.remove(settings.watch_list_path, [plan.slug])
    # this updates the copy that counts while the list cannot be read
    watch_list.read_valid_targets(settings.watch_list_path, settings.watch_list_copy)
    delete_keys(instance, namespace, domains=[plan.slug])


def _refuse_running(
    workspace: Workspace,
    instance: dg.DagsterInstance,
    namespace: HomeNamespace,
    slug: str,
    keys: tuple[Sequence[str], Sequence[str]],
    own_run: str,
    *,
    any_run: bool,
) -> None:
    end_runs_of_dead_processes(instance, namespace)
    runs = find_unfinished_runs(instance, [slug], keys, namespace).get(slug, [])
    reason = f"the target {slug} is in a run that has not ended"
    if any_run:
        every_run = instance.get_runs(dg.RunsFilter(statuses=list(UNFINISHED)))
        runs = [run.run_id for run in every_run if owns(namespace, run)]
        reason = "--now would delete files that these unfinished runs use"
    runs = [run for run in runs if run != own_run]
    if not runs and any(domain == slug for _, domain in find_in_flight(instance, namespace).pairs):
        raise EnvironmentFault(
            f"the target {slug} is in an unfinished backfill",
            "Wait for the end of the backfill, or cancel it in the UI; then purge again.",
        )
    if runs:
        raise EnvironmentFault(
            f"{reason}: {', '.join(runs[:3])}{' …' if len(runs) > 3 else ''}",
            "Wait for the end of these runs, or stop them in the UI; then purge again.",
        )


def purge_one_target(
    context: dg.OpExecutionContext, workspace: Workspace, namespace: HomeNamespace, config: PurgeConfig
) -> None:
    """Reports what would be deleted, and the digest of that plan. With ``dry_run`` false and that digest it hides the
    target, and deletes its rows and bytes a week later. Raises ``UserInputError`` if the digest is not that of the
    current plan: so one call of the UI's interface, which any page might send, deletes nothing."""
    unfinished = find_unfinished_purges(workspace)
    known_slugs = {*read_defined_slugs(workspace.lake), *unfinished, *namespace.target_keys(context.instance)}
    slug = find_target(config.target, known_slugs)
    refuse_watched(namespace, slug)
    plan = plan_purge(workspace, slug, read_definitions(workspace.lake, [slug]).get(slug, slug))
    row_metrics = {f"rows of {table}": count for table, count in plan.rows.items() if count}
    context.add_output_metadata({"plan": plan.digest, **row_metrics})
    for text in plan.sentences:
        context.log.info(text)
    if config.dry_run:
        instruction = f"launch this job with dry_run: false and plan: {plan.digest}"
        context.log.warning(f"nothing was changed: this was a dry run. To purge {slug}, {instruction}")
        return
    require_plan_digest([plan], config.plan)
    with logged_progress(context.log):
        report = purge_target(workspace, context.instance, plan, namespace, now=config.now, own_run=context.run_id)
    if report.leftovers is None:
        context.log.info(f"hidden: {slug}; its rows and bytes are deleted after {report.deleted_after:%Y-%m-%d}")
    else:
        context.log.info("\n".join((f"purged: {slug}; its rows and bytes are deleted", *report.leftovers.sentences)))
