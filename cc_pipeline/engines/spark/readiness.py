"""Whether a job can be started on Spark with these settings, from here. Nothing of Spark is imported for it."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cc_pipeline.addresses import scheme_of, shown
from cc_pipeline.errors import CcPipelineError, EnvironmentFault, UserInputError
from cc_pipeline.settings import PREFIX, Settings

#: How ``spark_master`` begins where tasks run in the driver's own process.
LOCAL: Final = "local"


def refuse_unready(settings: Settings) -> None:
    """Raises ``UserInputError`` for settings with which no job can run, ``EnvironmentFault`` where this machine lacks
    what starts one. Each says what to do."""
    for error in troubles(settings):
        raise error


def troubles(settings: Settings) -> Iterator[CcPipelineError]:
    """All that :func:`refuse_unready` would refuse, one after the other; nobody is asked."""
    master = settings.spark_master
    if not master:
        yield UserInputError(
            f"the engine is spark, and no cluster is named; set {PREFIX}SPARK_MASTER, e.g. spark://host:7077, yarn, "
            "k8s://… or, to try it, local[2]"
        )
    if settings.spark_workers < 1:
        yield UserInputError(
            "the engine is spark, and nobody said how many workers share the source's budget; set "
            f"{PREFIX}SPARK_WORKERS to the most that may run at the same time"
        )
    if scheme_of(settings.lake) != "s3":
        yield UserInputError(
            f"the engine is spark, and the lake is {shown(settings.lake)}; workers share no disk, so set {PREFIX}LAKE "
            "to an s3:// place"
        )
    folder = next((place for place in settings.sources if not scheme_of(place)), None)
    if folder is not None and not master.startswith(LOCAL):
        yield UserInputError(
            f"the engine is spark, and the source is the folder {folder}, which workers do not see; give an "
            "http(s):// or s3:// address"
        )
    try:
        spark_submit()
    except EnvironmentFault as error:
        yield error
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if os.environ.get("JAVA_HOME") else "java"
    if shutil.which(java) is None:
        yield EnvironmentFault(
            f"Spark needs Java 17 or newer, and there is no {java}",
            "Install one (Debian: apt-get install openjdk-17-jre-headless), or name its folder in JAVA_HOME.",
        )


def spark_submit() -> Path:
    """The program that starts jobs: that of ``SPARK_HOME``, of the installed pyspark, or on the path.

    Raises ``EnvironmentFault`` where there is none.
    """
    homes = [Path(home)] if (home := os.environ.get("SPARK_HOME")) else []
    package = importlib.util.find_spec("pyspark")
    homes += [Path(each) for each in (package.submodule_search_locations or ())] if package is not None else []
    for each in homes:
        if (each / "bin" / "spark-submit").is_file():
            return each / "bin" / "spark-submit"
    found = shutil.which("spark-submit")
    if found is None:
        raise EnvironmentFault(
            "there is no spark-submit here, with which jobs are started",
            "Install Spark for drivers: pip install 'cc-pipeline[spark]', or name a Spark of your own in SPARK_HOME.",
        )
    return Path(found)
