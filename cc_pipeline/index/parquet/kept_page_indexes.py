"""A look-up spends its first requests on page indexes. A harvest can keep them, so that a look-up knows its pages
before its first request, and its price.

They lie in one SQLite file a crawl, beside its footers; a row is an index file. Each says which file it is of: its size
and the digest of its footer. The SQLite file can be deleted at any time: look-ups then ask for page indexes themselves.
"""

from __future__ import annotations

import sqlite3
import struct
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from cc_pipeline import progress
from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault
from cc_pipeline.index.etags import RangeReader, same_files
from cc_pipeline.index.footers.decode import place
from cc_pipeline.index.footers.store import CrawlFooters, FooterEntry, FooterStore, footer_digest
from cc_pipeline.index.parquet.cost_estimate import index_pieces
from cc_pipeline.index.parquet.fetch import Piece, coalesce, run_end
from cc_pipeline.index.parquet.finder import decoded_file
from cc_pipeline.index.parquet.places import KEY, column_place
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes

_NAME: Final = "page-indexes.sqlite"
_TABLE: Final = """CREATE TABLE IF NOT EXISTS kept (
    path TEXT PRIMARY KEY, size INTEGER, footer TEXT, etag TEXT, reason TEXT,
    plain INTEGER, crc INTEGER, pieces BLOB)"""
_PUT: Final = "INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
#: Raised when an older file would be read wrongly; it is begun anew.
_LAYOUT: Final = 1
#: Seconds to wait for another process that is writing.
_PATIENCE: Final = 10.0
#: offset and length of a piece
_PLACE: Final = struct.Struct("<QI")
_COUNT: Final = struct.Struct("<I")
#: The most page index bytes of one file that are believed and held: a real file has some 1.5 MB.
MOST_BYTES: Final = 32 << 20
_CODEC: Final = pa.Codec("zstd")


class KeptIndexes:
    """The kept page indexes of all crawls whose footers are in ``store``, for reading; safe to use from threads.

    ``problems`` says in words what could not be used.
    """

    def __init__(self, store: FooterStore) -> None:
        self.problems: list[str] = []
        self._store = store
        self._refused: set[str] = set()
        self._served: set[str] = set()
        self._files: dict[str, sqlite3.Connection | None] = {}
        self._footers: dict[str, CrawlFooters] = {}
        self._lock = threading.Lock()

    def find(self, path: str, etag: str | None, pieces: Iterable[Piece]) -> dict[Piece, bytes]:
        """Those of ``pieces`` of the file ``path`` (under ``etag``) that were kept of this very file."""
        crawl, _, _ = place(path)
        if crawl is None or path in self._refused:
            return {}
        with self._lock:
            here = self._pieces(crawl, path, etag)
        found = {piece: here[piece[1:]] for piece in pieces if piece[1:] in here}
        if found:
            self._served.add(path)
        return found

    def refuse(self, path: str) -> bool:
        """Gives nothing of ``path`` any more, because what was given led astray; whether anything was given."""
        if path not in self._served or path in self._refused:
            return False
        self._refused.add(path)
        self.problems.append(f"the page index that the harvest kept of {path} is not that of the file: it was not used")
        return True

    def close(self) -> None:
        """Closes the files."""
        with self._lock:
            for con in self._files.values():
                if con is not None:
                    con.close()
            self._files.clear()

    def _pieces(self, crawl: str, path: str, etag: str | None) -> dict[tuple[int, int], bytes]:
        try:
            con = self._opened(crawl)
            query = "SELECT size, footer, etag, plain, crc, pieces FROM kept WHERE path = ? AND pieces IS NOT NULL"
            row = None if con is None else con.execute(query, [path]).fetchone()
        except sqlite3.Error as error:
            if (opened := self._files.get(crawl)) is not None:
                opened.close()
            self._files[crawl] = None
            self.problems.append(f"the page indexes that the harvest kept of {crawl} cannot be read ({error})")
            return {}
        if row is None:
            return {}
        size, digest, kept_etag, plain, crc, packed = row
        if (etag is None or kept_etag != etag) and not self._is_of(crawl, path, etag, size, digest):
            return {}
        unpacked = _unpacked(plain, crc, packed)
        if unpacked is None:
            self.problems.append(f"the page index that the harvest kept of {path} has changed since: it was not used")
            return {}
        return unpacked

    def _opened(self, crawl: str) -> sqlite3.Connection | None:
        if crawl not in self._files:
            self._files[crawl] = None
            path = _file(self._store, crawl)
            if path.exists():
                address = f"{path.resolve().as_uri()}?mode=ro"
                con = sqlite3.connect(address, timeout=_PATIENCE, uri=True, check_same_thread=False)
                self._files[crawl] = con
                if con.execute("PRAGMA user_version").fetchone() != (_LAYOUT,):
                    raise sqlite3.DatabaseError("another version of cc_pipeline wrote them")
        return self._files[crawl]

    def _is_of(self, crawl: str, path: str, etag: str | None, size: int, digest: str) -> bool:
        """Whether the footer that the home has of ``path`` under ``etag`` is the one of the kept page index."""
        if crawl not in self._footers:
            self._footers[crawl] = self._store.read(crawl)
        footers = self._footers[crawl]
        entry = footers.entries.get(path)
        if entry is None or entry.failed or entry.etag != etag or entry.file_size != size:
            return False
        try:
            return footer_digest(footers.footer(path)) == digest
        except DataFault:
            return False


