"""The program that ``spark-submit`` runs: fetches and parses partitions, and reports to the process that started it.

Its input comes through Dagster Pipes, from the job's mailbox in the lake's bucket, and its results go the same way. It
gets no secret: driver and workers use the credentials of their environment or their role.

    spark-submit --master spark://host:7077 job.py [--endpoint URL] --region us-east-1
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

from dagster_pipes import PipesContext, PipesS3ContextLoader, PipesS3MessageWriter, open_dagster_pipes

from cc_pipeline.extensions.spark.messages import Client, Outbox, s3_client, watch_sign_of_life

#: Exit status of a driver whose starter has ended.
_STATUS_ABANDONED: Final = 75


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job that the environment names. Returns the exit status: 1 if it ended with an error, which was
    reported.
    """
    parser = argparse.ArgumentParser(description="fetches and parses partitions on Spark")
    parser.add_argument("--endpoint", default="", help="S3 endpoint of the lake, if it is not AWS")
    parser.add_argument("--region", default="us-east-1")
    options = parser.parse_args(arguments)
    client = s3_client(options.endpoint, options.region)
    with open_dagster_pipes(
        context_loader=PipesS3ContextLoader(client), message_writer=PipesS3MessageWriter(client, interval=1)
    ) as pipes:
        out = Outbox(pipes.report_custom_message)
        try:
            _work(pipes, out, client)
        except Exception as error:
            out.failed(error)
            return 1
    return 0


def _work(pipes: PipesContext, out: Outbox, client: Client) -> None:
    # An import that fails is reported like any other error.
    from pyspark import SparkContext  # noqa: PLC0415

    from cc_pipeline.extensions.spark.code_check import check_worker_processes  # noqa: PLC0415
    from cc_pipeline.extensions.spark.driver import run_job  # noqa: PLC0415

    request = pipes.extras
    workers = int(request["workers"])
    partitions = [(crawl, slug) for crawl, slug in request["wanted"]]
    # os._exit: an orderly end would wait for tasks that wait for the source.
    watchdog = watch_sign_of_life(client, request["bucket"], request["alive"], lambda: os._exit(_STATUS_ABANDONED))
    with watchdog, SparkContext(appName="cc_pipeline") as context:
        pipes.log.info(f"Spark {context.version} at {context.master}, {context.applicationId}")
        check_worker_processes(context, workers)
        job = run_job(
            context,
            request["settings"],
            partitions,
            request["tables"],
            workers,
            out.progress,
        )
        for partition_result in job:
            out.send_partition(partition_result)


if __name__ == "__main__":
    sys.exit(main())
