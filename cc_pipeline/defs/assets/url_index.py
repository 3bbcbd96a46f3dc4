"""A B-tree over a crawl's URLs, for look-ups in a handful of small reads.

Belongs here: the ``url_index`` asset. Not here: the format (index/btree) or how one is built (extraction/url_index).
"""

import dagster as dg

from cc_pipeline.defs.metadata import OWNERS
from cc_pipeline.defs.partitions import CRAWL
from cc_pipeline.defs.progress import logged_progress
from cc_pipeline.defs.resources import Pipeline
from cc_pipeline.extraction.stage_url_index import build_url_index
from cc_pipeline.extraction.url_index import UrlIndexReport


@dg.asset(
    group_name="catalog",
    owners=OWNERS,
    kinds={"file"},
    code_version="1",
    deps=["row_groups"],
    partitions_def=CRAWL,
    backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=1),
)
def url_index(context: dg.AssetExecutionContext, pipeline: Pipeline) -> dg.MaterializeResult[None]:
    """A prefixed B-tree of every URL of the crawl, in the format of Common Crawl's own index of 2012.

    Reads four columns of the crawl's whole columnar index (tens of gigabytes of the real one), or all its ARC files
    in crawls without one, so no job of the main graph includes it.
    """
    workspace = pipeline.workspace()
    with logged_progress(context.log):
        for crawl in context.partition_keys:
            report = build_url_index(workspace, crawl)
            context.add_asset_metadata(_metadata(report), partition_key=crawl)
    return dg.MaterializeResult()


def _metadata(report: UrlIndexReport) -> dict[str, dg.MetadataValue]:
    about = report.about
    values: dict[str, dg.MetadataValue] = {
        "dagster/row_count": dg.MetadataValue.int(about.items),
        "path": dg.MetadataValue.path(str(report.folder)),
        "subsets": dg.MetadataValue.text(", ".join(about.subsets)),
        "index bytes": dg.MetadataValue.int(about.size),
        "block bytes": dg.MetadataValue.int(about.block_size),
        "archive files": dg.MetadataValue.int(about.files),
        "captures left out": dg.MetadataValue.int(report.skipped),
        "bytes read": dg.MetadataValue.int(report.bytes),
        "requests": dg.MetadataValue.int(report.requests),
        "seconds": dg.MetadataValue.float(round(report.seconds, 3)),
    }
    if report.faults:
        values["notes"] = dg.MetadataValue.md("\n".join(f"- {fault}" for fault in report.faults))
    return values