class KeptWriter:
    """Adds page indexes of one crawl, each of them durable when it was put. A context manager.

    A file that cannot be read as SQLite is begun anew: everything in it can be asked for again.
    """

    def __init__(self, store: FooterStore, crawl: str) -> None:
        path = _file(store, crawl)
        try:
            try:
                self._con = _writable(path)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise
                path.unlink(missing_ok=True)
                self._con = _writable(path)
        except (sqlite3.Error, OSError) as error:
            raise _refused(path, error) from error
        self._path = path

    def __enter__(self) -> KeptWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._con.close()

    def known(self) -> dict[str, tuple[int, str, str | None]]:
        """Size, digest of the footer, and ETag of each file whose page index is here, or that has none to keep."""
        return {path: (size, digest, etag) for path, size, digest, etag in self._con.execute(
            "SELECT path, size, footer, etag FROM kept"
        )}  # fmt: skip

    def put(self, path: str, size: int, digest: str, etag: str | None, pieces: Mapping[Piece, bytes]) -> int:
        """Keeps a file's page index; gives the bytes it takes."""
        plain = _packed(pieces)
        packed: bytes = _CODEC.compress(plain, asbytes=True)
        self._write(_PUT, [path, size, digest, etag, None, len(plain), zlib.crc32(packed), packed])
        return len(packed)

    def put_none(self, path: str, size: int, digest: str, etag: str | None, reason: str) -> None:
        """Remembers that the file has no page index to keep, and why."""
        self._write(_PUT, [path, size, digest, etag, reason, None, None, None])

    def rows(self) -> list[tuple[Any, ...]]:
        """All that is kept, a row a file."""
        return self._con.execute("SELECT * FROM kept").fetchall()

    def put_row(self, values: list[object]) -> None:
        """Keeps a row as another home had it."""
        self._write(_PUT, values)

    def same_under(self, path: str, etag: str | None) -> None:
        """The same file under another ETag: a mirror, or a bucket copied."""
        self._write("UPDATE kept SET etag = ? WHERE path = ?", [etag, path])

    def _write(self, statement: str, values: list[object]) -> None:
        try:
            self._con.execute(statement, values)
        except sqlite3.Error as error:
            raise _refused(self._path, error) from error


_HANDED: Final = pa.schema(
    [("path", pa.string()), ("size", pa.int64()), ("footer", pa.string()), ("etag", pa.string()),
     ("reason", pa.string()), ("plain", pa.int64()), ("crc", pa.int64()), ("pieces", pa.binary())]
)  # fmt: skip
#: Rows of page indexes held at a time: a real one has some 0.5 MB.
_AT_ONCE: Final = 16


def write_page_indexes(store: FooterStore, crawl: str, to: Path) -> None:
    """Writes what was kept of ``crawl`` as a Parquet file, as it is kept. Raises ``EnvironmentFault`` where there is
    nothing."""
    if not _file(store, crawl).exists():
        raise EnvironmentFault(
            f"no page indexes of {crawl} are kept here",
            f"Keep them first: CC_PIPELINE_PAGE_INDEXES=yes cc-pipeline harvest --crawl {crawl}",
        )
    con = sqlite3.connect(f"{_file(store, crawl).resolve().as_uri()}?mode=ro", uri=True)
    try:
        rows = con.execute("SELECT * FROM kept ORDER BY path")
        with pq.ParquetWriter(to, _HANDED, compression="none") as writer:
            while some := rows.fetchmany(_AT_ONCE):
                columns = zip(*some, strict=True)
                writer.write_batch(pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, _HANDED, strict=True)],
                                                   schema=_HANDED))  # fmt: skip
    finally:
        con.close()


