"""Partitions as Hadoop SequenceFiles, the way Common Crawl published parsed pages in 2012.

Belongs here: the two export assets. Not here: the file format (archive) or the order of records (stages).
"""

from collections.abc import Iterator
from typing import Literal, cast

import dagster as dg
from pydantic import Field

from cc_pipeline.archive.sequencefile import Compression
from cc_pipeline.defs.internals import attach_metadata
from cc_pipeline.defs.metadata import OWNERS, figures, stage_metadata
from cc_pipeline.defs.partitions import CRAWL_AND_DOMAIN, by_crawl, partition_key
from cc_pipeline.defs.slices import BACKFILL, logged_progress
from cc_pipeline.stages.export import VERSION, Codec, ExportKind, ExportOptions, export_prefix, export_slices
from cc_pipeline.stages.workspace import Workspace

_KINDS: dict[str, ExportKind] = {"text_sequencefile": "textData", "metadata_sequencefile": "metadata"}


class SequenceFileConfig(dg.Config):
    """How the files are written; the defaults are those of 2012."""

    compression: str = Field(default="block", description="none, record or block.")
    codec: str = Field(default="gzip", description="gzip (GzipCodec) or default (DefaultCodec, zlib).")
    records_per_file: int = Field(default=10_000, description="Records in each file but the last.")
    compat: str = Field(default="", description="2012: write the metadata JSON with the bugs of the writer of 2012.")

    def options(self) -> ExportOptions:
        """The options for the stage. Raises ``UserInputError`` for an unknown value."""
        return ExportOptions(
            cast("Compression", self.compression),
            cast("Codec", self.codec),
            self.records_per_file,
            cast("Literal['2012'] | None", self.compat or None),
        )


@dg.multi_asset(
    name="export_sequencefiles",
    specs=[
        dg.AssetSpec(
            "text_sequencefile",
            description="textData-nnnnn: URL and full text of each record, empty where a record has no text.",
            deps=["page_metadata", "page_text"],
            group_name="exports",
            owners=OWNERS,
            kinds={"hadoop"},
            code_version=VERSION,
        ),
        dg.AssetSpec(
            "metadata_sequencefile",
            description="metadata-nnnnn: URL and 2012 metadata JSON of each record, failures included.",
            deps=["page_metadata"],
            group_name="exports",
            owners=OWNERS,
            kinds={"hadoop"},
            code_version=VERSION,
        ),
    ],
    partitions_def=CRAWL_AND_DOMAIN,
    backfill_policy=BACKFILL,
    can_subset=True,
)
def export_sequencefiles(
    context: dg.AssetExecutionContext, config: SequenceFileConfig, workspace: dg.ResourceParam[Workspace]
) -> Iterator[dg.MaterializeResult[None]]:
    """Writes records as text and as metadata: both have the same records, in the same order and files."""
    selected = {key.to_user_string() for key in context.selected_asset_keys}
    kinds = [kind for asset, kind in _KINDS.items() if asset in selected]
    with logged_progress(context.log):
        for crawl, slugs in by_crawl(list(context.partition_keys)).items():
            report = export_slices(workspace, crawl, slugs, kinds, config.options())
            for slug in slugs:
                for asset in selected:
                    kind = _KINDS[asset]
                    own = report.per_target[slug]
                    metadata = stage_metadata(report, rows=int(own[f"{kind} records"])) | figures(
                        {name: value for name, value in own.items() if name.startswith(kind)}
                    )
                    where = f"{workspace.settings.lake}/{export_prefix(crawl, slug)}{kind}-*"
                    metadata["path"] = dg.MetadataValue.path(where)
                    attach_metadata(context, metadata, asset, partition_key(crawl, slug))
    for asset in _KINDS:
        if asset in selected:
            yield dg.MaterializeResult(asset_key=asset)
