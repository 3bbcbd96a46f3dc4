"""A target's captures in a crawl, their records, and the pages in the records."""

import dagster as dg

from cc_pipeline.defs.automation.watched import define_watched
from cc_pipeline.defs.declared.assets import EXTRACTED, ExtractConfig
from cc_pipeline.defs.declared.collected_parts import asset_name
from cc_pipeline.defs.declared.jobs import ExtractTargetsConfig
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.partition_runs import Yielded, extract_partitions
from cc_pipeline.defs.partitions import listed_keys
from cc_pipeline.defs.recording import PartitionRun, read_planned_keys
from cc_pipeline.errors import UserInputError, describe_unknown_name
from cc_pipeline.workspace.workspace import Workspace


def extract(
    context: dg.AssetExecutionContext, workspace: Workspace, namespace: HomeNamespace, config: ExtractConfig
) -> Yielded:
    """Looks targets up in the cheapest index their crawl has, fetches and verifies their records, and parses each once.

    Every partition is recorded when it is done, and fails by itself. The four page tables come from one pass: where
    some of them are selected, all are written, and these are recorded.
    """
    if config.accept_removals:
        workspace.accept_removals()
    selected = {asset_name(namespace, key) for key in context.selected_asset_keys}
    tables = [table for table in EXTRACTED if table in selected]
    keys = read_planned_keys(context)
    define_watched(workspace, namespace, keys)
    run = PartitionRun(context, workspace, namespace, keys, tables)
    yield from extract_partitions(context, workspace, namespace, run, tables)


def extract_listed(
    context: dg.OpExecutionContext, workspace: Workspace, namespace: HomeNamespace, config: ExtractTargetsConfig
) -> Yielded:
    """Runs :func:`extract` for the partitions in the configuration."""
    for table in config.tables:
        if table not in EXTRACTED:
            raise UserInputError(describe_unknown_name("table", table, EXTRACTED))
    if config.accept_removals:
        workspace.accept_removals()
    tables = [table for table in EXTRACTED if table in config.tables or not config.tables]
    keys = listed_keys(config.partitions)
    define_watched(workspace, namespace, keys)
    run = PartitionRun(context, workspace, namespace, keys, tables, from_config=True)
    yield from extract_partitions(context, workspace, namespace, run, tables)
