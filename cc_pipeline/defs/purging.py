"""Purges a whole target: its keys in the instance, its line on the watch list, its rows and bytes. Also the job that
does it from the UI."""

from collections.abc import Collection, Mapping

import dagster as dg
from pydantic import Field

from cc_pipeline.automation import watch_list
from cc_pipeline.automation.known_keys import find_target, find_unfinished_purges, read_defined_slugs
from cc_pipeline.commoncrawl.slice_slugs import is_named_captures
from cc_pipeline.commoncrawl.target import WHERE_SLUG
from cc_pipeline.defs.dynamic_keys import UNFINISHED, delete_keys
from cc_pipeline.defs.home_namespace import OWN_HOME, HomeNamespace
from cc_pipeline.defs.recording import logged_progress
from cc_pipeline.defs.watched import refuse_watched
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.slice import LOCATE, Slice
from cc_pipeline.lake.slices import list_slices
from cc_pipeline.lake.target_definitions import read_definitions
from cc_pipeline.maintenance.purge import PurgeReport, purge, remove_empty_targets
from cc_pipeline.maintenance.purge_plan import PurgePlan, plan_purge, require_plan_digest
from cc_pipeline.records.file_leases import list_active_leases
from cc_pipeline.workspace.workspace import Workspace


class PurgeConfig(dg.Config):
    """The target to purge, and how."""

    target: str = Field(description="The target: its definition, its partition key, or the name of a set.")
    dry_run: bool = Field(default=True, description="Only log the plan and its digest. False: delete.")
    plan: str = Field(default="", description="Digest that the dry run printed; required if dry_run is false.")
    now: bool = Field(default=False, description="Delete at once. Readers must open cc.duckdb again.")


def purge_target(
    workspace: Workspace,
    instance: dg.DagsterInstance,
    plan: PurgePlan,
    namespace: HomeNamespace = OWN_HOME,
    *,
    now: bool = False,
    own_run: str = "",
) -> PurgeReport:
    """Purges the target of ``plan``: first it is removed from watch list and keys, then its rows and bytes are deleted.
    What a run commits for it afterwards counts no more.

    ``own_run`` is the run that calls this, if any. Raises ``EnvironmentFault`` if ``now`` would delete files of runs
    that have not ended (nothing was changed then), and when the lake cannot be read or written.
    """
    if now:
        runs = instance.get_runs(dg.RunsFilter(statuses=list(UNFINISHED)))
        unfinished = [run.run_id for run in runs if namespace.owns(run) and run.run_id != own_run]
        if unfinished:
            raise EnvironmentFault(
                f"--now would delete files that these unfinished runs use: {', '.join(unfinished[:3])}"
                f"{' …' if len(unfinished) > 3 else ''}",
                "Wait for the end of these runs, or stop them in the UI; then purge again.",
            )
    _unregister(workspace, instance, plan, namespace)
    return purge(workspace, plan, now=now)


def remove_target(workspace: Workspace, instance: dg.DagsterInstance, plan: PurgePlan) -> None:
    """Removes a target without captures: its key and definition."""
    _unregister(workspace, instance, plan, OWN_HOME)
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


def _unregister(workspace: Workspace, instance: dg.DagsterInstance, plan: PurgePlan, namespace: HomeNamespace) -> None:
    settings = workspace.settings
    watch_list.remove(settings.watch_list_path, [plan.slug])
    # this updates the copy that counts while the list cannot be read
    watch_list.read_valid_targets(settings.watch_list_path, settings.watch_list_copy)
    delete_keys(instance, namespace, targets=[plan.slug])


def job(namespace: HomeNamespace) -> dg.JobDefinition:
    """Returns the job that purges a target."""

    @dg.op(
        name=namespace.qualify("purge_one_target"),
        pool=namespace.qualify("warehouse"),
        required_resource_keys={namespace.resource},
    )
    def purge_one_target(context: dg.OpExecutionContext, config: PurgeConfig) -> None:
        _purge_in_run(context, namespace, config)

    @dg.job(name=namespace.qualify("purge_target"))
    def purge_job() -> None:
        """Purges a target: its definition, rows and bytes. The first run only shows the plan and its digest (dry_run).
        For people, as cc-pipeline targets remove --purge."""
        purge_one_target()

    return purge_job


def _purge_in_run(context: dg.OpExecutionContext, namespace: HomeNamespace, config: PurgeConfig) -> None:
    """Reports what would be deleted, and the digest of that plan. With ``dry_run`` false and that digest it hides the
    target, and deletes its rows and bytes a week later. Raises ``UserInputError`` if the digest is not that of the
    current plan: so one call of the UI's interface, which any page might send, deletes nothing."""
    workspace = namespace.workspace(context)
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
