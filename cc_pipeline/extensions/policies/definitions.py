"""The Dagster definitions of this extension: the asset ``site_policies``."""

import dagster as dg

from cc_pipeline.defs.assets.extraction import partition_metadata
from cc_pipeline.defs.checks import make_specs
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.lineage import table_metadata
from cc_pipeline.defs.partitions import split_key
from cc_pipeline.defs.recording import Described, record_each
from cc_pipeline.defs.steps import StepEvents, run_step
from cc_pipeline.extensions.policies.fill import fill_policies
from cc_pipeline.extensions.policies.schemas import SITE_POLICIES_COLUMNS, VERSION
from cc_pipeline.workspace.workspace import Workspace

#: The name of the asset.
ASSET = "site_policies"


def define(namespace: HomeNamespace) -> dg.Definitions:
    """Returns the asset."""

    @dg.asset(
        key=namespace.key(ASSET),
        deps=[namespace.key("records")],
        group_name=namespace.group_of("content"),
        kinds={"deltalake"},
        code_version=VERSION,
        metadata=table_metadata(namespace, ASSET, SITE_POLICIES_COLUMNS),
        check_specs=make_specs(namespace, [ASSET]),
        partitions_def=namespace.pairs,
        # not that of the tables: Dagster would put them into one run
        backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=100),
        output_required=False,
        required_resource_keys={namespace.resource},
    )
    def site_policies(context: dg.AssetExecutionContext) -> StepEvents:
        """One row per robots.txt capture of the target's hosts in the crawl, with rules and signals. Only made on
        request."""
        workspace = namespace.workspace(context)
        yield from run_step(
            context,
            namespace,
            [ASSET],
            lambda log, keys: record_each(log, keys, lambda key: read_partition(workspace, key)),
        )

    return dg.Definitions(assets=dg.with_source_code_references([site_policies]))


def read_partition(workspace: Workspace, key: str) -> dict[str, Described]:
    """Reads the stored robots.txt captures of a partition into the table."""
    crawl, slug = split_key(key)
    report = fill_policies(workspace, crawl, [slug])
    version = report.per_target[slug].get(f"version:{ASSET}")
    return {ASSET: (partition_metadata(report, slug, ASSET), None if version is None else str(version))}
