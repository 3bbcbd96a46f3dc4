"""Pages from files that are read whole: SequenceFiles of 2012."""

import dagster as dg

from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.metadata import row_counts, stage_metadata, to_metadata
from cc_pipeline.defs.partition_runs import Yielded, run_each
from cc_pipeline.defs.recording import Described, PartitionRun, read_planned_keys
from cc_pipeline.extraction.whole_files import read_sources
from cc_pipeline.workspace.source_files import read_source_files
from cc_pipeline.workspace.workspace import Workspace

#: The table of each asset.
_WRITTEN = {
    "source_metadata": "page_metadata",
    "source_text": "page_text",
    "source_links": "page_links",
    "source_feed_items": "feed_items",
    "source_faults": "source_faults",
}


def read_files(context: dg.AssetExecutionContext, workspace: Workspace, namespace: HomeNamespace) -> Yielded:
    """Reads each file once, from its beginning to its end, into the tables of parsed pages."""

    def read(slug: str) -> dict[str, Described]:
        report = read_sources(workspace, [slug])
        for note in report.notes:
            context.log.warning(note)
        file = read_source_files(workspace, [slug])[slug]
        file_metadata = to_metadata({"file": file.location, "kind": file.kind, "crawl": file.crawl})
        metadata_by_asset: dict[str, Described] = {}
        for asset, table in _WRITTEN.items():
            target_metrics = report.per_target[slug]
            counts = row_counts(int(target_metrics[f"rows:{table}"]))
            metadata_by_asset[asset] = counts | stage_metadata(report) | file_metadata, None
        return metadata_by_asset

    yield from run_each(
        context, PartitionRun(context, workspace, namespace, read_planned_keys(context), _WRITTEN), read
    )
