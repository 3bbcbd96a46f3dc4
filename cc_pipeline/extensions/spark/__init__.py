"""Fetches records and parses pages on Apache Spark: the job of the driver, and the tasks of its workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cc_pipeline.extension import Extension

if TYPE_CHECKING:
    from cc_pipeline.defs.engines import RunEngine


def _make_engine() -> RunEngine:
    from cc_pipeline.extensions.spark.run_engine import SparkRunEngine  # each --help finds extensions

    return SparkRunEngine()


def _settings() -> type:
    from cc_pipeline.extensions.spark.settings import SparkSettings

    return SparkSettings


EXTENSION = Extension(
    name="spark",
    summary="experimental: fetches records and parses pages on Apache Spark",
    settings=_settings,
    engines=lambda: {"spark": _make_engine},
)
