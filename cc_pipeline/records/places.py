"""Places of captures as numbers: which of a million a row is about, at some twenty bytes a place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: What names a capture within its crawl.
PLACE_NAME = ("warc_filename", "warc_record_offset")
_NO_OFFSET = -1


class PlacesFound:
    """Collects rows with the columns ``PLACE_NAME`` (:meth:`add`); :meth:`places` gives what was found."""

    def __init__(self) -> None:
        self._numbers: dict[str | None, int] = {}
        self._files: list[Any] = []
        self._offsets: list[Any] = []

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Takes the places of more rows."""
        for names, offsets in _columns(rows):
            known = [self._numbers.setdefault(name, len(self._numbers)) for name in names.dictionary.to_pylist()]
            if names.null_count:
                known.append(self._numbers.setdefault(None, len(self._numbers)))
            indices = names.indices.fill_null(len(names.dictionary)).to_numpy(zero_copy_only=False)
            self._files.append(np.array(known, np.int32)[indices] if known else np.zeros(0, np.int32))
            self._offsets.append(offsets)

    def places(self) -> Places:
        """The distinct places of all rows."""
        empty = np.zeros(0, np.int64)
        return Places(self._numbers, np.concatenate([empty, *self._files]), np.concatenate([empty, *self._offsets]))


class Places:
    """Distinct places (file, offset), each with a number from 0. ``files`` are their distinct files, ``None`` among
    them where a row names none."""

    def __init__(self, numbers: dict[str | None, int], files: Any, offsets: Any) -> None:
        self._numbers = dict(numbers)
        self._values = pa.array([name for name in numbers if name is not None], pa.string())
        # a place is one number: that of its file, and the rank of its offset among all
        self._ranked = np.unique(offsets)
        keys = files * max(1, len(self._ranked)) + np.searchsorted(self._ranked, offsets)
        self._keys = np.unique(keys)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def files(self) -> Iterable[str | None]:
        return self._numbers.keys()

    def positions(self, rows: pa.Table | pa.RecordBatch) -> Any:
        """For each of ``rows`` (with the columns ``PLACE_NAME``) the number of its place, or -1 (an int64 array)."""
        found = [self._found(names, offsets) for names, offsets in _columns(rows)]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def among(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """For each of ``rows`` whether its place is one of these."""
        return pa.array(self.positions(rows) >= 0)

    def _found(self, names: pa.DictionaryArray, offsets: Any) -> Any:
        if not len(self._keys):
            return np.full(len(offsets), -1, np.int64)
        known = np.array(
            [*(self._numbers.get(name, -1) for name in names.dictionary.to_pylist()), self._numbers.get(None, -1)],
            np.int64,
        )
        files = known[names.indices.fill_null(len(names.dictionary)).to_numpy(zero_copy_only=False)]
        ranks = np.minimum(np.searchsorted(self._ranked, offsets), len(self._ranked) - 1)
        keys = files * len(self._ranked) + ranks
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        here = (files >= 0) & (self._ranked[ranks] == offsets) & (self._keys[places] == keys)
        return np.where(here, places, -1)


def add_by_target(rows: pa.RecordBatch, found: dict[str, PlacesFound]) -> None:
    """Adds the places of ``rows``, which have a column ``target``, to those of their targets."""
    targets = rows.column("target")
    for target in targets.unique().to_pylist():
        found.setdefault(target, PlacesFound()).add(rows.filter(pc.equal(targets, target)))


def among_their_targets(rows: pa.RecordBatch, places: Mapping[str, Places]) -> pa.Array:
    """For each of ``rows`` whether its place is one of its target's."""
    mask = pa.array([False] * rows.num_rows, pa.bool_())
    targets = rows.column("target")
    for target in targets.unique().to_pylist():
        if target in places:
            mask = pc.or_(mask, pc.and_(pc.equal(targets, target), places[target].among(rows)))
    return mask


def _columns(rows: pa.Table | pa.RecordBatch) -> Iterable[tuple[pa.DictionaryArray, Any]]:
    for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
        names = pc.dictionary_encode(batch.column("warc_filename"))
        yield names, batch.column("warc_record_offset").fill_null(_NO_OFFSET).to_numpy()
