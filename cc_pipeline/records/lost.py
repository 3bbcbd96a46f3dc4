"""Stored records whose bytes are gone: rows that name a file which is not there, or which ends too early."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.errors import DataFault
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.transport.faults import FaultKind

#: The columns of ``records`` that say where a record's bytes are.
STORED: tuple[str, ...] = ("stored_file", "stored_offset", "stored_length")
#: Files beyond which one listing of their folder (a request per thousand objects) costs less than a look at each.
_FEW = 32
_GONE = -1
#: The size of a file where the place does not say it.
_UNKNOWN = (1 << 63) - 1


class StoredSizes:
    """Sizes of stored files of one crawl; one look a file, or one listing once they are many."""

    def __init__(self, storage: RecordStorage, crawl: str) -> None:
        self._storage = storage
        self._crawl = crawl
        self._known: dict[str, int] = {}
        self._are_listed = False

    def lost(self, rows: pa.Table | pa.RecordBatch) -> pa.Array | pa.ChunkedArray:
        """For each row (with the columns ``STORED``) whether its bytes are gone.

        Rows that name no file have lost nothing. Raises ``EnvironmentFault`` where the place does not say.
        """
        names = pc.unique(rows.column("stored_file")).drop_null()
        sizes = pa.array(self.of(names.to_pylist()), pa.int64())
        here = sizes.take(pc.index_in(rows.column("stored_file"), value_set=names))
        ends = pc.add(rows.column("stored_offset"), rows.column("stored_length"))
        return pc.fill_null(pc.greater(ends, here), False)

    def of(self, files: Collection[str]) -> list[int]:
        """The size of each file in bytes, ``_GONE`` where there is none. Raises ``EnvironmentFault``."""
        new = [file for file in files if file not in self._known]
        if len(self._known) + len(new) > _FEW and not self._are_listed:
            listed = self._storage.transport.listing(f"{self._storage.folder(self._crawl)}/")
            self._known = {one.key: one.size for one in listed}
            self._are_listed = True
        for file in new:
            if not self._are_listed:
                one = self._storage.transport.head(file)
                self._known[file] = _GONE if one is None else (_UNKNOWN if one.size is None else one.size)
        return [self._known.get(file, _GONE) for file in files]


def are_gone(fault: DataFault) -> bool:
    """Whether a fault of reading stored bytes says that the place does not have them."""
    return fault.kind in (FaultKind.NOT_FOUND, FaultKind.RANGE_NOT_SATISFIABLE)
