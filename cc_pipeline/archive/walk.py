"""Walks complete files: compressed by member, as one member, or not at all; resumes after damage."""

from __future__ import annotations

import io
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Final

from cc_pipeline.archive import record as flag
from cc_pipeline.archive.gzip_members import (
    DEFAULT_LIMIT,
    GZIP_MAGIC,
    ByteSource,
    InflatedMember,
    LargeMember,
    MemberReader,
    Window,
    inflate_at,
    inflate_member,
    open_window,
    other_compression,
    salvage,
)
from cc_pipeline.archive.plainwalk import Grammar, HeaderT, PlainWalk, StoredRecord
from cc_pipeline.archive.record import ArchivedRecord
from cc_pipeline.errors import DataFault, DataKind

_BLANK: Final = b"\r\n"
_PROBE: Final = 1 << 16
#: Bytes of a file that may be inflated or examined in vain before the rest is skipped.
_VAIN_WORK: Final = 4 << 30


class _Search:
    """Searches the next member after damage, and counts the bytes spent on it."""

    def __init__(self, window: Window, is_record_start: Callable[[int], bool]) -> None:
        self._window = window
        self._is_record_start = is_record_start
        self.vain = 0

    def find_member(self, offset: int) -> int:
        """Returns the offset of the next member that begins a record, at or after ``offset``; -1 if there is none."""
        position = offset
        while self.vain < _VAIN_WORK:
            position = self._window.search(_magic_places, position, len(GZIP_MAGIC))
            if position < 0 or self._is_record_start(position):
                return position
            position += 1
        return -1

    @property
    def is_exhausted(self) -> bool:
        return self.vain >= _VAIN_WORK


def _magic_places(data: bytes) -> Iterator[int]:
    place = data.find(GZIP_MAGIC)
    while place >= 0:
        yield place
        place = data.find(GZIP_MAGIC, place + 1)


def iter_stored(
    stream: ByteSource, source: str, grammar: Grammar[HeaderT], limit: int = DEFAULT_LIMIT
) -> Iterator[StoredRecord | DataFault]:
    """Yields every record of a file with its location, and a ``DataFault`` for each range of bytes without one.

    Raises only ``EnvironmentFault``, for a path that cannot be opened.
    """
    with open_window(stream) as window:
        head = window.slice(window.begin, _PROBE)
        if not head.strip(_BLANK):
            message = "no record: nothing but line breaks" if head else "no record: no bytes"
            yield DataFault(DataKind.NOT_A_RECORD, source, window.begin, message)
        elif name := _other_compression(head, grammar):
            reason = f"the file is compressed with {name}, which is not supported: compress it with gzip, by record"
            yield DataFault(DataKind.UNSUPPORTED, source, window.begin, reason)
        elif _begins_compressed(head, grammar):
            yield from _compressed(window, source, grammar, limit)
        else:
            yield from PlainWalk(window, grammar, source, limit).run()


def _other_compression(head: bytes, grammar: Grammar[HeaderT]) -> str | None:
    """Returns the name of a file's compression other than gzip; a few bytes of damage before records do not count."""
    name = other_compression(head)
    if name is None or _begins_compressed(head, grammar):
        return None
    # LZ4 stores short texts unchanged, so that its files seem to have records
    return name if name == "LZ4" or next(grammar.starts(b"\n" + head), None) is None else None


def _begins_compressed(head: bytes, grammar: Grammar[HeaderT]) -> bool:
    """Whether a file is compressed, by its first record, with or without garbage before it."""
    if grammar.begins(head.lstrip(_BLANK)):
        return False
    plain = next(grammar.starts(b"\n" + head), len(head) + 1)
    window = Window(io.BytesIO(head))
    if any(grammar.begins(salvage(window, place, _PROBE).lstrip(_BLANK)) for place in _magic_places(head[:plain])):
        return True
    return plain > len(head) and head[:2] == GZIP_MAGIC[:2]


def _compressed(
    window: Window, source: str, grammar: Grammar[HeaderT], limit: int
) -> Iterator[StoredRecord | DataFault]:
    def is_record_start(member_offset: int) -> bool:
        content = salvage(window, member_offset, _PROBE)
        search.vain += len(content) + 64
        return grammar.begins(content.lstrip(_BLANK))

    search = _Search(window, is_record_start)
    position = window.begin
    has_records = False
    while position >= 0 and not window.is_at_end(position):
        window.release(position)
        if has_records and window.ends_in_padding(position):
            break
        outcome = inflate_at(window, position, limit)
        if isinstance(outcome, InflatedMember):
            record = grammar.single(outcome.content, source, outcome.offset) if outcome.content else None
            sound = record is not None and flag.WRONG_LENGTH not in record.flags
            if sound or not outcome.content or not _may_continue(outcome, window, grammar):
                for stored in _read_member(outcome, record, source, grammar, limit):
                    has_records = True
                    yield stored
                position += outcome.consumed
                continue
            run = RunReader(window, position, lambda content: grammar.begins(content.lstrip(_BLANK)))
            for stored in PlainWalk(Window(run), grammar, source, limit, position, place=run.place).run():
                has_records = True
                yield stored
            if run.fault is not None:
                kind, reason = run.fault
                yield DataFault(kind, source, position, reason)
            position = run.position if run.fault is None else search.find_member(run.position)
        elif isinstance(outcome, LargeMember):
            reader = MemberReader(window, position)
            for stored in PlainWalk(Window(reader), grammar, source, limit, position).run():
                has_records = True
                yield stored
            if reader.fault is not None:
                kind, reason = reader.fault
                yield DataFault(kind, source, position, reason)
            position = reader.position if reader.ended else search.find_member(reader.position)
        else:
            has_records = True
            content = salvage(window, position, limit)
            if grammar.begins(content.lstrip(_BLANK)):
                yield from PlainWalk(Window(io.BytesIO(content)), grammar, source, limit, position, partial=True).run()
            yield DataFault(outcome.kind, source, position, outcome.reason)
            search.vain += outcome.examined + len(content)
            position = search.find_member(position + 1)
    if search.is_exhausted:
        yield DataFault(DataKind.TOO_LARGE, source, None, "too much damage, the rest was not read")
    if not has_records:
        yield DataFault(
            DataKind.NOT_A_RECORD, source, window.begin, "no record: nothing but line breaks in the gzip members"
        )


