"""What ``cc-pipeline doctor`` says of the engine: all that a run would refuse, and whether the cluster answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from cc_pipeline.engines.spark.readiness import EMR, spark_submit, troubles
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.settings import PREFIX, Settings
from cc_pipeline.stages.reports.health import Finding
from cc_pipeline.stages.workspace import limits_of

#: Seconds to wait for a cluster's answer.
_PATIENCE: Final = 3.0
_TOPIC: Final = "engine"
#: The port of a standalone master, and of Kubernetes, where an address names none.
_STANDALONE, _KUBERNETES = 7077, 443


def engine_findings(settings: Settings) -> Iterator[Finding]:
    """Findings about the engine of the settings; nothing raises. Of a cluster that has an address one connection is
    made, and nothing is asked."""
    if settings.engine != "spark":
        yield Finding("ok", _TOPIC, f"{settings.engine}: this machine's own processes")
        return
    found = list(troubles(settings))
    for error in found:
        yield Finding("bad", _TOPIC, str(error), error.advice if isinstance(error, EnvironmentFault) else "")
    addresses = addresses_of(settings.spark_master)
    refusals = [why for one in addresses if (why := _refusal(*one)) is not None]
    if addresses and len(refusals) == len(addresses):
        yield Finding(
            "bad",
            _TOPIC,
            f"the Spark cluster {settings.spark_master} does not answer: {'; '.join(refusals)}",
            f"Start it, or set {PREFIX}SPARK_MASTER to the address that its own page shows.",
        )
    elif not found:
        by = "" if settings.spark_master.startswith(EMR) else f"; jobs are started by {spark_submit()}"
        answers = "answers" if addresses else "was not asked"
        workers = f"{settings.spark_workers:,} workers"
        yield Finding("ok", _TOPIC, f"spark: {settings.spark_master} {answers}, at most {workers}{by}")
    yield from _crowd(settings)


def addresses_of(master: str) -> list[tuple[str, int]]:
    """Where the masters of a cluster listen; none where that is not said (YARN), or is AWS or this machine."""
    if master.startswith("k8s://"):
        # an address of the web without a scheme is one of https
        web = master.removeprefix("k8s://")
        default, urls = _KUBERNETES, [web if "://" in web else f"https://{web}"]
    elif master.startswith("spark://"):
        default, urls = _STANDALONE, [f"spark://{one}" for one in master.removeprefix("spark://").split(",")]
    else:
        return []
    try:
        found = [(parts.hostname, parts.port or default) for parts in map(urlsplit, urls)]
    except ValueError:  # a port that is none
        return []
    return [(host, port) for host, port in found if host is not None]


def _refusal(host: str, port: int) -> str | None:
    """Why nobody answers there; ``None`` where somebody does."""
    try:
        socket.create_connection((host, port), _PATIENCE).close()
    except (OSError, UnicodeError) as error:  # no name of a host may be so long
        return f"{host}:{port}: {getattr(error, 'strerror', None) or error}"
    return None


def _crowd(settings: Settings) -> Iterator[Finding]:
    """More workers than requests at the same time: each sends one all the same."""
    limits = limits_of(settings)
    if settings.spark_workers >= limits.concurrency:
        yield Finding(
            "note",
            _TOPIC,
            f"{settings.spark_workers:,} workers, and the home, each have a request under way, and the source's "
            f"budget is {limits.concurrency:,} at the same time",
            f"Set {PREFIX}SPARK_WORKERS to less than {limits.concurrency:,}.",
        )
