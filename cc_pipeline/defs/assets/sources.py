"""Pages from files that are read whole: SequenceFiles of 2012."""

import logging
from collections.abc import Mapping
from typing import Final

import dagster as dg

from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.defs.lake_records import SOURCE_TABLES
from cc_pipeline.defs.lineage import WHOLE_FILES, table_metadata
from cc_pipeline.defs.metadata import row_counts, stage_metadata, to_metadata
from cc_pipeline.defs.recording import Described, record_each
from cc_pipeline.defs.steps import StepEvents, run_step
from cc_pipeline.documents.schemas import PAGE_COLUMNS, PARSER_VERSION
from cc_pipeline.extraction.whole_files import read_sources
from cc_pipeline.workspace.schemas import SOURCE_FAULTS_COLUMNS
from cc_pipeline.workspace.source_files import read_source_files
from cc_pipeline.workspace.workspace import Workspace

_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "source_metadata": "Rows of page_metadata from SequenceFiles of 2012.",
    "source_text": "Rows of page_text from SequenceFiles of 2012.",
    "source_links": "Rows of page_links from SequenceFiles of 2012.",
    "source_feed_items": "Rows of feed_items from SequenceFiles of 2012.",
    "source_faults": "One row per byte range of a file that could not be read, with its location and the reason.",
}


def read_file(workspace: Workspace, log: logging.Logger, slug: str) -> dict[str, Described]:
    """Reads a file once, from its beginning to its end, into the tables of parsed pages."""
    report = read_sources(workspace, [slug])
    for note in report.notes:
        log.warning(note)
    file = read_source_files(workspace, [slug])[slug]
    shared = stage_metadata(report) | to_metadata({"file": file.location, "kind": file.kind, "crawl": file.crawl})
    metrics = report.per_target[slug]
    return {asset: (row_counts(int(metrics[f"rows:{table}"])) | shared, None) for asset, table in SOURCE_TABLES.items()}


def define(namespace: HomeNamespace) -> list[dg.AssetsDefinition]:
    """Returns the step that reads files."""
    columns = {**PAGE_COLUMNS, "source_faults": SOURCE_FAULTS_COLUMNS}

    @dg.multi_asset(
        name=namespace.qualify("read_files"),
        specs=[
            dg.AssetSpec(
                namespace.key(asset),
                description=description,
                group_name=namespace.group_of("sources"),
                kinds={"deltalake"},
                deps=[namespace.key(*WHOLE_FILES.path)],
                code_version=PARSER_VERSION,
                metadata=table_metadata(namespace, SOURCE_TABLES[asset], columns[SOURCE_TABLES[asset]]),
                skippable=True,
            )
            for asset, description in _DESCRIPTIONS.items()
        ],
        partitions_def=namespace.source_file,
        # a file takes minutes; more files in one run save only the seconds that a run costs
        backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=10),
        required_resource_keys={namespace.resource},
    )
    def read_files(context: dg.AssetExecutionContext) -> StepEvents:
        """Reads each file once, from its beginning to its end, into the tables of parsed pages."""
        workspace = namespace.workspace(context)
        yield from run_step(
            context,
            namespace,
            [*SOURCE_TABLES],
            lambda log, slugs: record_each(log, slugs, lambda slug: read_file(workspace, context.log, slug)),
        )

    return [read_files]
