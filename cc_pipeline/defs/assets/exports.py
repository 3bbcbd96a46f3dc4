"""Partitions as Hadoop SequenceFiles, the way Common Crawl published parsed pages in 2012."""

from typing import Literal, cast

import dagster as dg
from pydantic import Field

from cc_pipeline.defs.metadata import OWNERS, figures, row_counts, stage_metadata
from cc_pipeline.defs.partition_runs import BACKFILL, Yielded, each_alone
from cc_pipeline.defs.partitions import CRAWL_AND_DOMAIN
from cc_pipeline.defs.recording import Described, PartitionRun, wanted_keys
from cc_pipeline.pagefiles.export import VERSION, Codec, ExportKind, ExportOptions, export_slices
from cc_pipeline.pagefiles.sequencefile import Compression
from cc_pipeline.workspace.workspace import Workspace, export_prefix

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
            skippable=True,
        ),
        dg.AssetSpec(
            "metadata_sequencefile",
            description="metadata-nnnnn: URL and 2012 metadata JSON of each record, failures included.",
            deps=["page_metadata"],
            group_name="exports",
            owners=OWNERS,
            kinds={"hadoop"},
            code_version=VERSION,
            skippable=True,
        ),
    ],
    partitions_def=CRAWL_AND_DOMAIN,
    backfill_policy=BACKFILL,
    can_subset=True,
)
def export_sequencefiles(
    context: dg.AssetExecutionContext, config: SequenceFileConfig, workspace: dg.ResourceParam[Workspace]
) -> Yielded:
    """Writes records as text and as metadata: both have the same records, in the same order and files."""
    selected = {key.to_user_string() for key in context.selected_asset_keys}
    assets = [asset for asset in _KINDS if asset in selected]
    options = config.options()

    def export(key: str) -> dict[str, Described]:
        crawl, _, slug = key.partition("|")
        report = export_slices(workspace, crawl, [slug], [_KINDS[asset] for asset in assets], options)
        own = report.per_target[slug]
        made: dict[str, Described] = {}
        for asset in assets:
            kind = _KINDS[asset]
            metadata = row_counts(int(own[f"{kind} records"])) | stage_metadata(report)
            metadata |= figures({name: value for name, value in own.items() if name.startswith(kind)})
            where = f"{workspace.settings.lake}/{export_prefix(crawl, slug)}{kind}-*"
            made[asset] = metadata | {"path": dg.MetadataValue.path(where)}, None
        return made

    yield from each_alone(context, PartitionRun(context, workspace, wanted_keys(context), assets), export)
