"""The shards of a dataset from their footers: the row groups that may have keys, and the columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.capture_columns import TIMESTAMP
from cc_pipeline.commoncrawl.key_ranges import RangeSet
from cc_pipeline.errors import DataFault, DataKind, Kind
from cc_pipeline.index.footers.decode import FooterRows, decode_footer
from cc_pipeline.index.footers.store import CrawlFooters
from cc_pipeline.index.parquet.chunk_locations import (
    IndexFile,
    RowGroupLocation,
    check_row_group,
    locate_column,
    split_columns,
)
from cc_pipeline.index.parquet.locator import as_text

#: Types that a column may be declared as.
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

Bounds = tuple[bytes | None, bytes | None]


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


def common_type(types: Iterable[pa.DataType]) -> pa.DataType:
    """The one type for values of all ``types``; text if there is no common type."""
    distinct_types = list(dict.fromkeys(types))
    if len(distinct_types) == 1:
        return distinct_types[0]
    return pa.float64() if set(distinct_types) == {pa.int64(), pa.float64()} else pa.string()


def cast_values(values: pa.Array, file: IndexFile, name: str, target_type: pa.DataType) -> pa.Array:
    """Casts values of their physical type to ``target_type``. Raises ``DataFault`` with the file and column if that
    fails.
    """
    physical, _, meaning = file.columns[name]
    try:
        return _cast_values(values, physical, meaning, target_type)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise DataFault(
            DataKind.UNSUPPORTED,
            file.path,
            None,
            f"column {name} ({physical} {meaning}".rstrip() + f") cannot be read as {target_type} ({error})",
        ) from error


def _cast_values(values: pa.Array, physical: str, meaning: str, target_type: pa.DataType) -> pa.Array:
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
    if target_type == pa.string() and pa.types.is_binary(values.type):
        return as_text(values)
    if target_type == TIMESTAMP and pa.types.is_binary(values.type):
        values = as_text(values)
    if target_type == TIMESTAMP:
        return values.cast(target_type, safe=False)
    if pa.types.is_integer(target_type) and pa.types.is_floating(values.type):
        # Some programs write missing integers as NaN.
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    if pa.types.is_floating(target_type) and pa.types.is_integer(values.type):
        return values.cast(target_type, safe=False)
    return values.cast(target_type)


def _decimals(values: pa.Array, scale: int) -> pa.Array:
    if pa.types.is_integer(values.type):
        return pc.divide(values.cast(pa.float64(), safe=False), float(10**scale))
    numbers = [None if raw is None else int.from_bytes(raw, "big", signed=True) for raw in values.to_pylist()]
    decimals = [np.nan if number is None else number / 10**scale for number in numbers]
    return pa.array(decimals, pa.float64(), from_pandas=True)


@dataclass(frozen=True, slots=True)
class Gap:
    """A shard that could not be read, so that rows may be missing: the reason, and the byte of the file. ``kind`` is
    that of the fault, if reading its data raised one.
    """

    path: str
    reason: str
    offset: int | None = None
    kind: Kind | None = None

    def __str__(self) -> str:
        where = "" if self.offset is None else f" at byte {self.offset}"
        return f"{self.path}{where}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Shard:
    """One Parquet file: its ``footer`` decoded for the ``key`` column alone, and the footer's bytes
    for other columns.
    """

    file: IndexFile
    key: str
    footer: FooterRows
    tail: bytes

    def bounds(self) -> list[Bounds]:
        """The smallest and largest key of each row group, ``None`` if unknown."""
        statistics = self.footer.statistics(0)
        return [(_bytes(low), _bytes(high)) for low, high in zip(statistics.minimums, statistics.maximums, strict=True)]

    def is_sorted(self) -> bool:
        """Whether the keys of row groups ascend, so that pages can be skipped too."""
        group_bounds = [(low, high) for low, high in self.bounds() if low is not None and high is not None]
        return all(before[1] <= after[0] for before, after in pairwise(group_bounds)) and bool(group_bounds)

    def matching_row_groups(self, ranges: RangeSet) -> list[int]:
        """The row groups that may have a key in ``ranges``. Empty row groups have none, and often no location in the
        file.
        """
        rows = self.footer.row_counts()
        return [number for number, (low, high) in enumerate(self.bounds()) if rows[number] and ranges.meets(low, high)]

    def row_groups(self, numbers: Sequence[int], columns: Iterable[str]) -> list[RowGroupLocation]:
        """Locations of the key column and of those ``columns`` that the file has. Raises ``DataFault``."""
        column_names = tuple(dict.fromkeys((self.key, *(name for name in columns if name in self.file.columns))))
        rows = decode_footer(self.tail, self.file.size, self.file.path, columns=(), lookup_columns=column_names)
        return [
            check_row_group(
                self.file,
                group.row_group,
                group.rows,
                {name: locate_column(self.file, chunk) for name, chunk in group.chunks.items()},
                self.key,
            )
            for group in rows.select_groups(numbers)
        ]


def open_shard(path: str, tail: bytes, size: int, etag: str | None, key: str, needed: Sequence[str] = ()) -> Shard:
    """A shard from the end of its file (footer and trailer). Raises ``DataFault``, also if the file lacks the key or a
    ``needed`` column.
    """
    footer = decode_footer(tail, size, path, columns=(key,), lookup_columns=())
    described = {column.name: (column.physical, column.repetition, column.meaning) for column in footer.schema.columns}
    flat, unread = split_columns(described)
    for name in (key, *needed):
        if name not in flat:
            raise DataFault(
                DataKind.MISMATCH, path, None, f"has no column {name}; it has: {', '.join(list(flat)[:60])}"
            )
    if flat[key][0] != "BYTE_ARRAY":
        raise DataFault(DataKind.UNSUPPORTED, path, None, f"column {key} is {flat[key][0]}, not text")
    return Shard(IndexFile("", "", path, size, etag, footer.footer_bytes, flat, unread), key, footer, tail)


def stored_shards(
    footers: CrawlFooters, paths: Sequence[str], key: str, needed: Sequence[str] = ()
) -> Iterator[Shard | Gap]:
    """The shard of each of ``paths`` from its stored footer, or the gap that replaces it."""
    for path in paths:
        entry = footers.entries.get(path)
        if entry is None:
            yield Gap(path, "its footer has not been read yet")
        elif entry.failed or entry.file_size is None:
            yield Gap(path, entry.reason or "it could not be read", entry.fault_offset)
        else:
            try:
                yield open_shard(path, footers.footer(path), entry.file_size, entry.etag, key, needed)
            except DataFault as fault:
                yield Gap(path, f"{fault.kind.value}: {fault.reason}", fault.offset)


def column_types(files: Iterable[IndexFile]) -> dict[str, pa.DataType]:
    """Every flat column of ``files`` with the widest of its types, in the order of first occurrence."""
    seen: dict[str, dict[pa.DataType, None]] = {}
    shapes: set[tuple[tuple[str, tuple[str, str, str]], ...]] = set()
    for file in files:
        shape = tuple(file.columns.items())
        if shape not in shapes:
            shapes.add(shape)
            for name, (physical, _, meaning) in shape:
                seen.setdefault(name, {})[arrow_type(physical, meaning)] = None
    return {name: common_type(types) for name, types in seen.items()}


def _bytes(bound: object) -> bytes | None:
    return bound if isinstance(bound, bytes) else None
