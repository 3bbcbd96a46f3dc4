"""From the list of crawls to the row-group catalog."""

from collections.abc import Callable, Mapping

import dagster as dg

from cc_pipeline.defs.checks.check_runs import check_made_partitions
from cc_pipeline.defs.declared.assets import BuildConfig, FootersConfig
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.metadata import crawl_links, row_counts, stage_metadata, to_metadata
from cc_pipeline.defs.partition_runs import Yielded, logged_progress
from cc_pipeline.defs.recording import Described, PartitionRun, read_job_partition, read_planned_keys
from cc_pipeline.harvesting.build_index import build_index
from cc_pipeline.harvesting.catalog import read_catalog_table
from cc_pipeline.harvesting.crawl_index import (
    commit_manifest,
    commit_row_groups,
    coverage_metrics,
    harvest_footers,
    refused_gaps,
    repair_statistics,
)
from cc_pipeline.harvesting.crawls import commit_crawls
from cc_pipeline.index.gaps import index_incomplete
from cc_pipeline.lake.content_digests import compute_input_digest
from cc_pipeline.lake.slice import StageReport
from cc_pipeline.workspace.workspace import Workspace


def index_archives(
    context: dg.OpExecutionContext, workspace: Workspace, namespace: HomeNamespace, config: BuildConfig
) -> Yielded:
    """Records ``built_index``: a Parquet file for each archive file. A stopped build goes on where it stopped."""

    def build(crawl: str) -> dict[str, Described]:
        report = build_index(workspace, crawl, agreed=config.yes, max_files=config.max_files or None)
        crawl_metadata = to_metadata(report.per_target[crawl]) | crawl_links(workspace, crawl)
        return {"built_index": (row_counts(report.rows) | stage_metadata(report) | crawl_metadata, None)}

    yield from _run_for_crawl(context, workspace, namespace, "built_index", build)


def _run_for_crawl(
    context: dg.OpExecutionContext,
    workspace: Workspace,
    namespace: HomeNamespace,
    asset: str,
    make: Callable[[str], Mapping[str, Described]],
) -> Yielded:
    """Runs a job of one op for its crawl: records ``asset``, or why it was not made, and evaluates its checks."""
    crawl = read_job_partition(context)
    run = PartitionRun(context, workspace, namespace, [crawl], [asset])
    with logged_progress(context.log):
        try:
            metadata_by_asset = make(crawl)
        except Exception as error:
            run.record_failure(crawl, error)
            raise
        yield from run.record_done(crawl, metadata_by_asset)
    yield from run.end()


def crawls(
    context: dg.AssetExecutionContext, workspace: Workspace, namespace: HomeNamespace
) -> dg.MaterializeResult[None]:
    """One row per crawl in collinfo.json, including the three of the ARC years."""
    report = commit_crawls(workspace)
    # the version is the digest of the rows: an equal list is the same version
    digest = compute_input_digest({row["crawl"]: row for row in workspace.lake.read("crawls").to_pylist()})
    metadata = {"dagster/row_count": dg.MetadataValue.int(report.rows)} | stage_metadata(report)
    return dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(digest))


def index_manifest(
    context: dg.AssetExecutionContext, workspace: Workspace, namespace: HomeNamespace
) -> dg.MaterializeResult[None]:
    """One row per index file in the crawl's path list; none for crawls of the ARC years."""
    for crawl in read_planned_keys(context):
        report = commit_manifest(workspace, crawl)
        metadata = row_counts(report.rows) | stage_metadata(report) | crawl_links(workspace, crawl)
        context.add_asset_metadata(metadata, partition_key=crawl)
    return dg.MaterializeResult()


def index_footers(
    context: dg.AssetExecutionContext, workspace: Workspace, namespace: HomeNamespace, config: FootersConfig
) -> dg.MaterializeResult[None]:
    """The raw footer of every index file of the wanted subsets (CC_PIPELINE_SUBSETS): fetched once, with one request
    each, and kept in the home."""
    with logged_progress(context.log):
        for crawl in read_planned_keys(context):
            report = harvest_footers(workspace, crawl, refresh=config.refresh)
            context.add_asset_metadata(row_counts(report.rows) | stage_metadata(report), partition_key=crawl)
    return dg.MaterializeResult()


def row_groups(
    context: dg.AssetExecutionContext, workspace: Workspace, namespace: HomeNamespace
) -> dg.MaterializeResult[None]:
    """One row per row group: where it is, how large, and which keys it holds. Replaces the crawl in the catalog.

    Fails where index files could not be read (CC_PIPELINE_MAX_INDEX_GAPS), after everything else is in the catalog.
    """
    crawl_keys = read_planned_keys(context)
    with logged_progress(context.log):
        reports = commit_row_groups(workspace, crawl_keys)
    for crawl, report in reports.items():
        context.add_asset_metadata(_describe_harvest(workspace, crawl, report), partition_key=crawl)
    refused = refused_gaps(workspace, crawl_keys)
    if refused:
        # the failure of one crawl must not fail the others of the run
        for crawl in sorted(set(crawl_keys) - {gaps.crawl for gaps in refused}):
            context.log_event(dg.AssetMaterialization(namespace.key("row_groups"), partition=crawl))
        # the row groups of all crawls are in the catalog
        catalog_assets = ("index_manifest", "index_footers", "row_groups")
        for evaluation in check_made_partitions(context, workspace, namespace, catalog_assets, crawl_keys, {}):
            context.log_event(evaluation)
        raise index_incomplete(refused)
    return dg.MaterializeResult()


def repair_key_bounds(context: dg.OpExecutionContext, workspace: Workspace, namespace: HomeNamespace) -> Yielded:
    """Records ``repaired_statistics``: reads the key column of each row group without key bounds, once."""

    def repair(crawl: str) -> dict[str, Described]:
        report = repair_statistics(workspace, crawl)
        return {"repaired_statistics": (_describe_harvest(workspace, crawl, report), None)}

    yield from _run_for_crawl(context, workspace, namespace, "repaired_statistics", repair)


def _describe_harvest(workspace: Workspace, crawl: str, report: StageReport) -> dict[str, dg.MetadataValue]:
    coverage = read_catalog_table(workspace.lake, "coverage", crawl)
    return row_counts(report.rows) | stage_metadata(report) | to_metadata(coverage_metrics(coverage))
