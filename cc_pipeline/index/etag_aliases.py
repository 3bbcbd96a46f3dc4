"""ETag aliases: index files with different ETags but the same end and the same length are the same file.

Servers behind one name may each give an object their own ETag, and a copied or restored bucket has new ones. So after
another ETag the end of the file is compared, once: the footer of a Parquet file locates all its data, the last lines of
a ``cluster.idx`` give its number of lines. Both ETags are accepted from then on.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from cc_pipeline.errors import DataFault
from cc_pipeline.index.footers.decode import place
from cc_pipeline.index.footers.store import CrawlFooters, FooterStore
from cc_pipeline.index.parquet.fetch import ManyReader
from cc_pipeline.transport.faults import ENVIRONMENT_KINDS, FaultKind, RangeFault, join_etags, matches_etag, range_fault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes

#: If a file has more ETags than these in a run, they are ignored: each answer has a new one. At most so many are loaded
#: from other runs, so that the end of such a file is read once more.
_MAX_ETAGS: Final = 4
#: How often the end of a file is read until it has a new ETag.
_READS: Final = 4
#: Rounds in which a file is requested again: each finds a new ETag, unless all answers had known ones.
_ROUNDS: Final = 8
#: Maximum bytes of the stored aliases. Beyond them the file starts empty, since aliases can be found again.
_MAX_FILE_BYTES: Final = 16 << 20


class EtagAliases:
    """The ETags that belong to the same files. ``path`` stores them for other runs (``None``: nothing is stored), a
    JSON line each; it can be deleted at any time. Safe to share between threads."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._aliases: dict[tuple[str, str], list[str]] = {}
        self._lock = threading.Lock()
        for line in self._lines():
            with suppress(ValueError, TypeError):
                key, etag, other_etag = map(str, json.loads(line))
                self._join(key, etag, other_etag)
        for aliases in self._aliases.values():
            del aliases[1 : 1 - _MAX_ETAGS]  # the first one, by which files are kept, and the last
        self._aliases = {(key, alias): aliases for (key, alias), aliases in self._aliases.items() if alias in aliases}

    def expected(self, key: str, etag: str | None) -> str | None:
        """Returns the ETags that an answer about a file with ``etag`` may have, in the form of ``ByteRange.etag``."""
        aliases = [] if etag is None else self._aliases_of(key, etag)
        return join_etags(aliases) if 0 < len(aliases) <= _MAX_ETAGS else None

    def is_alias(self, key: str, etag: str, other_etag: str) -> bool:
        """Whether both are known to be ETags of the same file."""
        expected = self.expected(key, etag)
        return expected is None or matches_etag(other_etag, expected)

    def first(self, key: str, etag: str) -> str:
        """Returns the first known ETag of the file."""
        return self._aliases_of(key, etag)[0]

    def believe(self, key: str, etag: str, other_etag: str) -> bool:
        """Records that both are ETags of the same file; ``False`` if that was known. If it cannot be stored, the next
        run finds it again."""
        with self._lock:
            if self.is_alias(key, etag, other_etag):
                return False
            self._join(key, etag, other_etag)
            if self._path is not None:
                with suppress(OSError):
                    self._path.parent.mkdir(parents=True, exist_ok=True)
                    with self._path.open("ab") as handle:
                        # a newline first, since a crash may have left half a line
                        handle.write(b"\n" + json.dumps([key, etag, other_etag]).encode())
        return True

    def _aliases_of(self, key: str, etag: str) -> list[str]:
        return self._aliases.get((key, etag)) or [etag]

    def _join(self, key: str, etag: str, other_etag: str) -> None:
        aliases = list(dict.fromkeys((*self._aliases_of(key, etag), *self._aliases_of(key, other_etag))))
        self._aliases |= {(key, alias): aliases for alias in aliases}

    def _lines(self) -> list[bytes]:
        with suppress(OSError):
            if self._path is not None and self._path.stat().st_size <= _MAX_FILE_BYTES:
                return self._path.read_bytes().split(b"\n")
            if self._path is not None:
                self._path.unlink()
        return []


@dataclass(frozen=True, slots=True)
class FileVersion:
    """The version of a file when it was read: ETag, and length in bytes."""

    etag: str
    size: int


