"""Fetches the page indexes of a crawl's files after their footers, one request a file, and keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cc_pipeline import progress
from cc_pipeline.errors import DataFault
from cc_pipeline.index.faces import RangeReader, same_files
from cc_pipeline.index.footers.store import CrawlFooters, FooterEntry, FooterStore
from cc_pipeline.index.parquet.fetch import Piece, coalesce, run_end
from cc_pipeline.index.parquet.finder import decoded_file
from cc_pipeline.index.parquet.kept import MOST_BYTES, KeptWriter, footer_digest, index_pieces
from cc_pipeline.index.parquet.places import KEY, column_place
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes


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
