"""The function that Dagster runs: it reads robots.txt captures into ``site_policies``."""

import dagster as dg

from cc_pipeline.defs.declared.jobs import PartitionsConfig
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.partition_runs import Yielded, partition_metadata, run_each
from cc_pipeline.defs.partitions import StepContext, listed_keys
from cc_pipeline.defs.recording import Described, PartitionRun, read_planned_keys
from cc_pipeline.extensions.policies.fill import fill_policies
from cc_pipeline.workspace.workspace import Workspace


def site_policies(context: dg.AssetExecutionContext, workspace: Workspace, placement: HomeNamespace) -> Yielded:
    """One row per robots.txt capture of the target's hosts in the crawl, with rules and signals. Runs on request."""
    run = PartitionRun(context, workspace, placement, read_planned_keys(context), ["site_policies"])
    yield from _fill_policies(context, workspace, run)


def read_policies_listed(
    context: dg.OpExecutionContext, workspace: Workspace, placement: HomeNamespace, config: PartitionsConfig
) -> Yielded:
    """The same for the partitions that the configuration names."""
    run = PartitionRun(
        context, workspace, placement, listed_keys(config.partitions), ["site_policies"], from_config=True
    )
    yield from _fill_policies(context, workspace, run)


def _fill_policies(context: StepContext, workspace: Workspace, run: PartitionRun) -> Yielded:
    def fill(key: str) -> dict[str, Described]:
        crawl, _, slug = key.partition("|")
        report = fill_policies(workspace, crawl, [slug])
        metadata = partition_metadata(report, slug, "site_policies")
        version = report.per_target[slug].get("version:site_policies")
        return {"site_policies": (metadata, None if version is None else str(version))}

    return run_each(context, run, fill)