class SameFiles:
    """Reads ranges through ``reader``, of files whose ETags may have changed.

    ``end_of`` returns the last bytes of a file with an ETag, ``None`` if they are not known. A range with an expected
    ETag and file length accepts any ETag of the same file.
    """

    def __init__(self, reader: ManyReader, end_of: Callable[[str, str], bytes | None], aliases: EtagAliases) -> None:
        self._reader = reader
        self._end_of = end_of
        self._aliases = aliases

    def read_many(self, requests: Iterable[ByteRange], rounds: int = _ROUNDS) -> Iterator[RangeBytes | RangeFault]:
        """Reads as ``Transport.read_many``. A file with another end or length is ``changed_object``. Changed files are
        requested again in at most so many ``rounds``."""
        changed_ranges: list[tuple[ByteRange, RangeFault]] = []
        for outcome in self._reader.read_many(map(self._expecting, requests)):
            byte_range = outcome.tag
            assert isinstance(byte_range, ByteRange)
            if isinstance(outcome, RangeBytes):
                yield replace(outcome, tag=byte_range.tag)
                continue
            outcome.tag = byte_range.tag
            if outcome.kind is FaultKind.CHANGED_OBJECT and byte_range.etag is not None and rounds:
                changed_ranges.append((byte_range, outcome))
            else:
                yield outcome
        if not changed_ranges:
            return
        files = {
            byte_range.key: FileVersion(byte_range.etag, byte_range.total)
            for byte_range, _ in changed_ranges
            if byte_range.etag and byte_range.total
        }
        unchanged_keys, faults = self.find_unchanged(files)
        for byte_range, fault in changed_ranges:
            if byte_range.key not in unchanged_keys:
                cause = faults.get(byte_range.key, fault)
                location = (byte_range.key, byte_range.offset, byte_range.length)
                yield range_fault(cause.kind, *location, cause.detail, cause.attempts, tag=byte_range.tag)
        yield from self.read_many(
            [byte_range for byte_range, _ in changed_ranges if byte_range.key in unchanged_keys], rounds - 1
        )

    def is_alias(self, key: str, etag: str, other_etag: str) -> bool:
        """Whether both are known to be ETags of the same file."""
        return self._aliases.is_alias(key, etag, other_etag)

    def find_unchanged(self, files: Mapping[str, FileVersion]) -> tuple[set[str], Mapping[str, RangeFault]]:
        """Returns the keys of those ``files`` whose end is unchanged, and records their ETags; and the environment
        faults of files whose end could not be read."""
        unchanged_keys: set[str] = set()
        faults: dict[str, RangeFault] = {}
        pending_keys = [key for key, file in files.items() if self._end_of(key, file.etag) is not None]
        for _ in range(_READS):
            retry_keys = []
            for outcome in self._reader.read_many(self._ends(pending_keys, files)):
                key, file = outcome.key, files[outcome.key]
                unchanged_keys.discard(key)
                if isinstance(outcome, RangeFault):
                    if outcome.kind in ENVIRONMENT_KINDS:
                        faults[key] = outcome
                elif outcome.data == self._end_of(key, file.etag):
                    unchanged_keys.add(key)
                    if outcome.etag is not None and not self._aliases.believe(key, file.etag, outcome.etag):
                        retry_keys.append(key)
            pending_keys = retry_keys
            if not pending_keys:
                break
        return unchanged_keys, faults

    def _ends(self, keys: Iterable[str], files: Mapping[str, FileVersion]) -> Iterator[ByteRange]:
        for key in keys:
            file = files[key]
            length = len(self._end_of(key, file.etag) or b"")
            if 0 < length <= file.size:
                yield ByteRange(key, file.size - length, length, total=file.size)

    def _expecting(self, byte_range: ByteRange) -> ByteRange:
        return replace(byte_range, etag=self._aliases.expected(byte_range.key, byte_range.etag), tag=byte_range)


def same_files(reader: ManyReader, footers: FooterStore | CrawlFooters) -> SameFiles:
    """Returns a reader of index files with stored ``footers``; their ETag aliases are stored beside the footers."""
    is_one_crawl = isinstance(footers, CrawlFooters)
    aliases = EtagAliases((footers.folder.parent if is_one_crawl else footers.folder) / "etags.jsonl")
    footers_of = lru_cache(maxsize=8)(
        lambda crawl: footers if isinstance(footers, CrawlFooters) else footers.read(crawl)
    )

    def end_of(path: str, etag: str) -> bytes | None:
        """Returns the stored footer of a file with ``etag``; ``None`` if it is of another file, or missing."""
        crawl = "" if is_one_crawl else place(path)[0]
        if crawl is None:
            return None
        stored = footers_of(crawl)
        entry = stored.entries.get(path)
        if entry is None or entry.failed or entry.etag is None or not aliases.is_alias(path, entry.etag, etag):
            return None
        try:
            return stored.footer(path)
        except DataFault:
            return None

    return SameFiles(reader, end_of, aliases)
