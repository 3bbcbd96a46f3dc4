"""Rows of one host become one row: a host with and without ``www`` is one in SURT keys."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

#: How Arrow calls what a dataset may ask for.
_AGGREGATES = {"first": "first", "min": "min", "max": "max", "sum": "sum", "any": "max"}


def folded(table: pa.Table, key: str, www: pa.Array | None, fold: Mapping[str, str]) -> pa.Table:
    """``table`` with one row a ``key``, sorted by it; other columns by ``fold``, ``first`` where it says nothing.

    ``first`` is the first value that is not null, of rows whose host has no ``www`` before others, in their order.
    """
    order = [(key, "ascending")]
    if pc.count_distinct(table[key]).as_py() == table.num_rows:
        return table.sort_by(order)
    place = pa.array(range(table.num_rows), pa.int64())
    later = pa.array([False] * table.num_rows) if www is None else pc.fill_null(www, False)
    sortable = table.append_column("_later", later.cast(pa.int8())).append_column("_place", place)
    ordered = sortable.sort_by([*order, ("_later", "ascending"), ("_place", "ascending")])
    others = [name for name in table.column_names if name != key]
    asked = [(name, _AGGREGATES[fold.get(name, "first")]) for name in others]
    grouped = ordered.group_by(key, use_threads=False).aggregate([*asked, ("_place", "min")])
    columns = [grouped[key], *(grouped[f"{name}_{how}"] for name, how in asked)]
    found = pa.table(columns, names=[key, *others]).select(table.column_names)
    return found.cast(table.schema).sort_by(order)
