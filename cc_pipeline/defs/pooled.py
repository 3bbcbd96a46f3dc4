"""Dagster's state in PostgreSQL over connections that are kept, which a team's ``dagster.yaml`` names as its storage.

Dagster's own storage opens one for each statement, two for each event: a run over 200 partitions of six assets plans
1,200 events, and took a minute and a half to be created.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from cc_pipeline.defs.internals import keep_connections


def __getattr__(name: str) -> type:
    # with the package for PostgreSQL come 20 MB, and not everybody has it: who opens such an instance loads it
    if name == "PooledPostgresStorage":
        return _storage()
    raise AttributeError(name)


@cache
def _storage() -> type:
    from dagster_postgres import DagsterPostgresStorage  # noqa: PLC0415

    class PooledPostgresStorage(DagsterPostgresStorage):
        """Takes the configuration of Dagster's own, and is that one but for its connections."""

        @classmethod
        def from_config_value(cls, inst_data: Any, config_value: Any) -> Any:
            keep_connections()
            return DagsterPostgresStorage.from_config_value(inst_data, config_value)

    return PooledPostgresStorage
