"""Columns of strangers' Parquet files as a few types that do not change from shard to shard.

Shards of one dataset differ: a count is an int8 in one, an int64 in the next, a double where a program with no missing
integers wrote it. Whole numbers become ``int64``, other numbers ``double``, times milliseconds in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.index.parquet.locator import as_text
from cc_pipeline.index.parquet.places import FilePlace
from cc_pipeline.keys import TIMESTAMP

#: What a column may be declared as.
TYPES: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": TIMESTAMP,
    "date": pa.date32(),
}
_DECIMAL: Final = re.compile(r"DECIMAL\(\d+,(-?\d+)\)")
_UNITS: Final = (("MICROS", "us"), ("NANOS", "ns"), ("MILLIS", "ms"))


def arrow_type(physical: str, meaning: str) -> pa.DataType:
    """The type of a column by its physical type and its meaning (as ``footers.thrift`` writes them)."""
    if physical == "BOOLEAN":
        return pa.bool_()
    if physical in ("FLOAT", "DOUBLE") or meaning.startswith("DECIMAL") or meaning == "UINT_64":
        return pa.float64()
    if physical == "INT96" or meaning.startswith("TIMESTAMP"):
        return TIMESTAMP
    if meaning == "DATE":
        return pa.date32()
    return pa.int64() if physical in ("INT32", "INT64") else pa.string()


def widest(types: Iterable[pa.DataType]) -> pa.DataType:
    """The one type that values of all of ``types`` can be given in; text where they have nothing in common."""
    found = list(dict.fromkeys(types))
    if len(found) == 1:
        return found[0]
    return pa.float64() if set(found) == {pa.int64(), pa.float64()} else pa.string()


def typed(values: pa.Array, file: FilePlace, name: str, wanted: pa.DataType) -> pa.Array:
    """Values in their physical type as ``wanted``. Raises ``DataFault`` with the file and column where they are not."""
    physical, _, meaning = file.columns[name]
    try:
        return _typed(values, physical, meaning, wanted)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise DataFault(
            DataKind.UNSUPPORTED,
            file.path,
            None,
            f"column {name} ({physical} {meaning}".rstrip() + f") cannot be read as {wanted} ({error})",
        ) from error


def _typed(values: pa.Array, physical: str, meaning: str, wanted: pa.DataType) -> pa.Array:
    if (decimal := _DECIMAL.match(meaning)) is not None:
        values = _decimals(values, int(decimal[1]))
    elif meaning == "UINT_64" or (meaning == "UINT_LOGICAL" and physical == "INT64"):
        values = values.view(pa.uint64())
    elif meaning in ("UINT_32", "UINT_LOGICAL"):
        values = values.view(pa.uint32())
    elif meaning.startswith("TIMESTAMP") and pa.types.is_integer(values.type):
        unit = next((unit for name, unit in _UNITS if name in meaning), "ms")
        values = values.cast(pa.timestamp(unit, tz="UTC"))
    elif meaning == "DATE":
        values = values.cast(pa.date32())
    if wanted == pa.string() and pa.types.is_binary(values.type):
        return as_text(values)
    if wanted == TIMESTAMP and pa.types.is_binary(values.type):
        values = as_text(values)
    if wanted == TIMESTAMP:
        return values.cast(wanted, safe=False)
    if pa.types.is_integer(wanted) and pa.types.is_floating(values.type):
        # programs that know no missing integers write them as "not a number"
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    if pa.types.is_floating(wanted) and pa.types.is_integer(values.type):
        return values.cast(wanted, safe=False)
    return values.cast(wanted)


def _decimals(values: pa.Array, scale: int) -> pa.Array:
    if pa.types.is_integer(values.type):
        return pc.divide(values.cast(pa.float64(), safe=False), float(10**scale))
    numbers = [None if raw is None else int.from_bytes(raw, "big", signed=True) for raw in values.to_pylist()]
    found = [np.nan if number is None else number / 10**scale for number in numbers]
    return pa.array(found, pa.float64(), from_pandas=True)
