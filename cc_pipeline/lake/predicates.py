"""Conditions on slices, in the SQL of the Delta library's engine, and in Arrow if they name many.

A condition has a bounded number of terms, however many slices it is about: the engine's work grows with their square,
and 40,000 end the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

from cc_pipeline.lake.evolution import with_columns
from cc_pipeline.lake.reading import quoted

#: Values in a list up to which the engine compares each with a file's bounds.
_LIST_USED: Final = 20
#: Values that a condition names; of more it gives their bounds, and rows between these are looked at.
MOST_NAMED: Final = 1_000

Where = Mapping[str, str | Sequence[str]]


def scan(handle: DeltaTable, schema: pa.Schema, where: Where) -> Iterator[pa.RecordBatch]:
    """The rows whose columns equal ``where`` (a value, or any of a sequence), in ``schema``, batch by batch."""
    large_lists = {name: frozenset(value) for name, value in where.items() if _is_many(value)}
    added_fields = [pa.field(name, pa.string()) for name in large_lists if name not in schema.names]
    wider = pa.schema([*schema, *added_fields])
    stored_columns = {field.name for field in handle.schema().fields}
    # the library's own engine skips files by the log's statistics before it opens any
    scanned = handle.scan(
        [name for name in wider.names if name in stored_columns],
        " AND ".join(_equal(*condition) for condition in where.items()) or None,
    )
    for batch in pa.RecordBatchReader.from_stream(scanned):
        rows = with_columns(pa.Table.from_batches([batch]), wider)
        for name, values in large_lists.items():
            encoded = rows.column(name).combine_chunks().dictionary_encode()
            matches = pa.array([value in values for value in encoded.dictionary.to_pylist()], pa.bool_())
            rows = rows.filter(matches.take(encoded.indices))
        yield from rows.select(schema.names).to_batches()


def _is_many(value: object) -> bool:
    return not isinstance(value, str) and isinstance(value, Sequence) and len(value) > MOST_NAMED


def _equal(name: str, value: str | Sequence[str]) -> str:
    if isinstance(value, str):
        return f"{name} = {quoted(value)}"
    if _is_many(value):
        return _between(name, value)
    list_condition = f"{name} IN ({', '.join(map(quoted, value))})"
    if len(value) <= _LIST_USED:
        return list_condition
    # the engine skips files by bounds, not by a long list; the parts of a set are neighbours
    return f"({_between(name, value)} AND {list_condition})"


def _between(name: str, values: Sequence[str]) -> str:
    return f"({name} >= {quoted(min(values))} AND {name} <= {quoted(max(values))})"
