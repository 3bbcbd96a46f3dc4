"""WARC: one range-fetched member, or whole files, as the standard and the wild have them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cc_pipeline.archive import flags as flag
from cc_pipeline.archive.headers import lost_carriage_returns
from cc_pipeline.archive.members import DEFAULT_LIMIT, GZIP_MAGIC, describe_non_gzip, inflate_member
from cc_pipeline.archive.plainwalk import StoredRecord
from cc_pipeline.archive.record import ArchivedRecord
from cc_pipeline.archive.walk import iter_stored
from cc_pipeline.archive.warcheader import MAX_HEADER, WarcHeader, begins_record, parse_header
from cc_pipeline.archive.warcrecord import build_record
from cc_pipeline.archive.windows import ByteSource
from cc_pipeline.errors import DataFault

_VERSION_LINE = re.compile(rb"WARC/\d+\.\d+[ \t]*\r?\n")
_END = b"\r\n\r\n"
_BLANK = b"\r\n"


def read_record(member: bytes, source: str, offset: int, limit: int = DEFAULT_LIMIT) -> ArchivedRecord:
    """The record in ``member``: one range-fetched gzip member, or one uncompressed record.

    ``source`` and ``offset`` say where the bytes lie, for faults. Raises ``DataFault`` where the member is
    damaged, cut off or larger than ``limit`` bytes, the header is no WARC header, or the content ends before
    the declared Content-Length.
    """
    if member[:3] == GZIP_MAGIC:
        inflated = inflate_member(member, source, offset, limit)
        odd = () if inflated.consumed == len(member) else (flag.BYTES_AFTER_MEMBER,)
        return parse_record(inflated.content, source, offset, odd)
    if not member.lstrip(_BLANK).startswith(b"WARC/"):
        raise DataFault(source, offset, describe_non_gzip(member))
    return parse_record(member, source, offset)


def iter_records(stream: ByteSource, source: str, limit: int = DEFAULT_LIMIT) -> Iterator[ArchivedRecord | DataFault]:
    """Every record of a whole WARC file (a path, bytes, or a binary stream), in order.

    Compressed by record, as one gzip member, or not at all. A ``DataFault`` stands for each stretch that cannot
    be read, and reading goes on behind it; a file without any record gives at least one. ``limit`` bounds a
    record, and memory with it. Raises nothing but ``EnvironmentFault``, for a path that cannot be opened.
    """
    for found in iter_located(stream, source, limit):
        yield found.record if isinstance(found, StoredRecord) else found


def iter_located(stream: ByteSource, source: str, limit: int = DEFAULT_LIMIT) -> Iterator[StoredRecord | DataFault]:
    """Like ``iter_records``, with the place of each record."""
    return iter_stored(stream, source, WarcGrammar(), limit)


def parse_record(content: bytes, source: str, offset: int, odd: tuple[str, ...] = ()) -> ArchivedRecord:
    """The first record of inflated ``content``; bytes behind its end are flagged. Raises ``DataFault``."""
    header = parse_header(content, source, offset)
    start = header.block_start
    end = start + header.block_length
    if end > len(content):
        block = content[start:]
        if flag.LF_ONLY in header.flags and lost_carriage_returns(block, header.block_length):
            block = block.rstrip(b"\n")
            return build_record(header, block, 0, len(block), source, (*odd, flag.WRONG_LENGTH))
        raise DataFault(source, offset, f"record declares {header.block_length} bytes, {len(block)} are there")
    tail = content[end:]
    if tail != _END:
        if not _ends_record(tail):
            odd += (flag.MISSING_RECORD_END,)
        if tail.strip(_BLANK):
            odd += (flag.BYTES_AFTER_RECORD,)
    return build_record(header, content, start, end, source, odd)


class WarcGrammar:
    """WARC for ``walk.iter_stored``."""

    max_header = MAX_HEADER
    max_start = 64

    def starts(self, data: bytes) -> Iterator[int]:
        return (match.start() for match in _VERSION_LINE.finditer(data))

    def begins(self, data: bytes) -> bool:
        return begins_record(data)

    def parse_header(self, data: bytes, source: str, offset: int) -> WarcHeader:
        return parse_header(data, source, offset)

    def elastic(self, header: WarcHeader) -> bool:
        return False

    def lost_line_ends(self, header: WarcHeader, block: bytes) -> bool:
        return flag.LF_ONLY in header.flags and lost_carriage_returns(block, header.block_length)

    def build(self, header: WarcHeader, block: bytes, source: str, odd: tuple[str, ...], tail: bytes) -> ArchivedRecord:
        ended = odd if _ends_record(tail) else (*odd, flag.MISSING_RECORD_END)
        return build_record(header, block, 0, len(block), source, ended)

    def single(self, content: bytes, source: str, offset: int) -> ArchivedRecord | None:
        try:
            header = parse_header(content, source, offset)
        except DataFault:
            return None
        end = header.block_start + header.block_length
        tail = content[end:]
        if end > len(content) or tail.strip(_BLANK):
            return None
        odd = () if _ends_record(tail) else (flag.MISSING_RECORD_END,)
        return build_record(header, content, header.block_start, end, source, odd)


def _ends_record(tail: bytes) -> bool:
    return tail[:4] == _END or tail[: len(tail) - len(tail.lstrip(_BLANK))].count(b"\n") >= 2
