"""The function of the asset ``report``."""

import dagster as dg

from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.metadata import to_metadata
from cc_pipeline.defs.partition_runs import Yielded, run_each
from cc_pipeline.defs.recording import Described, PartitionRun, read_planned_keys
from cc_pipeline.extensions.reports.page import report_path, write_report
from cc_pipeline.progress import format_count
from cc_pipeline.workspace.workspace import Workspace


def report(context: dg.AssetExecutionContext, workspace: Workspace, placement: HomeNamespace) -> Yielded:
    """A page about a target, from the latest publication: one HTML file in ``reports/`` of the home.

    It covers all crawls, so its partitions are targets alone.
    """
    settings = workspace.settings

    def write(slug: str) -> dict[str, Described]:
        findings, path = write_report(settings, slug), report_path(settings, slug)
        captures = sum(row["captures"] for row in findings.crawls)
        context.log.info(f"wrote {path}: {format_count(captures, 'comparable capture')}")
        metadata = to_metadata({"bytes": path.stat().st_size, "comparable captures": captures})
        return {"report": (metadata | {"path": dg.MetadataValue.path(str(path))}, None)}

    yield from run_each(
        context, PartitionRun(context, workspace, placement, read_planned_keys(context), ["report"]), write
    )
