"""Stored records outlive every run, on a disk or in a bucket: files below ``records/`` in the lake's root, and how
large each is.

A file is written under ``open/`` on the local disk and moved (or uploaded) to its place when it is complete.
Beside each file lies a journal, one JSON row per record. Once the rows are in the lake's table, a mark says so: the
journal is adopted no more, and upkeep deletes it a week later.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.atomic import sync_folder
from cc_pipeline.errors import DataFault, UserInputError, disk_trouble
from cc_pipeline.stores.answer import Listed
from cc_pipeline.stores.local import LocalStore
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind

JOURNAL_SUFFIX = ".rows.jsonl"
#: The folder of a crawl with the marks of journals whose rows are in the table.
COMMITTED = "committed"
#: The folder of a crawl in which a job writes what its workers are to do.
PLANS = "plans"
_CRAWL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}\Z")

#: The columns of ``records`` that say where a record's bytes are.
STORED: tuple[str, ...] = ("stored_file", "stored_offset", "stored_length")
#: Files beyond which one listing of their folder (a request per thousand objects) costs less than a look at each.
_FEW = 32
_GONE = -1
#: The size of a file where the place does not say it.
_UNKNOWN = (1 << 63) - 1


class RecordStorage:
    """The stored records of one lake.

    ``transport`` leads to the lake's root; whoever opened it closes it. ``spool`` is the local folder for open files
    when the lake is not local. Every method raises ``EnvironmentFault`` when the disk or the bucket refuses.
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
        """The key prefix of a crawl's files, without a slash at its end."""
        if not _CRAWL.match(crawl):
            raise UserInputError(f"{crawl!r} cannot name a folder")
        return f"records/{crawl}"

    def open_folder(self, crawl: str) -> Path:
        """Where files of a crawl are written; on the same file system as their place when the lake is local."""
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

    def holds(self, key: str) -> bool:
        return self.transport.exists(key)

    def journals(self, crawl: str) -> list[str]:
        """Keys of the journals of complete files whose rows may not be in the table yet."""
        return open_journals(f"{self.folder(crawl)}/", self.transport.listing(f"{self.folder(crawl)}/"))

    def mark_of(self, file: str) -> str:
        """The key of the mark that the rows of a stored file's journal are in the table."""
        folder, _, name = file.rpartition("/")
        return f"{folder}/{COMMITTED}/{name}"


def open_journals(prefix: str, listed: Iterable[Listed]) -> list[str]:
    """Keys of the journals below ``prefix``, a crawl's folder, that no mark says to be in the table."""
    keys = [one.key for one in listed]
    marked = {key.removeprefix(f"{prefix}{COMMITTED}/") for key in keys if key.startswith(f"{prefix}{COMMITTED}/")}
    journals = (key for key in keys if key.endswith(JOURNAL_SUFFIX) and "/" not in key[len(prefix) :])
    return sorted(key for key in journals if key[len(prefix) :].removesuffix(JOURNAL_SUFFIX) not in marked)


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
