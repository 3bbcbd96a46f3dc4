"""Several hosts that share a PostgreSQL: one rate for all, runs spread among them, and the files of a team."""

from __future__ import annotations

from cc_pipeline.extension import Extension

EXTENSION = Extension(
    name="several_hosts",
    summary="several hosts with PostgreSQL: one rate for all, runs spread among them, the files of a team",
    needs={"dagster_postgres": "several-hosts", "psycopg2": "several-hosts"},
)
