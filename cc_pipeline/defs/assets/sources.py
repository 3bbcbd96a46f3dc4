"""Pages out of files read whole: 2012 SequenceFiles, WAT and WET."""

import dagster as dg
import pyarrow as pa

from cc_pipeline.defs.lineage import upstream
from cc_pipeline.defs.metadata import OWNERS, PREVIEW_ROWS, figures, preview, row_counts, stage_metadata, table_metadata
from cc_pipeline.defs.partition_runs import Yielded, each_alone
from cc_pipeline.defs.partitions import SOURCE_FILE
from cc_pipeline.defs.recording import Described, PartitionRun
from cc_pipeline.documents.schemas import (
    FEED_ITEMS_SCHEMA,
    PAGE_LINKS_SCHEMA,
    PAGE_METADATA_SCHEMA,
    PAGE_TEXT_SCHEMA,
    PARSER_VERSION,
)
from cc_pipeline.lake.streaming import first_rows
from cc_pipeline.pagefiles.stage import read_sources
from cc_pipeline.workspace.source_files import registered
from cc_pipeline.workspace.tables import SOURCE_FAULTS_SCHEMA
from cc_pipeline.workspace.workspace import Workspace

#: Files take minutes each; more of them in one run save only the seconds a run costs.
_BACKFILL = dg.BackfillPolicy.multi_run(max_partitions_per_run=10)

#: Asset, the table it writes a slice of, and the columns of its preview.
_WRITTEN = {
    "source_metadata": ("page_metadata", ["url", "http_result", "mime_type", "parsed_as", "disposition"]),
    "source_text": ("page_text", ["url", "content_languages", "text"]),
    "source_links": ("page_links", ["url", "type", "href", "text"]),
    "source_feed_items": ("feed_items", ["url", "title", "published", "link"]),
    "source_faults": ("source_faults", ["byte_offset", "reason"]),
}


def _spec(name: str, schema: pa.Schema, description: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        name,
        description=description,
        group_name="sources",
        deps=upstream(name),
        owners=OWNERS,
        kinds={"deltalake"},
        code_version=PARSER_VERSION,
        metadata=table_metadata(_WRITTEN[name][0], schema, lineage=False),
        skippable=True,
    )


@dg.multi_asset(
    name="read_files",
    specs=[
        _spec(
            "source_metadata", PAGE_METADATA_SCHEMA, "Rows of page_metadata from SequenceFiles of 2012 and WAT files."
        ),
        _spec("source_text", PAGE_TEXT_SCHEMA, "Rows of page_text from SequenceFiles of 2012 and WET files."),
        _spec("source_links", PAGE_LINKS_SCHEMA, "Rows of page_links from SequenceFiles of 2012 and WAT files."),
        _spec("source_feed_items", FEED_ITEMS_SCHEMA, "Rows of feed_items from SequenceFiles of 2012."),
        _spec(
            "source_faults",
            SOURCE_FAULTS_SCHEMA,
            "One row per stretch of a file that could not be read, with place and reason.",
        ),
    ],
    partitions_def=SOURCE_FILE,
    backfill_policy=_BACKFILL,
)
def read_files(context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]) -> Yielded:
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

    yield from each_alone(context, PartitionRun(context, workspace, context.partition_keys, _WRITTEN), read)
