"""The list of crawls, as Common Crawl publishes it.

Belongs here: the ``crawls`` asset. Not here: which crawls are run (sensors) or what they hold (index).
"""

import dagster as dg

from cc_pipeline.defs.metadata import OWNERS, preview, stage_metadata, table_metadata
from cc_pipeline.defs.resources import Pipeline
from cc_pipeline.extraction.crawls import commit_crawls
from cc_pipeline.extraction.tables import CRAWLS_SCHEMA


@dg.asset(
    group_name="catalog",
    owners=OWNERS,
    kinds={"json", "deltalake"},
    code_version="1",
    metadata=table_metadata("crawls", CRAWLS_SCHEMA),
)
def crawls(pipeline: Pipeline) -> dg.MaterializeResult[None]:
    """One row per crawl in collinfo.json, the three of the ARC years included."""
    workspace = pipeline.workspace()
    report = commit_crawls(workspace)
    table = workspace.lake.read("crawls").sort_by([("crawl", "descending")])
    return dg.MaterializeResult(metadata=stage_metadata(report) | {"preview": preview(table)})
