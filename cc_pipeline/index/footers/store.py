"""Stores raw footers on disk, so that no footer is fetched twice and decoding again needs no network.

A crawl has a folder with a SQLite file: its footers, compressed with zstd, and key bounds that a repair read. No
transaction waits for the source. A killed process loses what it had not committed.
"""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault, UserInputError
from cc_pipeline.index.footers.decode import TRAILER_BYTES
from cc_pipeline.locks import LockTimeout, locked

_FILE: Final = "footers.sqlite"
_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS footers (
        path TEXT PRIMARY KEY, file_size INTEGER, etag TEXT, footer_bytes INTEGER NOT NULL, harvested_at REAL NOT NULL,
        reason TEXT, fault_offset INTEGER, footer BLOB NOT NULL, checksum INTEGER NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS key_bounds (
        path TEXT, row_group INTEGER, minimum BLOB NOT NULL, maximum BLOB NOT NULL, file_size INTEGER NOT NULL,
        footer TEXT NOT NULL, PRIMARY KEY (path, row_group)
    )""",
)
#: Seconds that a reader or writer waits for a commit.
_TIMEOUT: Final = 60.0
_CODEC: Final = pa.Codec("zstd", compression_level=-3)


@dataclass(frozen=True, slots=True)
class FooterEntry:
    """The facts about one index file, known without reading its footer.

    ``footer_bytes`` is the length of the metadata, without the 8-byte trailer. ``reason`` says why there is no footer
    (then the other numbers may be ``None``), ``fault_offset`` is the position in the file at which reading failed.
    """

    path: str
    file_size: int | None
    etag: str | None
    footer_bytes: int
    harvested_at: datetime
    reason: str | None = None
    fault_offset: int | None = None

    @property
    def failed(self) -> bool:
        return self.reason is not None


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """The smallest and largest key in one row group, read from the values themselves. ``size`` and
    ``footer`` (its digest) identify the file: a copied one has another ETag."""

    path: str
    row_group: int
    minimum: bytes
    maximum: bytes
    size: int = -1
    footer: str = ""


def footer_digest(footer: bytes) -> str:
    """Returns the digest that identifies a file, together with its size."""
    return hashlib.sha256(footer).hexdigest()


class FooterStore:
    """All crawls' footers under one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, crawl: str) -> CrawlFooters:
        """Opens the footers of a crawl for reading; empty if there are none. Raises ``EnvironmentFault`` if the file is
        damaged."""
        return CrawlFooters(self._crawl_folder(crawl))

    def write(self, crawl: str) -> FooterWriter:
        """Opens the footers of a crawl for one writer at a time. Raises ``EnvironmentFault`` if there is another."""
        return FooterWriter(self._crawl_folder(crawl))

    def put_bounds(self, crawl: str, bounds: KeyBounds) -> None:
        """Stores the key bounds of a row group. Raises ``EnvironmentFault`` if the disk refuses."""
        row = (bounds.path, bounds.row_group, bounds.minimum, bounds.maximum, bounds.size, bounds.footer)
        _commit_rows(self._crawl_folder(crawl) / _FILE, "key_bounds", [row])

    def _crawl_folder(self, crawl: str) -> Path:
        """Returns the folder of a crawl's footers. Raises ``UserInputError`` for a name that leads out of the store."""
        if not crawl or crawl.startswith(".") or "/" in crawl or "\0" in crawl:
            raise UserInputError(f"{crawl!r} is not a valid name of a crawl")
        return self.folder / crawl


class CrawlFooters:
    """The index of one crawl's footers: the last entry written for each path counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / _FILE
        columns = "path, file_size, etag, footer_bytes, harvested_at, reason, fault_offset"
        self.entries = {
            path: FooterEntry(path, size, etag, length, datetime.fromtimestamp(moment, UTC), reason, offset)
            for path, size, etag, length, moment, reason, offset in self._select(
                f"SELECT {columns} FROM footers ORDER BY rowid"
            )
        }

    def __contains__(self, path: str) -> bool:
        entry = self.entries.get(path)
        return entry is not None and not entry.failed

    def footer(self, path: str) -> bytes:
        """Returns metadata and trailer of a harvested file. Raises ``KeyError`` for others, ``DataFault`` for damaged
        bytes."""
        entry = self.entries[path]
        if entry.failed:
            raise KeyError(path)
        footer: bytes = _CODEC.decompress(self._read_stored(path), entry.footer_bytes + TRAILER_BYTES, asbytes=True)
        return footer

    def is_damaged(self, path: str) -> bool:
        """Whether the stored bytes of a harvested file are not the written ones."""
        try:
            self._read_stored(path)
        except DataFault:
            return True
        return False

    def read_bounds(self) -> list[KeyBounds]:
        """Returns the stored key bounds."""
        query = "SELECT path, row_group, minimum, maximum, file_size, footer FROM key_bounds"
        return [KeyBounds(*row) for row in self._select(query)]

    def _read_stored(self, path: str) -> bytes:
        """Returns the compressed footer of a file. Raises ``DataFault`` for damaged bytes."""
        query = "SELECT footer, checksum FROM footers WHERE path = ?"
        for stored, checksum in self._select(query, (path,)):
            if isinstance(stored, bytes) and zlib.crc32(stored) == checksum:
                return stored
        reason = f"the stored copy of the footer of {path} is damaged; the next harvest fetches it again"
        raise DataFault(DataKind.MISMATCH, str(self._path), None, reason)

    def _select(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        # it is empty until the first commit
        if not self._path.exists() or not self._path.stat().st_size:
            return []
        # not for reading alone: what a killed process left half-way is taken back
        address = f"{self._path.absolute().as_uri()}?mode=rw"
        with _naming(self._path), closing(sqlite3.connect(address, uri=True, timeout=_TIMEOUT)) as connection:
            return connection.execute(query, values).fetchall()


class FooterWriter(CrawlFooters):
    """Adds footers; holds the crawl's lock until closed. A context manager."""

    def __init__(self, folder: Path) -> None:
        with ExitStack() as stack, _naming(folder / _FILE):
            try:
                stack.enter_context(locked(folder / "writer.lock", timeout=0))
            except LockTimeout as error:
                raise EnvironmentFault(
                    f"another process is harvesting {folder.name}",
                    "Wait until that process has finished, then run the command again.",
                ) from error
            super().__init__(folder)
            self._uncommitted_rows: list[tuple[object, ...]] = []
            self._stack = stack.pop_all()

    def __enter__(self) -> FooterWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Makes everything durable and releases the lock, also if the disk refuses."""
        with self._stack:
            self.sync()

    def put(self, path: str, file_size: int, etag: str | None, footer: bytes) -> FooterEntry:
        """Adds the end of a file (metadata and trailer), which ``sync`` stores."""
        entry = FooterEntry(path, file_size, etag, len(footer) - TRAILER_BYTES, datetime.now(UTC))
        return self._put(entry, _CODEC.compress(footer, asbytes=True))

    def put_failure(
        self,
        path: str,
        reason: str,
        *,
        file_size: int | None = None,
        etag: str | None = None,
        offset: int | None = None,
    ) -> FooterEntry:
        """Records that a file has no usable footer, and why."""
        # half of a surrogate pair has no place in the file
        reason = reason[:2000].encode("utf-8", "backslashreplace").decode()
        return self._put(FooterEntry(path, file_size, etag, 0, datetime.now(UTC), reason, offset), b"")

    def sync(self) -> None:
        """Makes everything added so far survive a power cut. Raises ``EnvironmentFault`` when the disk refuses."""
        _commit_rows(self._path, "footers", self._uncommitted_rows)
        self._uncommitted_rows.clear()

    def _put(self, entry: FooterEntry, stored: bytes) -> FooterEntry:
        row = (
            entry.path, entry.file_size, entry.etag, entry.footer_bytes, entry.harvested_at.timestamp(), entry.reason,
            entry.fault_offset, stored, zlib.crc32(stored),
        )  # fmt: skip
        self._uncommitted_rows.append(row)
        self.entries[entry.path] = entry
        return entry


def _commit_rows(path: Path, table: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Adds rows to a table of a crawl's file, in the place of those with the same key."""
    with _naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=_TIMEOUT, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in _TABLES:
                connection.execute(statement)
            for row in rows:
                connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(row))})", row)
            connection.execute("COMMIT")


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turns errors of the file in the block into an ``EnvironmentFault`` that names it."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise EnvironmentFault(
            f"the stored footers in {path} cannot be used: {error}",
            "Check the home's disk, permissions and free space. If the file is damaged, delete it: the next harvest "
            "fetches the footers again.",
        ) from error
