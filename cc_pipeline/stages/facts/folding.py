"""Rows of one key become one row: a host with and without ``www`` is one in SURT keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from cc_pipeline.errors import UserInputError

#: What any whole number fits into, and the sum of many.
_WIDE = pa.decimal128(38, 0)
#: How Arrow calls what a dataset may ask for.
_AGGREGATES = {"first": "first", "min": "min", "max": "max", "sum": "sum", "any": "max"}


def folded(table: pa.Table, keys: int, www: pa.Array | None, fold: Mapping[str, str]) -> pa.Table:
    """``table`` with one row for equal values of its first ``keys`` columns, sorted by them; other columns by ``fold``,
    ``first`` where it says nothing.

    ``first`` is the first value that is not null, of rows whose host has no ``www`` before others, in their order.
    Raises ``UserInputError`` for values that cannot be put together as ``fold`` says.
    """
    schema = table.schema
    # a stranger's columns may be called anything: here they are numbers
    names = [str(place) for place in range(len(schema))]
    table = table.rename_columns(names)
    order = [(key, "ascending") for key in names[:keys]]
    if table.group_by(names[:keys]).aggregate([]).num_rows == table.num_rows:
        return table.sort_by(order).rename_columns(schema.names)
    later = pa.array([False] * table.num_rows) if www is None else www.fill_null(False)
    sortable = table.append_column("later", later.cast(pa.int8()))
    sortable = sortable.append_column("place", pa.array(range(table.num_rows), pa.int64()))
    ordered = sortable.sort_by([*order, ("later", "ascending"), ("place", "ascending")])
    asked = {name: _AGGREGATES[fold.get(schema.names[int(name)], "first")] for name in names[keys:]}
    for name, how in asked.items():
        if how == "sum" and pa.types.is_integer(ordered[name].type):
            # sums of whole numbers that are too large for one begin again below zero
            ordered = ordered.set_column(int(name), name, ordered[name].cast(_WIDE))
    try:
        grouped = ordered.group_by(names[:keys], use_threads=False).aggregate(list(asked.items()))
        columns = [grouped[name if name not in asked else f"{name}_{asked[name]}"] for name in names]
        return pa.table(columns, names=names).cast(_renamed(names, schema)).sort_by(order).rename_columns(schema.names)
    except pa.ArrowException as error:
        said = ", ".join(f"{name}: {how}" for name, how in fold.items())
        raise UserInputError(f"rows of one key cannot be put together as fold says ({said}): {error}") from error


def _renamed(names: Sequence[str], schema: pa.Schema) -> pa.Schema:
    """``schema`` under other names."""
    return pa.schema([field.with_name(name) for name, field in zip(names, schema, strict=True)])
