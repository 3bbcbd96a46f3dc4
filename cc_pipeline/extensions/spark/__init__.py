"""Records and pages on Apache Spark: the job that a driver runs, and what its workers do."""

from __future__ import annotations

from cc_pipeline.extension import Extension

EXTENSION = Extension(
    name="spark",
    summary="Records fetched and pages parsed on Apache Spark (experimental)",
    needs={"pyspark": "spark"},
)
