"""Which rows of a key column lie in ranges, whether the column is sorted or not."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.keyrange import KeyRange
from cc_pipeline.commoncrawl.target_ranges import merge_ranges

#: Up to so many ranges, comparing whole columns is cheaper than looking at keys one by one.
_FEW = 24


def rows_in_ranges(keys: pa.Array, ranges: Sequence[KeyRange]) -> npt.NDArray[np.int64]:
    """Positions, ascending, of the binary ``keys`` that lie in one of ``ranges``; nulls lie in none."""
    merged = merge_ranges(ranges)
    if not len(keys) or not merged:
        return np.empty(0, dtype=np.int64)
    if keys.null_count == 0 and _sorted(keys):
        spans = [(_lower(keys, each.start), _lower(keys, each.end)) for each in merged]
        return np.concatenate([np.arange(first, end, dtype=np.int64) for first, end in spans])
    if len(merged) <= _FEW:
        mask = np.zeros(len(keys), dtype=bool)
        for each in merged:
            mask |= _mask(keys, each)
        return np.flatnonzero(mask)
    starts = [each.start for each in merged]
    ends = [each.end for each in merged]
    found = []
    for position, key in enumerate(keys.to_pylist()):
        if key is not None:
            place = bisect_right(starts, key) - 1
            end = ends[place]
            if place >= 0 and (end is None or key < end):
                found.append(position)
    return np.asarray(found, dtype=np.int64)


def _sorted(keys: pa.Array) -> bool:
    return bool(pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py()) if len(keys) > 1 else True


def _lower(keys: pa.Array, key: bytes | None) -> int:
    return len(keys) if key is None else bisect_left(keys, key, key=lambda scalar: scalar.as_py())


def _mask(keys: pa.Array, each: KeyRange) -> npt.NDArray[np.bool_]:
    inside = pc.greater_equal(keys, pa.scalar(each.start, pa.binary()))
    if each.end is not None:
        inside = pc.and_(inside, pc.less(keys, pa.scalar(each.end, pa.binary())))
    mask: npt.NDArray[np.bool_] = pc.fill_null(inside, False).to_numpy(zero_copy_only=False)
    return mask
