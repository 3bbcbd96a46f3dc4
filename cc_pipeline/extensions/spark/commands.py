"""The command ``task``: the work of one worker, for users who run tasks without Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cc_pipeline.addresses import scheme_of
from cc_pipeline.cli.command import Command
from cc_pipeline.cli.output import notice
from cc_pipeline.errors import EnvironmentFault, UserInputError

#: The variable of Dagster Pipes with the context of a process.
_PIPES = "DAGSTER_PIPES_CONTEXT"


def task(
    plan: Annotated[
        str, typer.Argument(metavar="PLAN", help="The task: a file, or an object s3://bucket/key, that ends in .json.")
    ],
    out: Annotated[str | None, typer.Option("--out", help="File for the result (default: beside the plan).")] = None,
    endpoint: Annotated[str, typer.Option("--endpoint", help="S3 endpoint of the plan, if it is not AWS.")] = "",
    region: Annotated[str, typer.Option("--region", help="Region of that endpoint.")] = "us-east-1",
) -> None:
    """Do one task of a fetch or a parse: what a worker on Spark does, without Spark (experimental).

    The plan names captures or records of a lake, and the settings of the run. The task fetches or parses them, writes
    files into the lake, and says in its result which. Whoever made the plan commits them. It can be run again, also
    twice at the same time. Credentials come from the environment of this process. Under Dagster Pipes the run is told.

    [bold]Examples[/]

      cc-pipeline task s3://bucket/records/CC-MAIN-2024-22/plans/4f1e/000003.json

      cc-pipeline task /mnt/lake/records/CC-MAIN-2024-22/plans/4f1e/000003.json
    """
    from cc_pipeline.extensions.spark.external_tasks import result_address
    from cc_pipeline.extensions.spark.task_json import run_task

    with _pipes() as on_message:
        done_count = 0

        def count(added: int) -> None:
            nonlocal done_count
            done_count += added

        result, error = run_task(_read(plan, endpoint, region), count)
        _write(out or result_address(plan), result, endpoint, region)
        on_message(f"{plan}: {done_count:,} done" if error is None else f"{plan}: {type(error).__name__}: {error}")
        if error is not None:
            raise error


@contextmanager
def _pipes() -> Iterator[Callable[[str], object]]:
    if _PIPES not in os.environ:
        yield notice
        return
    from dagster_pipes import open_dagster_pipes

    with open_dagster_pipes() as pipes:
        yield pipes.log.info


def _read(address: str, endpoint: str, region: str) -> bytes:
    if scheme_of(address) == "s3":
        from cc_pipeline.extensions.spark.messages import s3_client, s3_errors

        bucket, _, key = address.removeprefix("s3://").partition("/")
        try:
            data: bytes = s3_client(endpoint, region).get_object(Bucket=bucket, Key=key)["Body"].read()
        except s3_errors() as error:
            raise EnvironmentFault(f"{address} cannot be read: {error}", _ACCESS) from error
        return data
    try:
        return Path(address).read_bytes()
    except OSError as error:
        raise UserInputError(f"{address} cannot be read: {error.strerror or error}") from error


def _write(address: str, data: bytes, endpoint: str, region: str) -> None:
    if scheme_of(address) == "s3":
        from cc_pipeline.extensions.spark.messages import s3_client, s3_errors

        bucket, _, key = address.removeprefix("s3://").partition("/")
        try:
            s3_client(endpoint, region).put_object(Bucket=bucket, Key=key, Body=data)
        except s3_errors() as error:
            raise EnvironmentFault(f"{address} cannot be written: {error}", _ACCESS) from error
        return
    from cc_pipeline.atomic import write_whole

    write_whole(Path(address), data)


_ACCESS = "Check the address, --endpoint, and the credentials of this process (AWS_…)."

COMMANDS = {"task": Command(task)}
