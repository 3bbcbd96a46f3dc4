"""Interprets a column chunk's statistics, and drops values that are unreliable.

Rules, from ``parquet.thrift`` and the writers' known bugs:

- ``min_value``/``max_value`` count where the file declares the type's own order for the column.
- The old ``min``/``max`` of byte strings were written comparing *signed* bytes, and older parquet-mr wrote
  nonsense (PARQUET-251, fixed in 1.8.0). From a sound writer, bounds in unsigned order follow from them only
  if the first differing byte is below 0x80 in both: see ``bounds_from_signed``. Writers other than parquet-mr do not
  have that fault, and parquet-mr's own readers assume so too. Their order is not documented, nor whether they truncate
  long values. So the bounds allow for either order, and equal bounds for any value with that prefix.
- INT96 has no order at all.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from cc_pipeline.commoncrawl.key_ranges import prefix_range
from cc_pipeline.index.footers.walk import MAX_EXACT, MAX_EXACT_KNOWN, MIN_EXACT, MIN_EXACT_KNOWN

Kind = Literal["bytes", "integer", "time"]
Bound = bytes | int | None

STATISTICS: Final = "statistics"
DEPRECATED: Final = "deprecated_statistics"
REPAIRED: Final = "repaired"

#: Meanings of byte strings whose order is that of their unsigned bytes.
_BYTEWISE: Final = frozenset({"", "UTF8", "ENUM", "JSON", "BSON", "UUID"})
_SIGNED: Final = frozenset({"", "INT_8", "INT_16", "INT_32", "INT_64", "INT_LOGICAL", "DATE"})
#: Units in a millisecond; the catalog keeps milliseconds.
_TIMES: Final = {"TIMESTAMP_MILLIS": 1, "TIMESTAMP_MICROS": 1_000, "TIMESTAMP_NANOS": 1_000_000}
_WRITER: Final = re.compile(rb"^(\S+)(?: version (\d+)\.(\d+)(?:\.(\d+))?)?")
_PARQUET_MR_FIXED: Final = (1, 8)


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """The statistics of one column in one row group.

    ``minimum``/``maximum`` bound every value (both inclusive): bytes for strings, plain numbers for integers,
    milliseconds since 1970 for times. ``None`` means unknown, and unknown is never pruned.
    ``*_truncated`` is whether the bound is known to be no value of the column itself, ``None`` if not said.
    ``source`` is ``statistics``, ``deprecated_statistics``, ``repaired`` or ``None``.
    """

    minimum: Bound = None
    maximum: Bound = None
    min_truncated: bool | None = None
    max_truncated: bool | None = None
    nulls: int | None = None
    source: str | None = None


@dataclass(slots=True)
class StatisticsColumn:
    """One column's statistics in every row group of a file: the fields of ``ColumnStatistics`` as lists."""

    minimums: list[Bound]
    maximums: list[Bound]
    min_truncated: list[bool | None]
    max_truncated: list[bool | None]
    sources: list[str | None]

    def extend(self, addition: StatisticsColumn) -> None:
        """Adds the row groups of another part."""
        self.minimums += addition.minimums
        self.maximums += addition.maximums
        self.min_truncated += addition.min_truncated
        self.max_truncated += addition.max_truncated
        self.sources += addition.sources

    def row_group_statistics(self, row_group: int, nulls: int | None) -> ColumnStatistics:
        """Returns one row group's statistics as an object."""
        return ColumnStatistics(
            self.minimums[row_group],
            self.maximums[row_group],
            self.min_truncated[row_group],
            self.max_truncated[row_group],
            nulls,
            self.sources[row_group],
        )


@dataclass(frozen=True, slots=True)
class StoredStatistics:
    """The stored statistics of one column, a list item for each row group.

    ``order`` is the column's declared order: 1 the type's own, -1 none declared, anything else unknown.
    The four lists are the fields of the format; ``flags`` are those of the walk.
    """

    physical: str
    meaning: str
    order: int
    created_by: bytes | None
    flags: Sequence[int]
    old_max: Sequence[bytes | None]
    old_min: Sequence[bytes | None]
    new_max: Sequence[bytes | None]
    new_min: Sequence[bytes | None]


def no_statistics(count: int) -> StatisticsColumn:
    """Returns the statistics of a column without any known value."""
    nothing: list[None] = [None] * count
    return StatisticsColumn([*nothing], [*nothing], [*nothing], [*nothing], [*nothing])


def read_statistics(kind: Kind, stored: StoredStatistics) -> StatisticsColumn:
    """Interprets one column's stored statistics."""
    if kind == "bytes":
        if stored.physical != "BYTE_ARRAY" or stored.meaning not in _BYTEWISE:
            return no_statistics(len(stored.flags))
        return _read_bytes(stored)
    factor = _factor(kind, stored.physical, stored.meaning)
    if factor is None:
        return no_statistics(len(stored.flags))
    width = 4 if stored.physical == "INT32" else 8
    return _read_integers(stored, width, factor)


