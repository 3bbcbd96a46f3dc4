"""The Dagster definitions of this extension: the asset ``report``."""

import logging

import dagster as dg

from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.metadata import to_metadata
from cc_pipeline.defs.partitions import BACKFILL
from cc_pipeline.defs.recording import Described, record_each
from cc_pipeline.defs.steps import StepEvents, run_step
from cc_pipeline.extensions.reports.page import report_path, write_report
from cc_pipeline.progress import format_count
from cc_pipeline.workspace.workspace import Workspace


def define(namespace: HomeNamespace) -> dg.Definitions:
    """Returns the asset."""

    @dg.multi_asset(
        name=namespace.qualify("report"),
        specs=[
            dg.AssetSpec(
                namespace.key("report"),
                deps=[namespace.key("warehouse")],
                description="A page about a target, from the last publication: one HTML file in ``reports/`` of the "
                "home.\n\nIt covers all crawls, so its partitions are targets only.",
                group_name=namespace.group_of("analytics"),
                kinds={"html"},
                code_version="1",
                skippable=True,
            )
        ],
        can_subset=True,
        partitions_def=namespace.target,
        backfill_policy=BACKFILL,
        required_resource_keys={namespace.resource},
    )
    def report(context: dg.AssetExecutionContext) -> StepEvents:
        workspace = namespace.workspace(context)
        yield from run_step(
            context,
            namespace,
            ["report"],
            lambda log, slugs: record_each(log, slugs, lambda slug: _write(workspace, context.log, slug)),
        )

    return dg.Definitions(assets=dg.with_source_code_references([report]))


def _write(workspace: Workspace, log: logging.Logger, slug: str) -> dict[str, Described]:
    settings = workspace.settings
    findings, path = write_report(settings, slug), report_path(settings, slug)
    captures = sum(row["captures"] for row in findings.crawls)
    log.info(f"wrote {path}: {format_count(captures, 'comparable capture')}")
    metadata = to_metadata({"bytes": path.stat().st_size, "comparable captures": captures})
    return {"report": (metadata | {"path": dg.MetadataValue.path(str(path))}, None)}
