"""Pages out of files read whole: 2012 SequenceFiles, WAT and WET."""

import dagster as dg

from cc_pipeline.defs.metadata import PREVIEW_ROWS, figures, preview, row_counts, stage_metadata
from cc_pipeline.defs.partition_runs import Yielded, each_alone
from cc_pipeline.defs.placement import Placement
from cc_pipeline.defs.recording import Described, PartitionRun
from cc_pipeline.lake.streaming import first_rows
from cc_pipeline.pagefiles.stage import read_sources
from cc_pipeline.workspace.source_files import registered
from cc_pipeline.workspace.workspace import Workspace

#: Asset, the table it writes a slice of, and the columns of its preview.
_WRITTEN = {
    "source_metadata": ("page_metadata", ["url", "http_result", "mime_type", "parsed_as", "disposition"]),
    "source_text": ("page_text", ["url", "content_languages", "text"]),
    "source_links": ("page_links", ["url", "type", "href", "text"]),
    "source_feed_items": ("feed_items", ["url", "title", "published", "link"]),
    "source_faults": ("source_faults", ["byte_offset", "reason"]),
}


def read_files(context: dg.AssetExecutionContext, workspace: Workspace, at: Placement) -> Yielded:
    """Reads each file once, from its beginning to its end, into the tables of parsed pages."""

    def read(slug: str) -> dict[str, Described]:
        report = read_sources(workspace, [slug])
        for note in report.notes:
            context.log.warning(note)
        file = registered(workspace, [slug])[slug]
        about = figures({"file": file.location, "kind": file.kind, "crawl": file.crawl})
        made: dict[str, Described] = {}
        for asset, (table, shown) in _WRITTEN.items():
            own = report.per_target[slug]
            where = {"crawl": file.crawl, "target": slug}
            rows = first_rows(workspace.lake, table, where, shown, PREVIEW_ROWS)
            counts = row_counts(int(own[f"rows:{table}"]), workspace.lake.row_count(table))
            made[asset] = counts | stage_metadata(report) | about | {"preview": preview(rows, shown)}, None
        return made

    yield from each_alone(context, PartitionRun(context, workspace, at, context.partition_keys, _WRITTEN), read)