def _may_continue(member: InflatedMember, window: Window, grammar: Grammar[HeaderT]) -> bool:
    """Whether the next member does not begin with a record, so that it may hold the rest of this member's."""
    if not grammar.measure_record(member.content):
        return False
    next_offset = member.offset + member.consumed
    if window.slice(next_offset, len(GZIP_MAGIC)) != GZIP_MAGIC:
        return False
    following = salvage(window, next_offset, _PROBE)
    return bool(following.strip(_BLANK)) and not grammar.begins(following.lstrip(_BLANK))


def _read_member(
    member: InflatedMember, record: ArchivedRecord | None, source: str, grammar: Grammar[HeaderT], limit: int
) -> Iterator[StoredRecord | DataFault]:
    """Yields the records and faults of a member; ``record`` if it holds exactly one."""
    if record is not None:
        yield StoredRecord(member.offset, member.consumed, 0, record)
    elif member.content:
        yield from PlainWalk(Window(io.BytesIO(member.content)), grammar, source, limit, member.offset).run(
            member.consumed
        )


def inflate_run(
    data: bytes, source: str, offset: int, limit: int, measure: Callable[[bytes], int]
) -> tuple[bytes, tuple[str, ...]]:
    """Returns the content of the first gzip member of ``data`` and of the next ones that its record needs, and flags.

    ``measure`` returns the size of the record at the beginning of content: 0 without one, -1 if more content is needed.
    A later member that begins its own record is ignored. Raises as ``inflate_member`` does.
    """
    first = inflate_member(data, source, offset, limit)
    content, consumed = first.content, first.consumed
    need = measure(content) if consumed < len(data) else 0
    parts, size, window = [content], len(content), Window(io.BytesIO(data))
    while (need < 0 or size < need) and size < limit:
        following = inflate_at(window, consumed, limit - size)
        if not isinstance(following, InflatedMember) or measure(following.content) > 0:
            break
        parts.append(following.content)
        size += len(following.content)
        consumed += following.consumed
        if need < 0 and size >= 2 * len(content):
            content = b"".join(parts)
            parts, need = [content], measure(content)
    trailing_flags = () if consumed == len(data) else (flag.BYTES_AFTER_MEMBER,)
    return b"".join(parts), (*trailing_flags, *((flag.SEVERAL_MEMBERS,) if consumed > first.consumed else ()))


class RunReader:
    """``read(n)`` over the joined contents of adjacent members; it ends before a member that begins a record, by
    ``ends``, and at damage."""

    def __init__(self, window: Window, offset: int, ends: Callable[[bytes], bool]) -> None:
        self._window = window
        self._ends = ends
        self._member = MemberReader(window, offset)
        #: The start of each member: in the contents and in the file.
        self._begins = [(0, offset)]
        self._read = 0
        self._is_finished = False

    @property
    def position(self) -> int:
        """The end of the last member, or the offset up to which it was read."""
        return self._member.position

    @property
    def fault(self) -> tuple[DataKind, str] | None:
        """Kind and reason of the damage that ended the reading."""
        return self._member.fault

    def read(self, size: int, /) -> bytes:
        while not self._is_finished:
            if part := self._member.read(size):
                self._read += len(part)
                return part
            next_offset = self._member.position
            head = b"" if self.fault else self._window.slice(next_offset, len(GZIP_MAGIC))
            if head != GZIP_MAGIC or self._ends(salvage(self._window, next_offset, _PROBE)):
                self._is_finished = True
                break
            self._member = MemberReader(self._window, next_offset)
            self._begins.append((self._read, next_offset))
        return b""

    def place(self, begin: int, end: int) -> tuple[int, int, int, bool]:
        """Locates bytes of the contents: returns offset and length of their member (or of all their members), the
        position of the first byte in it, and whether they are in several."""
        first = bisect_right(self._begins, begin, key=lambda member_start: member_start[0]) - 1
        last = max(first, bisect_left(self._begins, end, key=lambda member_start: member_start[0]) - 1)
        inner, offset = self._begins[first]
        stop = self._begins[last + 1][1] if last + 1 < len(self._begins) else self.position
        return offset, stop - offset, begin - inner, last > first
