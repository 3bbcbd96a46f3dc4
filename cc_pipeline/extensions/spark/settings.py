"""The settings of the engine on Spark."""

from __future__ import annotations

from dataclasses import dataclass

from cc_pipeline.settings.declaration import setting


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """``master`` is the address of a cluster as ``spark-submit`` takes it. ``workers`` is the most processes of the
    cluster that may fetch at the same time."""

    master: str = setting("", help="address of the cluster: `spark://…`, `yarn`, `k8s://…`, `local[2]`")
    workers: int = setting(
        0,
        help="maximum processes of the cluster that fetch at the same time; required",
        default_text="–",
    )
