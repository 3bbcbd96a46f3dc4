"""Walks records one after another in uncompressed bytes: finds the end of each, and resumes after a wrong length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

from cc_pipeline.archive import record as flag
from cc_pipeline.archive.gzip_members import Window
from cc_pipeline.archive.record import ArchivedRecord
from cc_pipeline.errors import DataFault, DataKind

_BLANK: Final = b"\r\n"
_HEAD: Final = 1 << 12
#: Bytes of records with unreliable lengths that may be hashed to check whether their digest confirms the length.
_VAIN_WORK: Final = 1 << 30


class RecordHeader(Protocol):
    """The part of a record header that the walk uses. In bytes; a negative length means unknown."""

    @property
    def block_start(self) -> int: ...
    @property
    def block_length(self) -> int: ...


HeaderT = TypeVar("HeaderT", bound=RecordHeader)


class Grammar(Protocol[HeaderT]):
    """One container format."""

    #: The maximum bytes of a record header, and the bytes that suffice to recognize the start of a record.
    max_header: int
    max_start: int

    def starts(self, data: bytes) -> Iterator[int]:
        """Yields the positions in ``data`` of probable records, ascending, inside a line too. The first byte of
        ``data`` only shows whether the second begins a line."""
        ...

    def begins(self, data: bytes) -> bool:
        """Whether ``data`` begins with a record."""
        ...

    def parse_header(self, data: bytes, source: str, offset: int) -> HeaderT:
        """Parses the record header at the beginning of ``data``; raises ``DataFault``."""
        ...

    def elastic(self, header: HeaderT) -> bool:
        """Whether the header's length is not binding: then the record ends where the next one begins."""
        ...

    def lost_line_ends(self, header: HeaderT, block: bytes) -> bool:
        """Whether ``block`` is shorter than declared because CR LF was converted to LF."""
        ...

    def build(self, header: HeaderT, block: bytes, source: str, flags: tuple[str, ...], tail: bytes) -> ArchivedRecord:
        """Builds the record of a header and its block; ``tail`` are the next bytes, at least the line breaks."""
        ...

    def single(self, content: bytes, source: str, offset: int) -> ArchivedRecord | None:
        """Returns the record of a sound gzip member; ``None`` unless the member holds exactly one record."""
        ...

    def measure_record(self, content: bytes) -> int:
        """Returns the size of the record at the beginning of ``content``: 0 without a record, -1 if its header
        continues after ``content``."""
        ...


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record and its location: the offset and length (bytes) of its gzip member, or of the record itself in an
    uncompressed file. For records that share a member, ``inner_offset`` counts bytes of its content; ``length`` is
    ``None`` if the member is too large to be read in advance."""

    offset: int
    length: int | None
    inner_offset: int
    record: ArchivedRecord


@dataclass(frozen=True, slots=True)
class _Step:
    """The result at one position: where to resume (-1: nowhere), optionally a record and its end, or a fault."""

    resume: int
    record: ArchivedRecord | None = None
    end: int = 0
    fault: DataFault | None = None
    last: bool = False


class PlainWalk(Generic[HeaderT]):
    """Walks the records of a window.

    ``member`` is the offset of the gzip member whose content this is (``None``: an uncompressed file).
    ``partial``: the content is the readable part of a damaged member; then only records that are certainly complete
    are given, flagged, and the end is no fault of its own. ``place`` locates a record by its first and last byte in
    the contents of several members.
    """

    def __init__(
        self,
        window: Window,
        grammar: Grammar[HeaderT],
        source: str,
        limit: int,
        member: int | None = None,
        partial: bool = False,
        place: Callable[[int, int], tuple[int, int, int, bool]] | None = None,
    ) -> None:
        self._window = window
        self._grammar = grammar
        self._source = source
        self._limit = limit
        self._member = member
        self._partial = partial
        self._place = place
        self._vain = 0

    def run(self, member_length: int | None = None) -> Iterator[StoredRecord | DataFault]:
        """Yields every record, and a ``DataFault`` for every range of bytes without one, in order."""
        position = self._skip_blank(self._window.begin)
        while position >= 0 and not self._window.is_at_end(position):
            self._window.release(position)
            step = self._step(position)
            resume = step.resume if step.resume < 0 else self._skip_blank(step.resume)
            if step.record is not None and self._certain(step):
                yield self._placed(step.record, position, step.end, member_length)
            if step.fault is not None and not (self._partial and resume < 0):
                yield step.fault
            position = resume

    def _placed(self, record: ArchivedRecord, position: int, end: int, member_length: int | None) -> StoredRecord:
        if self._partial:
            record = replace(record, flags=(*record.flags, flag.DAMAGED_MEMBER))
        if self._place is not None:
            offset, length, inner, spans_members = self._place(position, end)
            if spans_members:
                record = replace(record, flags=(*record.flags, flag.SEVERAL_MEMBERS))
            return StoredRecord(offset, length, inner, record)
        if self._member is None:
            return StoredRecord(position, end - position, 0, record)
        return StoredRecord(self._member, member_length, position, record)

    def _certain(self, step: _Step) -> bool:
        record = step.record
        if not self._partial or record is None or not step.last:
            return True
        return record.declared_digest is not None and record.declared_digest == record.payload_digest

    def _step(self, position: int) -> _Step:
        window, grammar = self._window, self._grammar
        try:
            header = self._header(position)
        except DataFault as refused:
            return _Step(self._next_start(position + 1), fault=refused)
        body = position + header.block_start
        if header.block_length > self._limit:
            return self._too_large(position, body, header.block_length)
        end = body + header.block_length
        tail = b"" if header.block_length < 0 else window.slice(end, _HEAD)
        following = tail.lstrip(_BLANK)
        short = window.seen < end
        is_last = not following or (following[:1] == b"\0" and window.ends_in_padding(end))
        fits = not short and header.block_length >= 0 and (is_last or self._begins(following, end, tail))
        if not fits and grammar.elastic(header):
            return self._elastic(position, body, header)
        if fits:
            block = window.slice(body, header.block_length)
            next_position = end + len(tail) - len(following)
            record = grammar.build(header, block, self._source, (), tail[:8])
            return _Step(-1 if is_last else next_position, record, next_position, last=is_last)
        return self._unfit(position, header, end, tail, short)

    def _unfit(self, position: int, header: HeaderT, end: int, tail: bytes, short: bool) -> _Step:
        """Handles a record without a record after its declared end. A payload with the right digest confirms the
        length. Otherwise a record that begins before the declared end shows that the length is wrong."""
        window = self._window
        body = end - header.block_length
        block = window.slice(body, header.block_length)
        record = None
        vouched = False
        if not short and self._vain < _VAIN_WORK:
            record = self._grammar.build(header, block, self._source, (flag.BYTES_AFTER_RECORD,), tail[:8])
            vouched = bool(record.payload) and record.declared_digest == record.payload_digest
        self._vain += len(block)
        start = self._next_start(end if vouched else body)
        if record is None or 0 <= start < end:
            return self._overrun(position, header, block[: start - body] if start >= 0 else block, start)
        stop = start if start >= 0 else window.seen
        garbage_start = end + len(tail) - len(tail.lstrip(_BLANK))
        fault = self._fault(
            DataKind.NOT_A_RECORD, garbage_start, f"{stop - garbage_start} bytes that belong to no record"
        )
        return _Step(start, record, garbage_start, fault, last=start < 0)

    def _begins(self, following: bytes, end: int, tail: bytes) -> bool:
        if self._grammar.begins(following):
            return True
        if b"\n" in following or len(tail) < _HEAD:
            return False
        return self._grammar.begins(self._window.slice(end, self._grammar.max_start).lstrip(_BLANK))

    def _header(self, position: int) -> HeaderT:
        where, inner = self._where(position)
        head = self._window.slice(position, _HEAD)
        try:
            return self._grammar.parse_header(head, self._source, where)
        except DataFault as first:
            refused = first
        if len(head) == _HEAD and next(self._grammar.starts(head[1:]), None) is None:
            head = self._window.slice(position, self._grammar.max_header)
            try:
                return self._grammar.parse_header(head, self._source, where)
            except DataFault as second:
                refused = second
        raise DataFault(refused.kind, refused.source, where, refused.reason + inner)

    def _elastic(self, position: int, body: int, header: HeaderT) -> _Step:
        window = self._window
        start = self._next_start(body, self._limit)
        if start < 0 and not window.is_at_end(body + self._limit):
            fault = self._fault(DataKind.TOO_LARGE, position, f"the record is larger than {self._limit} bytes")
            return _Step(self._next_start(body + self._limit), fault=fault)
        end = window.seen if start < 0 else start
        block = window.slice(body, end - body).rstrip(_BLANK)
        flags = () if header.block_length < 0 else (flag.WRONG_LENGTH,)
        record = self._grammar.build(header, block, self._source, flags, b"\n\n")
        return _Step(start, record, end, last=start < 0)

    def _too_large(self, position: int, body: int, length: int) -> _Step:
        fault = self._fault(
            DataKind.TOO_LARGE, position, f"record declares {length} bytes, more than the bound of {self._limit}"
        )
        end = body + length
        if self._window.seekable and (tail := self._window.reaches(end)):
            following = tail[1:].lstrip(_BLANK)
            if not following or self._grammar.begins(following):
                self._window.jump(end)
                return _Step(end, fault=fault)
        return _Step(self._next_start(body), fault=fault)

    def _overrun(self, position: int, header: HeaderT, present_block: bytes, start: int) -> _Step:
        """Handles a declared length that reaches into the next record (at ``start``) or past the end of the file. A
        file whose line ends were converted to LF lost a byte a line: its records are given, flagged."""
        if self._grammar.lost_line_ends(header, present_block):
            record = self._grammar.build(
                header, present_block.rstrip(b"\n"), self._source, (flag.WRONG_LENGTH,), b"\n\n"
            )
            return _Step(start, record, self._window.seen if start < 0 else start, last=start < 0)
        words = "are there" if start < 0 else "lie before the next record"
        reason = f"record declares {header.block_length} bytes, {len(present_block)} {words}"
        return _Step(start, fault=self._fault(DataKind.LENGTH_MISMATCH, position, reason))

    def _next_start(self, offset: int, max_distance: int | None = None) -> int:
        """Returns the next record start at or after ``offset`` (which is not 0); -1 if there is none within
        ``max_distance`` bytes."""

        def find(piece: bytes) -> Iterator[int]:
            return (place for place in self._grammar.starts(piece) if place)

        reach = None if max_distance is None else max_distance + 1
        return self._window.search(find, offset - 1, self._grammar.max_start, reach)

    def _skip_blank(self, position: int) -> int:
        size = 64
        while True:
            piece = self._window.slice(position, size)
            bare = piece.lstrip(_BLANK)
            position += len(piece) - len(bare)
            if bare or not piece:
                return position
            self._window.release(position)
            size = _HEAD

    def _where(self, position: int) -> tuple[int, str]:
        if self._member is None:
            return position, ""
        return self._member, f", {position} bytes into the gzip member" if position else ""

    def _fault(self, kind: DataKind, position: int, reason: str) -> DataFault:
        where, inner = self._where(position)
        return DataFault(kind, self._source, where, reason + inner)
