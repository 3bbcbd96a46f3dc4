"""Rows of one key become one row: a host with and without ``www`` is one in SURT keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

#: How Arrow calls what a dataset may ask for.
_AGGREGATES = {"first": "first", "min": "min", "max": "max", "sum": "sum", "any": "max"}


def folded(table: pa.Table, keys: Sequence[str], www: pa.Array | None, fold: Mapping[str, str]) -> pa.Table:
    """``table`` with one row for equal ``keys``, sorted by them; other columns by ``fold``, ``first`` where it says
    nothing.

    ``first`` is the first value that is not null, of rows whose host has no ``www`` before others, in their order.
    """
    order = [(key, "ascending") for key in keys]
    if table.group_by(list(keys)).aggregate([]).num_rows == table.num_rows:
        return table.sort_by(order)
    place = pa.array(range(table.num_rows), pa.int64())
    later = pa.array([False] * table.num_rows) if www is None else www.fill_null(False)
    sortable = table.append_column("_later", later.cast(pa.int8())).append_column("_place", place)
    ordered = sortable.sort_by([*order, ("_later", "ascending"), ("_place", "ascending")])
    asked = {name: _AGGREGATES[fold.get(name, "first")] for name in table.column_names if name not in keys}
    grouped = ordered.group_by(list(keys), use_threads=False).aggregate(list(asked.items()))
    columns = [grouped[name if name in keys else f"{name}_{asked[name]}"] for name in table.column_names]
    return pa.table(columns, names=table.column_names).cast(table.schema).sort_by(order)
