"""The function of the asset ``report``."""

import dagster as dg

from cc_pipeline.defs.metadata import figures
from cc_pipeline.defs.partition_runs import Yielded, each_alone
from cc_pipeline.defs.placement import Placement
from cc_pipeline.defs.recording import Described, PartitionRun, wanted_keys
from cc_pipeline.extensions.reports.page import report_path, write_report
from cc_pipeline.workspace.workspace import Workspace


def report(context: dg.AssetExecutionContext, workspace: Workspace, placement: Placement) -> Yielded:
    """A page about a target, from the latest publication: one HTML file in ``reports/`` of the home.

    It covers all crawls, so its partitions are targets alone.
    """
    settings = workspace.settings

    def write(slug: str) -> dict[str, Described]:
        findings, path = write_report(settings, slug), report_path(settings, slug)
        captures = sum(row["captures"] for row in findings.crawls)
        context.log.info(f"wrote {path}: {captures:,} comparable captures")
        metadata = figures({"bytes": path.stat().st_size, "comparable captures": captures})
        return {"report": (metadata | {"path": dg.MetadataValue.path(str(path))}, None)}

    yield from each_alone(context, PartitionRun(context, workspace, placement, wanted_keys(context), ["report"]), write)
