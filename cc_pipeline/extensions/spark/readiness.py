"""Checks whether a job can be started on Spark from here with these settings. It imports nothing of Spark."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cc_pipeline.addresses import redact_address, scheme_of
from cc_pipeline.checks.finding import Finding
from cc_pipeline.errors import CcPipelineError, EnvironmentFault, UserInputError
from cc_pipeline.extensions.spark.settings import SparkSettings
from cc_pipeline.lake.published_file import check_extension
from cc_pipeline.settings import PREFIX, Settings

#: Prefix of ``spark_master`` if tasks run in the driver's own process.
LOCAL: Final = "local"
#: Prefixes of addresses that ``spark-submit`` accepts.
_MASTERS: Final = ("spark://", "yarn", "k8s://", LOCAL)

_TOPIC: Final = "engine"


def check_ready(settings: Settings) -> None:
    """Raises one error for everything that is missing, with the remedies: ``UserInputError`` if a setting is missing,
    else ``EnvironmentFault``. Sends no request to the source or the lake.
    """
    problems = [*find_problems(settings), *_find_publication_problem(settings)]
    if len(problems) == 1:
        raise problems[0]
    if problems:
        texts = [_on_one_line(error) for error in problems]
        numbered_list = "\n".join(f"  {number}. {text}" for number, text in enumerate(texts, 1))
        if any(isinstance(error, UserInputError) for error in problems):
            raise UserInputError(
                f"no job can be started on Spark, {len(problems)} things are missing:\n{numbered_list}"
            )
        raise EnvironmentFault(
            f"no job can be started on Spark, {len(problems)} things are missing", numbered_list.lstrip()
        )


def _on_one_line(error: CcPipelineError) -> str:
    if isinstance(error, EnvironmentFault):
        return f"{error.problem}. {error.advice}"
    return str(error)


def _find_publication_problem(settings: Settings) -> Iterator[CcPipelineError]:
    """A run would fail at its last step. The doctor reports this separately."""
    if settings.publish != "views":
        return
    try:
        # Also if the lake is a folder now: it must be on S3.
        check_extension()
    except EnvironmentFault as fault:
        yield fault


def find_problems(settings: Settings) -> Iterator[CcPipelineError]:
    """Yields an error for each thing that a job lacks. Sends no request, except that the machine's metadata service may
    be asked for credentials of a role.
    """
    master = settings.settings_of(SparkSettings).master
    if not master:
        yield UserInputError(
            f"the engine is spark, and no cluster is named; set {PREFIX}SPARK_MASTER, e.g. spark://host:7077, yarn, "
            "k8s://… or, to try it, local[2]"
        )
    elif not master.startswith(_MASTERS):
        yield UserInputError(f"{PREFIX}SPARK_MASTER is {master!r}; it begins with one of {', '.join(_MASTERS)}")
    if settings.settings_of(SparkSettings).workers < 1:
        yield UserInputError(
            "the engine is spark, and the number of workers that share the source's budget is not set; set "
            f"{PREFIX}SPARK_WORKERS to the maximum that may run at the same time"
        )
    if scheme_of(settings.lake) != "s3":
        yield UserInputError(
            f"the engine is spark, and the lake is {redact_address(settings.lake)}, a folder. This process, the "
            "driver and its "
            "workers exchange tasks, messages, records and rows through the lake on S3, also with local[2]; set "
            f"{PREFIX}LAKE to an s3:// place"
        )
    if not scheme_of(settings.source) and not master.startswith(LOCAL):
        yield UserInputError(
            f"the engine is spark, and the source is the folder {settings.source}, which workers do not see; give an "
            "http(s):// or s3:// address"
        )
    try:
        spark_submit()
    except EnvironmentFault as error:
        yield error
    yield from _find_java_problems()
    yield from _find_credential_problems(settings)


def _find_java_problems() -> Iterator[EnvironmentFault]:
    java = str(Path(os.environ["JAVA_HOME"]) / "bin" / "java") if os.environ.get("JAVA_HOME") else "java"
    if shutil.which(java) is None:
        yield EnvironmentFault(
            f"Spark needs Java 17 or newer, and there is no {java}",
            "Install one (Debian: apt-get install openjdk-17-jre-headless), or name its folder in JAVA_HOME.",
        )


def _find_credential_problems(settings: Settings) -> Iterator[EnvironmentFault]:
    """Locations on S3 that need signed requests and have no credentials here: this process writes the plans of a job
    into the lake.
    """
    signed_places = [settings.lake] if settings.s3_anonymous else [settings.lake, settings.source]
    place = next((place for place in signed_places if scheme_of(place) == "s3"), None)
    if place is None:
        return
    from cc_pipeline.stores.s3 import find_credentials  # noqa: PLC0415  # loads botocore

    try:
        find_credentials(redact_address(place))
    except EnvironmentFault as error:
        yield error


def spark_submit() -> Path:
    """The program that starts jobs: that of ``SPARK_HOME``, of the installed pyspark, or on the path.

    Raises ``EnvironmentFault`` if there is none.
    """
    homes = [Path(home)] if (home := os.environ.get("SPARK_HOME")) else []
    package = importlib.util.find_spec("pyspark")
    homes += [Path(location) for location in (package.submodule_search_locations or ())] if package is not None else []
    for home_folder in homes:
        if (home_folder / "bin" / "spark-submit").is_file():
            return home_folder / "bin" / "spark-submit"
    program = shutil.which("spark-submit")
    if program is None:
        raise EnvironmentFault(
            "spark-submit, which starts jobs, was not found",
            "Install Spark for drivers: pip install 'cc-pipeline[spark]', or name a Spark of your own in SPARK_HOME.",
        )
    return Path(program)


def engine_findings(settings: Settings) -> Iterator[Finding]:
    """Findings about the engine of the settings; never raises."""
    problems = list(find_problems(settings))
    for error in problems:
        text, advice = (error.problem, error.advice) if isinstance(error, EnvironmentFault) else (str(error), "")
        yield Finding("bad", _TOPIC, text, advice)
    if not problems:
        spark = settings.settings_of(SparkSettings)
        text = f"spark (experimental): {spark.master}, at most {spark.workers:,} workers; jobs are started by"
        yield Finding("ok", _TOPIC, f"{text} {spark_submit()}")
