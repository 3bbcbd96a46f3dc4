"""An asset whose records are fetched and pages parsed by processes that Dagster Pipes starts, one a task.

The example of docs/extensions/spark.md; ``test_elsewhere.py`` runs it, with an S3 server on this machine. For AWS Batch
or Kubernetes only ``start`` differs: it submits the same command and waits for its end.
"""

import dagster as dg

from cc_pipeline.extensions.spark.external_tasks import ExternalTaskEngine
from cc_pipeline.extraction.run import TABLES, extract
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import open_workspace

#: Processes at the same time; the rate of the source is divided by one more.
WORKERS = 2


class Partition(dg.Config):
    """A crawl, and a target that is registered in the home."""

    crawl: str
    slug: str


@dg.asset
def site(
    context: dg.AssetExecutionContext, config: Partition, pipes: dg.PipesSubprocessClient
) -> dg.MaterializeResult[None]:
    """All tables of one target, in the lake of the home that the environment names."""
    settings = load_settings()
    place = ["--endpoint", settings.lake_endpoint or "", "--region", settings.s3_region]

    def start(task: str) -> None:
        pipes.run(context=context.op_execution_context, command=["cc-pipeline", "task", task, *place])

    with open_workspace(settings) as workspace:
        engine = ExternalTaskEngine(start, WORKERS)
        [made] = extract(workspace, [(config.crawl, config.slug)], TABLES, engine)
    if made.error is not None:
        raise made.error
    return dg.MaterializeResult(metadata={table: report.written for table, report in made.reports.items()})
