"""Finds near copies among many texts, from their ``content_minhash``, with constant memory.

Texts come in order of preference. Each sketch of 64 values is cut into 16 bands of four. Two texts with an equal band
are candidates (which finds 9,998 of 10,000 pairs with 0.8 of their five-word runs in common), and the sketches of
candidates are compared. A text is dropped if it is at least as similar to an earlier kept text as the threshold.

Sketches lie in a memory-mapped file, and one band is sorted at a time: some 100 bytes a text are in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cc_pipeline.errors import disk_trouble

VALUES: Final = 64
BANDS: Final = 16
_BAND_VALUES: Final = VALUES // BANDS
#: Maximum members of a group of candidates in which all pairs are compared. In a larger group, each member is compared
#: with the first one and with its neighbours.
_ALL_PAIRS: Final = 8
#: Pairs compared at a time: their sketches are 32 MB.
_PAIRS_AT_ONCE: Final = 65_536
#: A factor for each value of a band: odd, so that nothing of a value is lost.
_FACTORS: Final = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], dtype=np.uint64
)

Numbers = npt.NDArray[np.int64]


def near_duplicates(sketches: Iterable[npt.NDArray[np.uint32]], threshold: float, folder: Path) -> Numbers:
    """Returns the texts to drop and their originals: an array of two columns with numbers of texts (from 0, in the
    order of ``sketches``), sorted by the first column.

    ``sketches`` come in batches of rows of 64 values. ``threshold`` is the share of common runs, 0 to 1. ``folder``
    gets a temporary file of 256 bytes a text. Raises ``EnvironmentFault`` if the disk fails.
    """
    path = folder / "sketches"
    try:
        with disk_trouble(path):
            count = _spill(sketches, path)
            if count < 2:
                return np.empty((0, 2), np.int64)
            sketch_map = np.memmap(path, np.uint32, "r", shape=(count, VALUES))
            return _find_copies(sketch_map, threshold, count)
    finally:
        path.unlink(missing_ok=True)


def _spill(sketches: Iterable[npt.NDArray[np.uint32]], path: Path) -> int:
    count = 0
    with path.open("wb") as out:
        for batch in sketches:
            out.write(np.ascontiguousarray(batch, np.uint32).tobytes())
            count += len(batch)
    return count


def _find_copies(sketches: npt.NDArray[np.uint32], threshold: float, count: int) -> Numbers:
    likely = []
    for band in range(BANDS):
        for first, second in _candidates(_hashes(sketches, band)):
            for start in range(0, len(first), _PAIRS_AT_ONCE):
                first_part, second_part = first[start : start + _PAIRS_AT_ONCE], second[start : start + _PAIRS_AT_ONCE]
                is_similar = (sketches[first_part] == sketches[second_part]).sum(axis=1) >= threshold * VALUES
                likely.append(np.column_stack((second_part[is_similar], first_part[is_similar])))
    if not likely:
        return np.empty((0, 2), np.int64)
    pairs = np.unique(np.concatenate(likely), axis=0)
    is_dropped = np.zeros(count, bool)
    copies: list[tuple[int, int]] = []
    # Pairs are sorted by the later text, so whether the earlier one is kept is already known.
    for copy, original in pairs.tolist():
        if not is_dropped[copy] and not is_dropped[original]:
            is_dropped[copy] = True
            copies.append((copy, original))
    return np.array(copies, np.int64).reshape(-1, 2)


def _hashes(sketches: npt.NDArray[np.uint32], band: int) -> npt.NDArray[np.uint64]:
    hashes = np.empty(len(sketches), np.uint64)
    for start in range(0, len(sketches), _PAIRS_AT_ONCE):
        part = sketches[start : start + _PAIRS_AT_ONCE, band * _BAND_VALUES : (band + 1) * _BAND_VALUES].astype(
            np.uint64
        )
        mixed = (part + np.uint64(1)) * _FACTORS
        hashes[start : start + _PAIRS_AT_ONCE] = (mixed ^ (mixed >> np.uint64(29))).sum(axis=1, dtype=np.uint64)
    return hashes


def _candidates(hashes: npt.NDArray[np.uint64]) -> Iterator[tuple[Numbers, Numbers]]:
    """Yields pairs (earlier, later) of texts with the same hash."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    begins = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    sizes = np.diff(np.append(begins, len(ordered)))
    group = np.repeat(np.arange(len(begins)), sizes)
    position = np.arange(len(ordered)) - begins[group]
    # Each member is paired with the first of its group and its predecessor; in small groups with all before it.
    copy_positions = np.flatnonzero(position > 0)
    yield order[begins[group[copy_positions]]], order[copy_positions]
    for distance in range(1, _ALL_PAIRS):
        copy_positions = np.flatnonzero((position > distance) & ((sizes[group] <= _ALL_PAIRS) | (distance == 1)))
        if not len(copy_positions):
            break
        yield order[copy_positions - distance], order[copy_positions]


def sketch_array(column: Any) -> npt.NDArray[np.uint32]:
    """A batch of ``content_minhash`` (an Arrow list column without nulls) as rows of 64 values."""
    values = column.flatten().to_numpy(zero_copy_only=False)
    return values.astype(np.uint32).reshape(-1, VALUES)
