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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from cc_pipeline.commoncrawl.key_ranges import prefix_range
from cc_pipeline.index.footers.thrift import SchemaColumn, Value

Kind = Literal["bytes", "time"]
Bound = bytes | int | None

STATISTICS: Final = "statistics"
DEPRECATED: Final = "deprecated_statistics"
REPAIRED: Final = "repaired"

#: The order that a file may declare for a column: the type's own.
TYPE_ORDER: Final = 1
#: Fields of ``Statistics``: the old ones, and today's.
_OLD_MAX, _OLD_MIN, _MAX, _MIN = 1, 2, 5, 6
#: Meanings of byte strings whose order is that of their unsigned bytes.
_BYTEWISE: Final = frozenset({"", "UTF8", "ENUM", "JSON", "BSON", "UUID"})
#: Units in a millisecond; the catalog keeps milliseconds.
_TIMES: Final = {"TIMESTAMP_MILLIS": 1, "TIMESTAMP_MICROS": 1_000, "TIMESTAMP_NANOS": 1_000_000}
_WRITER: Final = re.compile(rb"^(\S+)(?: version (\d+)\.(\d+)(?:\.(\d+))?)?")
_PARQUET_MR_FIXED: Final = (1, 8)


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """The statistics of one column in one row group.

    ``minimum``/``maximum`` bound every value (both inclusive): bytes for strings, milliseconds since 1970 for times.
    ``None`` means unknown, and unknown is never pruned. ``source`` is ``statistics``, ``deprecated_statistics``,
    ``repaired`` or ``None``.
    """

    minimum: Bound = None
    maximum: Bound = None
    source: str | None = None


def read_statistics(
    kind: Kind, column: SchemaColumn, stored: Mapping[int, Value], order: int | None, created_by: bytes | None
) -> ColumnStatistics:
    """Interprets the ``stored`` fields of a column's statistics. ``order`` is the order that the file declares for
    it, if any."""
    if kind == "time":
        factor = _TIMES.get(column.meaning) if column.physical == "INT64" else None
        return ColumnStatistics() if factor is None else _read_times(stored, factor)
    if column.physical != "BYTE_ARRAY" or column.meaning not in _BYTEWISE:
        return ColumnStatistics()
    low, high = _bytes(stored, _MIN), _bytes(stored, _MAX)
    if order == TYPE_ORDER and not (low is None and high is None):
        if low is not None and high is not None and low > high:
            return ColumnStatistics()
        return ColumnStatistics(low, high, STATISTICS)
    bounds = _deprecated(_bytes(stored, _OLD_MIN), _bytes(stored, _OLD_MAX), created_by)
    return ColumnStatistics() if bounds is None else ColumnStatistics(*bounds, DEPRECATED)


def _read_times(stored: Mapping[int, Value], factor: int) -> ColumnStatistics:
    low, high, source = _integer(stored, _MIN), _integer(stored, _MAX), STATISTICS
    if low is None and high is None:
        low, high, source = _integer(stored, _OLD_MIN), _integer(stored, _OLD_MAX), DEPRECATED
    if (low is None and high is None) or (low is not None and high is not None and low > high):
        return ColumnStatistics()
    return ColumnStatistics(
        None if low is None else low // factor, None if high is None else -(-high // factor), source
    )


def _bytes(stored: Mapping[int, Value], number: int) -> bytes | None:
    value = stored.get(number)
    return value if isinstance(value, bytes) else None


def _integer(stored: Mapping[int, Value], number: int) -> int | None:
    value = _bytes(stored, number)
    if value is None or len(value) != 8:
        return None
    integer: int = struct.unpack("<q", value)[0]
    return integer


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
