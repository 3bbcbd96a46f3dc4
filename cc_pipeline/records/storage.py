"""The storage of records, on a disk or in a bucket: files below ``records/`` in the lake's root, and their sizes.

A file is written under ``open/`` on the local disk and moved (or uploaded) to its place when it is complete.
Each file has a journal beside it, one JSON row per record, until the rows are in the lake's table. Then the journal is
moved to ``committed/``, where it is not adopted, and maintenance deletes it a week later.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.atomic import make_durable_folder, sync_folder
from cc_pipeline.errors import DataFault, UserInputError, disk_trouble
from cc_pipeline.stores.local import LocalStore
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault

JOURNAL_SUFFIX = ".rows.jsonl"
#: The folder of a crawl with journals whose rows are in the table.
COMMITTED = "committed"
#: The folder of a crawl in which a job writes the plans for its workers.
PLANS = "plans"
#: Bytes of a journal that are read at most.
LARGEST_JOURNAL = 1 << 30
_CRAWL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}\Z")

#: The columns of ``records`` that say where a record's bytes are.
STORED: tuple[str, ...] = ("stored_file", "stored_offset", "stored_length")
#: Files beyond which listing their folder (a request per thousand objects) costs less than a HEAD request for each.
_LISTING_THRESHOLD = 32
MISSING_SIZE = -1
#: The size of a file where the place does not say it.
_UNKNOWN_SIZE = (1 << 63) - 1


def is_crawl_folder(name: str) -> bool:
    """Whether a crawl may have a folder of this name."""
    return _CRAWL.match(name) is not None


class RecordStorage:
    """The stored records of one lake.

    ``transport`` leads to the lake's root; its opener closes it. ``spool`` is the local folder for open files if the
    lake is not local. Every method raises ``EnvironmentFault`` if the disk or the bucket refuses.
    """

    def __init__(self, transport: Transport, *, spool: Path | None = None) -> None:
        self.transport = transport
        store = transport.store
        self._local = store if isinstance(store, LocalStore) else None
        if self._local is None and spool is None:
            raise UserInputError(
                f"stored records of {transport.source} need a local folder for the files being written"
            )
        self._spool = spool

    @property
    def is_local(self) -> bool:
        """Whether the lake is a folder."""
        return self._local is not None

    def folder(self, crawl: str) -> str:
        """Returns the key prefix of a crawl's files, without a slash at its end."""
        if not is_crawl_folder(crawl):
            raise UserInputError(f"{crawl!r} cannot name a folder")
        return f"records/{crawl}"

    def open_folder(self, crawl: str) -> Path:
        """Returns the folder in which files of a crawl are written; on the lake's file system if that is local."""
        base = self._local.root if self._local is not None else self._spool
        assert base is not None
        path = base / self.folder(crawl) / "open"
        with disk_trouble(path):
            path.mkdir(parents=True, exist_ok=True)
        return path

    def publish(self, file: Path, key: str) -> None:
        """Moves a complete file to its place; afterwards it is never changed."""
        with disk_trouble(file):
            if self._local is not None:
                os.replace(file, self._local.path(key))
                sync_folder(self._local.path(key).parent)
            else:
                self.transport.put(key, file)
                file.unlink()

    def move(self, key: str, new_key: str) -> None:
        """Moves an object to another key, with the current time as its own; does nothing if ``key`` does not exist."""
        if self._local is not None:
            old, new = self._local.path(key), self._local.path(new_key)
            with disk_trouble(old), suppress(FileNotFoundError):
                make_durable_folder(new.parent)
                os.utime(old)
                os.replace(old, new)
                sync_folder(new.parent)
                sync_folder(old.parent)
            return
        try:
            data = self.transport.read_all(key, limit=LARGEST_JOURNAL).data
        except RangeFault as fault:
            if fault.kind is not FaultKind.NOT_FOUND:
                raise
            return
        self.transport.put(new_key, data)
        self.transport.delete(key)

    def holds(self, key: str) -> bool:
        return self.transport.exists(key)

    def journals(self, crawl: str) -> list[str]:
        """Returns the keys of the journals of complete files whose rows may not be in the table yet."""
        prefix = f"{self.folder(crawl)}/"
        return sorted(
            stored_file.key
            for stored_file in self.transport.listing(prefix)
            if stored_file.key.endswith(JOURNAL_SUFFIX) and "/" not in stored_file.key[len(prefix) :]
        )


class StoredSizes:
    """The sizes of stored files of one crawl: one HEAD request per file, or one listing if there are many."""

    def __init__(self, storage: RecordStorage, crawl: str) -> None:
        self._storage = storage
        self._crawl = crawl
        self._sizes: dict[str, int] = {}
        self._has_listing = False

    def lost(self, rows: pa.Table | pa.RecordBatch) -> pa.Array | pa.ChunkedArray:
        """Returns a mask: whether the bytes of each row (with the columns ``STORED``) are missing.

        Rows without a file are not lost. Raises ``EnvironmentFault`` if the place does not answer.
        """
        names = pc.unique(rows.column("stored_file")).drop_null()
        sizes = pa.array(self.sizes_of(names.to_pylist()), pa.int64())
        file_sizes = sizes.take(pc.index_in(rows.column("stored_file"), value_set=names))
        ends = pc.add(rows.column("stored_offset"), rows.column("stored_length"))
        return pc.fill_null(pc.greater(ends, file_sizes), False)

    def sizes_of(self, files: Collection[str]) -> list[int]:
        """Returns the size of each file in bytes, ``MISSING_SIZE`` if there is none. Raises ``EnvironmentFault``."""
        new = [file for file in files if file not in self._sizes]
        if len(self._sizes) + len(new) > _LISTING_THRESHOLD and not self._has_listing:
            listing = self._storage.transport.listing(f"{self._storage.folder(self._crawl)}/")
            self._sizes = {stored_file.key: stored_file.size for stored_file in listing}
            self._has_listing = True
        for file in new:
            if not self._has_listing:
                file_info = self._storage.transport.head(file)
                self._sizes[file] = (
                    MISSING_SIZE if file_info is None else (_UNKNOWN_SIZE if file_info.size is None else file_info.size)
                )
        return [self._sizes.get(file, MISSING_SIZE) for file in files]


def are_bytes_missing(fault: DataFault) -> bool:
    """Whether a fault of reading stored bytes says that they do not exist."""
    return fault.kind in (FaultKind.NOT_FOUND, FaultKind.RANGE_NOT_SATISFIABLE)