def _handed(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of such a file. Raises ``DataFault`` for any other, and for rows whose bytes changed."""
    try:
        with pq.ParquetFile(file) as opened:
            if not opened.schema_arrow.equals(_HANDED):
                raise DataFault(DataKind.MALFORMED, file.name, None, "it has no page indexes of a crawl")
            for batch in opened.iter_batches(_AT_ONCE):
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise DataFault(DataKind.MALFORMED, file.name, None, str(error).splitlines()[0]) from error


def differing_page_indexes(file: Path, store: FooterStore, crawl: str, paths: Sequence[str]) -> str | None:
    """The first of ``paths`` whose page index in ``file`` is not the one in ``store``; ``None`` where all agree."""
    with KeptWriter(store, crawl) as writer:
        here = {row[0]: row for row in writer.rows() if row[0] in {*paths}}
    for row in _handed(file):
        path, size, footer, *_, plain, crc, pieces = row.values()
        known = here.get(path)
        if known is not None and (
            (size, footer) != known[1:3] or _unpacked(plain, crc, pieces) != _unpacked(*known[5:])
        ):
            return str(path)
    return None


def copy_page_indexes(file: Path, store: FooterStore, crawl: str, index_files: pa.Table) -> int:
    """Keeps the page indexes in ``file`` that are of ``index_files``, by size and ETag; gives how many. Of a file that
    something is kept of already, that stays. Raises ``DataFault`` for a row that has no page index."""
    known = {row["path"]: (row["file_size"], row["etag"]) for row in index_files.to_pylist()}
    kept = 0
    with KeptWriter(store, crawl) as writer:
        here = writer.known()
        for row in _handed(file):
            if row["path"] not in here and row["etag"] and known.get(row["path"]) == (row["size"], row["etag"]):
                *_, plain, crc, pieces = row.values()
                if pieces is not None and _unpacked(plain, crc, pieces) is None:
                    raise DataFault(DataKind.MALFORMED, file.name, None, f"what it has of {row['path']} cannot be read")
                writer.put_row(list(row.values()))
                kept += 1
    return kept


def _file(store: FooterStore, crawl: str) -> Path:
    return store.crawl_folder(crawl) / _NAME


def _writable(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    con = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
    try:
        if con.execute("PRAGMA user_version").fetchone() != (_LAYOUT,):
            con.execute("DROP TABLE IF EXISTS kept")
            con.execute(f"PRAGMA user_version = {_LAYOUT}")
        con.execute(_TABLE)
    except sqlite3.Error:
        con.close()
        raise
    return con


def _refused(path: Path, error: Exception) -> EnvironmentFault:
    return EnvironmentFault(
        f"page indexes could not be kept in {path}: {error}",
        "Check the home's disk, and that it has free space; the file can be deleted.",
    )


def _packed(pieces: Mapping[Piece, bytes]) -> bytes:
    ordered = sorted(pieces)
    head = b"".join(_PLACE.pack(piece.offset, piece.length) for piece in ordered)
    return _COUNT.pack(len(ordered)) + head + b"".join(pieces[piece] for piece in ordered)


def _unpacked(plain: int | None, crc: int | None, packed: bytes | None) -> dict[tuple[int, int], bytes] | None:
    """What was kept, by offset and length; ``None`` for a file without page indexes, and for bytes that changed since,
    or that were never packed here: an imported row has whatever somebody wrote."""
    if packed is None or plain is None or zlib.crc32(packed) != crc or not 0 <= plain <= 2 * MOST_BYTES:
        return None
    try:
        data: bytes = _CODEC.decompress(packed, plain, asbytes=True)
        (count,) = _COUNT.unpack_from(data)
        start = _COUNT.size + count * _PLACE.size
        places = list(_PLACE.iter_unpack(data[_COUNT.size : start]))
    except (OSError, pa.ArrowException, struct.error):
        return None
    found = {}
    for offset, length in places:
        found[offset, length] = data[start : start + length]
        start += length
    return found if start == len(data) else None


@dataclass(slots=True)
class KeepReport:
    """``kept`` files got a page index, ``without`` have none to keep. ``requests`` brought ``bytes``, which take
    ``stored`` bytes on disk. ``failed`` has path and reason of the files that have to be asked again."""

    kept: int = 0
    without: int = 0
    requests: int = 0
    bytes: int = 0
    stored: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class _File:
    """A file whose page index is being fetched."""

    entry: FooterEntry
    digest: str
    runs: int
    pieces: dict[Piece, bytes] = field(default_factory=dict)


def keep_page_indexes(crawl: str, paths: Sequence[str], reader: RangeReader, store: FooterStore) -> KeepReport:
    """Fetches and keeps what look-ups read of the page indexes of ``paths``, where that is not here yet.

    Files without a stored footer are passed over. A fault costs its file alone, which is asked again by the next
    harvest: look-ups can do without. Raises ``EnvironmentFault`` when the disk refuses.
    """
    footers = store.read(crawl)
    with KeptWriter(store, crawl) as writer:
        run = _Keeping(crawl, writer, footers, KeepReport())
        run.fetch(same_files(reader, store), paths)
        return run.report


@dataclass(slots=True)
class _Keeping:
    """Page indexes while they are fetched."""

    crawl: str
    writer: KeptWriter
    footers: CrawlFooters
    report: KeepReport
    stopped: bool = False

    def fetch(self, reader: RangeReader, paths: Sequence[str]) -> None:
        known = self.writer.known()
        stale = []
        for path in dict.fromkeys(paths):
            if path in self.footers and (digest := self._digest(path, known.get(path))) is not None:
                stale.append((path, digest))
        for done, outcome in enumerate(reader.read_many(self._requests(stale)), start=1):
            file = outcome.tag
            assert isinstance(file, _File)
            if isinstance(outcome, RangeFault):
                file.runs = -1
                self.stopped = self.stopped or outcome.kind is FaultKind.BREAKER_OPEN
                self.report.failed.append((file.entry.path, f"{outcome.kind.value}: {outcome.detail}"))
            elif file.runs > 0:
                self._take(file, outcome)
            progress.report("page indexes", min(done, len(stale)), len(stale), self.crawl)

    def _digest(self, path: str, known: tuple[int, str, str | None] | None) -> str | None:
        """The digest of a footer whose page index is not here; ``None`` where it is, or the footer is rotten."""
        entry = self.footers.entries[path]
        try:
            digest = footer_digest(self.footers.footer(path))
        except DataFault:
            return None
        if known is None or known[:2] != (entry.file_size, digest):
            return digest
        if known[2] != entry.etag:
            self.writer.same_under(path, entry.etag)
        return None

    def _requests(self, stale: Sequence[tuple[str, str]]) -> Iterator[ByteRange]:
        for path, digest in stale:
            if self.stopped:
                return
            entry = self.footers.entries[path]
            size = entry.file_size or 0
            try:
                pieces = _wanted(self.footers.footer(path), entry)
            except DataFault as fault:
                self._without(entry, digest, fault.reason)
                continue
            if not pieces:
                self._without(entry, digest, "the file has no page index")
                continue
            runs = coalesce(pieces)
            if sum(run_end(run) - run[0].offset for run in runs) > MOST_BYTES:
                self._without(entry, digest, f"a page index of more than {MOST_BYTES:,} bytes")
                continue
            file = _File(entry, digest, len(runs))
            for run in runs:
                self.report.requests += 1
                length = min(run_end(run), size) - run[0].offset
                yield ByteRange(path, run[0].offset, length, entry.etag, file, total=entry.file_size)

    def _take(self, file: _File, answer: RangeBytes) -> None:
        self.report.bytes += len(answer.data)
        if answer.total != file.entry.file_size:
            file.runs = -1
            self.report.failed.append((file.entry.path, "the file has another size than when its footer was read"))
            return
        path = file.entry.path
        # the plan is made again from the footer: what waits for an answer is then only a few numbers
        for piece in _wanted(self.footers.footer(path), file.entry):
            start = piece.offset - answer.offset
            if start >= 0 and start + piece.length <= len(answer.data):
                file.pieces[piece] = answer.data[start : start + piece.length]
        file.runs -= 1
        if not file.runs:
            size = file.entry.file_size or 0
            self.report.stored += self.writer.put(path, size, file.digest, file.entry.etag, file.pieces)
            self.report.kept += 1
            file.pieces.clear()

    def _without(self, entry: FooterEntry, digest: str, reason: str) -> None:
        self.writer.put_none(entry.path, entry.file_size or 0, digest, entry.etag, reason)
        self.report.without += 1


def _wanted(footer: bytes, entry: FooterEntry) -> list[Piece]:
    """What look-ups read of the page index of a file, of all columns and row groups. Raises ``DataFault``."""
    file, groups = decoded_file(entry.path, footer, entry.file_size or 0, entry.etag)
    pieces: list[Piece] = []
    for group in groups:
        columns = {name: column_place(file, chunk) for name, chunk in group.chunks.items()}
        key = columns.get(KEY)
        if key is None or key.column_index is None or key.offset_index is None:
            continue
        for column in columns.values():
            pieces += index_pieces(entry.path, column, group.rows)
    return pieces
