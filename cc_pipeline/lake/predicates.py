"""Conditions on rows, in the SQL of the Delta library's engine, and in Arrow if they name many values.

A condition has a bounded number of terms, however many slices it is about: the engine's work grows with their square,
and 40,000 end the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

from cc_pipeline.lake.columns import with_columns
from cc_pipeline.lake.quoting import is_one_of, quote_literal

#: Values in a list up to which the engine compares each with a file's bounds.
_MAX_COMPARED_VALUES: Final = 20
#: Values that a condition names; of more it gives their bounds, and rows between these are looked at.
MAX_NAMED_VALUES: Final = 1_000
#: Sorts after every character of a slug.
_LAST: Final = "\x7f"

Where = Mapping[str, str | Sequence[str]]


class Prefix(str):
    """In a condition, the beginning of the value instead of the whole: that of a target and all its slices, since no
    character of a slug sorts after ``~``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Prefix({str(self)!r})"


def scan(handle: DeltaTable, schema: pa.Schema, where: Where) -> Iterator[pa.RecordBatch]:
    """The rows whose columns equal ``where`` (a value, or any of a sequence), in ``schema``, batch by batch, whether
    they count or not."""
    large_lists = {name: frozenset(value) for name, value in where.items() if _exceeds_named_values(value)}
    added_fields = [pa.field(name, pa.string()) for name in large_lists if name not in schema.names]
    wider = pa.schema([*schema, *added_fields])
    # the library's own engine skips files by the log's statistics before it opens any
    scanned = handle.scan(
        wider.names, " AND ".join(_write_condition(*condition) for condition in where.items()) or None
    )
    for batch in pa.RecordBatchReader.from_stream(scanned):
        rows = with_columns(pa.Table.from_batches([batch]), wider)
        for name, values in large_lists.items():
            encoded = rows.column(name).combine_chunks().dictionary_encode()
            matches = pa.array([value in values for value in encoded.dictionary.to_pylist()], pa.bool_())
            rows = rows.filter(matches.take(encoded.indices))
        yield from rows.select(schema.names).to_batches()


def _exceeds_named_values(value: object) -> bool:
    return not isinstance(value, str) and isinstance(value, Sequence) and len(value) > MAX_NAMED_VALUES


def _write_condition(name: str, value: str | Sequence[str]) -> str:
    if isinstance(value, Prefix):
        return f"({name} >= {quote_literal(value)} AND {name} < {quote_literal(value + _LAST)})"
    if isinstance(value, str):
        return f"{name} = {quote_literal(value)}"
    if _exceeds_named_values(value):
        return _write_bounds(name, value)
    list_condition = is_one_of(name, value)
    if len(value) <= _MAX_COMPARED_VALUES:
        return list_condition
    # the engine skips files by bounds, not by a long list; the parts of a set are neighbours
    return f"({_write_bounds(name, value)} AND {list_condition})"


def _write_bounds(name: str, values: Sequence[str]) -> str:
    return f"({name} >= {quote_literal(min(values))} AND {name} <= {quote_literal(max(values))})"
