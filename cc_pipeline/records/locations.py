"""Locations of captures as numbers: finds a row's among millions, at eight bytes a location."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: The columns that name a capture within its crawl.
PLACE_NAME = ("warc_filename", "warc_record_offset")
_NO_OFFSET = -1
#: A location is one number: that of its file times twice this, plus its offset. Impossible offsets (of a wrong index,
#: or nulls) are numbered from this value on.
_FARTHEST: Final = 1 << 39
_MAX_FILES: Final = (1 << 63) // (2 * _FARTHEST)


class LocationCollector:
    """Collects rows with the columns ``PLACE_NAME`` (:meth:`add`); :meth:`places` returns their index."""

    def __init__(self) -> None:
        self._files: dict[str | None, int] = {}
        self._invalid_offsets: dict[int, int] = {}
        self._keys: list[Any] = [np.zeros(0, np.int64)]

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Adds the locations of more rows."""
        self._keys += _keys(rows, partial(_numbered, self._files), partial(_numbered, self._invalid_offsets))

    def places(self) -> LocationIndex:
        """Returns the distinct locations of all rows."""
        if len(self._files) > _MAX_FILES:
            raise AssertionError(
                f"{len(self._files):,} archive files are too many to be numbered; at most {_MAX_FILES:,} are"
            )
        # a single copy, since there may be millions
        self._keys = [np.concatenate(self._keys)]
        [keys] = self._keys
        keys.sort()
        is_first = np.ones(len(keys), bool)
        np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
        return LocationIndex(dict(self._files), dict(self._invalid_offsets), keys[is_first])


class LocationIndex:
    """Distinct locations (file, offset), each with a number from 0. ``files`` are their distinct files, with ``None``
    if a row names no file."""

    def __init__(self, files: Mapping[str | None, int], invalid_offsets: Mapping[int, int], keys: Any) -> None:
        self._files, self._invalid_offsets, self._keys = files, invalid_offsets, keys

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def files(self) -> Iterable[str | None]:
        return self._files.keys()

    def positions(self, rows: pa.Table | pa.RecordBatch) -> Any:
        """Returns the location number of each of ``rows`` (with the columns ``PLACE_NAME``), or -1 (an int64 array)."""
        if not len(self._keys):
            return np.full(rows.num_rows, -1, np.int64)
        batch_keys = _keys(rows, partial(_find_number, self._files), partial(_find_number, self._invalid_offsets))
        keys = np.concatenate([np.zeros(0, np.int64), *batch_keys])
        indexes = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[indexes] == keys, indexes, -1)

    def contains(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Returns a mask: whether the location of each of ``rows`` is in the index."""
        return pa.array(self.positions(rows) >= 0)


def add_by_target(rows: pa.RecordBatch, collectors: dict[str, LocationCollector]) -> None:
    """Adds the locations of ``rows``, which have a column ``target``, to the collectors of their targets."""
    targets = rows.column("target")
    for target in targets.unique().to_pylist():
        collectors.setdefault(target, LocationCollector()).add(rows.filter(pc.equal(targets, target)))


def mask_by_target(rows: pa.RecordBatch, places: Mapping[str, LocationIndex]) -> pa.Array:
    """Returns a mask: whether the location of each of ``rows`` is one of its target's."""
    mask = pa.array([False] * rows.num_rows, pa.bool_())
    targets = rows.column("target")
    for target in targets.unique().to_pylist():
        if target in places:
            mask = pc.or_(mask, pc.and_(pc.equal(targets, target), places[target].contains(rows)))
    return mask


def _numbered(numbers: dict[Any, int], value: Any) -> int:
    return numbers.setdefault(value, len(numbers))


def _find_number(numbers: Mapping[Any, int], value: Any) -> int:
    return numbers.get(value, -1)


def _keys(
    rows: pa.Table | pa.RecordBatch,
    number_of_file: Callable[[str | None], int],
    number_of_invalid: Callable[[int], int],
) -> Iterable[Any]:
    """Yields the locations of ``rows`` as numbers, batch by batch. A file or offset without a number (-1) gives a
    number that no location has."""
    for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
        names = pc.dictionary_encode(batch.column("warc_filename"))
        file_numbers = [number_of_file(name) for name in names.dictionary.to_pylist()]
        if names.null_count:
            file_numbers.append(number_of_file(None))
        indices = names.indices.fill_null(len(names.dictionary)).to_numpy(zero_copy_only=False)
        files = np.array(file_numbers, np.int64)[indices]
        offsets = batch.column("warc_record_offset").fill_null(_NO_OFFSET).to_numpy()
        # the last number below stands for an offset without a number
        invalid_rows = np.flatnonzero((offsets < 0) | (offsets >= _FARTHEST - 1))
        if len(invalid_rows):
            offsets = offsets.copy()
            offsets[invalid_rows] = [_FARTHEST + number_of_invalid(offset) for offset in offsets[invalid_rows].tolist()]
        yield files * (2 * _FARTHEST) + offsets
