"""What sites ask of robots, from their robots.txt captures."""

import dagster as dg

from cc_pipeline.defs.metadata import preview
from cc_pipeline.defs.partition_runs import Yielded, each_alone, own_figures
from cc_pipeline.defs.placement import Placement
from cc_pipeline.defs.recording import Described, PartitionRun, wanted_keys
from cc_pipeline.lake.streaming import first_rows
from cc_pipeline.policies.fill import fill_policies
from cc_pipeline.workspace.workspace import Workspace

#: Columns of a partition's preview.
_SHOWN = ["scheme", "host", "port", "fetch_time", "fetch_status", "state", "content_digest"]


def site_policies(context: dg.AssetExecutionContext, workspace: Workspace, at: Placement) -> Yielded:
    """One row per robots.txt capture of the target's hosts in the crawl, with rules and signals. Made on request."""

    def fill(key: str) -> dict[str, Described]:
        crawl, _, slug = key.partition("|")
        report = fill_policies(workspace, crawl, [slug])
        metadata = own_figures(report, slug, "site_policies", workspace.lake.row_count("site_policies"))
        if report.per_target[slug]["rows:site_policies"]:
            where = {"crawl": crawl, "target": workspace.rows_of([slug])[slug]}
            metadata["preview"] = preview(first_rows(workspace.lake, "site_policies", where, _SHOWN, 5), _SHOWN)
        version = report.per_target[slug].get("version:site_policies")
        return {"site_policies": (metadata, None if version is None else str(version))}

    yield from each_alone(context, PartitionRun(context, workspace, at, wanted_keys(context), ["site_policies"]), fill)
