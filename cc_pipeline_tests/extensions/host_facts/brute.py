"""The same answers by DuckDB, which reads the files whole: the oracle of lookups in keyed datasets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extensions.host_facts.datasets import Dataset
from cc_pipeline.extensions.host_facts.host_keys import HostRanges, host_key

_SQL = {"int64": "BIGINT", "double": "DOUBLE", "string": "VARCHAR", "bool": "BOOLEAN"}


def whole(root: Path, paths: Sequence[str], dataset: Dataset) -> list[dict[str, Any]]:
    """Every row of the files, with the dataset's columns as their declared types."""
    assert dataset.columns is not None
    with duckdb.connect() as session:
        files = [str(root / path) for path in paths]
        if not files:
            return []
        have = {
            name
            for name, *_ in session.execute(
                "DESCRIBE SELECT * FROM read_parquet(?, union_by_name = true, hive_partitioning = false)", [files]
            ).fetchall()
        }
        columns = ", ".join(
            f'CAST("{name}" AS {_SQL[str(kind)]}) AS "{name}"' if name in have else f'NULL AS "{name}"'
            for name, kind in dataset.columns.items()
        )
        found = session.execute(
            f'SELECT "{dataset.key}" AS _key, {columns} FROM '
            "read_parquet(?, union_by_name = true, hive_partitioning = false)",
            [files],
        )
        names = [name for name, *_ in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def rows_of(rows: Sequence[dict[str, Any]], target: str, form: Any = "surt_host") -> dict[str, list[dict[str, Any]]]:
    """The rows of a target's hosts, by SURT key."""
    hosts = HostRanges(parse_target(target))
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        key = host_key(row["_key"], form) if row["_key"] is not None else None
        if key is not None and hosts.contains(key.surt):
            found.setdefault(key.surt, []).append({name: value for name, value in row.items() if name != "_key"})
    return found