def _read_bytes(stored: StoredStatistics) -> StatisticsColumn:
    column = no_statistics(len(stored.flags))
    for number, flags in enumerate(stored.flags):
        low, high = stored.new_min[number], stored.new_max[number]
        if stored.order == 1 and not (low is None and high is None):
            if low is not None and high is not None and low > high:
                continue
            column.minimums[number], column.maximums[number], column.sources[number] = low, high, STATISTICS
            column.min_truncated[number] = not flags & MIN_EXACT if flags & MIN_EXACT_KNOWN else None
            column.max_truncated[number] = not flags & MAX_EXACT if flags & MAX_EXACT_KNOWN else None
            continue
        bounds = _deprecated(stored.old_min[number], stored.old_max[number], stored.created_by)
        if bounds is not None:
            low, high = bounds
            column.minimums[number], column.maximums[number], column.sources[number] = low, high, DEPRECATED
            column.min_truncated[number] = low != stored.old_min[number]
            column.max_truncated[number] = high != stored.old_max[number]
    return column


def _read_integers(stored: StoredStatistics, width: int, factor: int) -> StatisticsColumn:
    column = no_statistics(len(stored.flags))
    for number in range(len(stored.flags)):
        low, high = _integer(stored.new_min[number], width), _integer(stored.new_max[number], width)
        source = STATISTICS
        if low is None and high is None:
            low, high = _integer(stored.old_min[number], width), _integer(stored.old_max[number], width)
            source = DEPRECATED
        if (low is None and high is None) or (low is not None and high is not None and low > high):
            continue
        column.minimums[number] = None if low is None else low // factor
        column.maximums[number] = None if high is None else -(-high // factor)
        column.sources[number] = source
    return column


def bounds_from_signed(low: bytes, high: bytes) -> tuple[bytes | None, bytes | None]:
    """Returns bounds in unsigned order of byte strings whose extremes in *signed* byte order are ``low`` and ``high``.

    All values share the common prefix of the two. An ASCII ``low`` stays the lowest: any value below it unsigned is
    also below it signed. An ASCII ``high`` may still be exceeded (``a\\xc3`` is below ``ab`` signed, above it
    unsigned). But at the first difference every value's byte lies between the two if both are below 0x80: the bound is
    the prefix with that byte of ``high`` raised by one. ``None`` if no bound can be proved.
    """
    if low == high:
        return low, high
    shared = next(
        (i for i, (low_byte, high_byte) in enumerate(zip(low, high, strict=False)) if low_byte != high_byte),
        min(len(low), len(high)),
    )
    prefix = low[:shared]
    safe_low = low if low.isascii() else prefix
    if shared == len(high):
        return None, None
    if shared < len(low) and low[shared] < high[shared] < 0x80:
        return safe_low, prefix + bytes([high[shared] + 1])
    return safe_low, prefix_range(prefix).end


def _deprecated(
    low: bytes | None, high: bytes | None, created_by: bytes | None
) -> tuple[bytes | None, bytes | None] | None:
    if low is None or high is None or not sound_writer(created_by) or _signed(low) > _signed(high):
        return None
    bounds = bounds_from_signed(low, high)
    if low == high and not _is_parquet_mr(created_by):
        # values that the writer truncated would be equal too
        bounds = low, prefix_range(high).end
    return None if bounds == (None, None) else bounds


def sound_writer(created_by: bytes | None) -> bool:
    """Whether a writer's old byte-string statistics can be trusted at all (PARQUET-251)."""
    match = _WRITER.match(created_by or b"")
    if match is None or match.group(2) is None:
        return False
    version = (int(match.group(2)[:9]), int(match.group(3)[:9]))
    return not _is_parquet_mr(created_by) or version >= _PARQUET_MR_FIXED


def _is_parquet_mr(created_by: bytes | None) -> bool:
    match = _WRITER.match(created_by or b"")
    return match is not None and match.group(1) == b"parquet-mr"


def _signed(value: bytes) -> bytes:
    """Returns a key that sorts in the order of signed bytes."""
    return bytes(octet ^ 0x80 for octet in value)


def _factor(kind: Kind, physical: str, meaning: str) -> int | None:
    if kind == "time":
        return _TIMES.get(meaning) if physical == "INT64" else None
    return 1 if physical in ("INT32", "INT64") and meaning in _SIGNED else None


def _integer(value: bytes | None, width: int) -> int | None:
    if value is None or len(value) != width:
        return None
    number: int = struct.unpack("<i" if width == 4 else "<q", value)[0]
    return number
