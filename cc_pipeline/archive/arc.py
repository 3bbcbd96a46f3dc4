"""ARC: one range-fetched member, or whole files, as 2008-2012 wrote them and as the wild has them."""

from __future__ import annotations

from collections.abc import Iterator

from cc_pipeline.archive import flags as flag
from cc_pipeline.archive.archeader import MAX_LINE, ArcHeader, begins_record, parse_header, record_starts
from cc_pipeline.archive.arcrecord import build_record
from cc_pipeline.archive.headers import lost_carriage_returns
from cc_pipeline.archive.members import DEFAULT_LIMIT, GZIP_MAGIC, describe_non_gzip, inflate_member
from cc_pipeline.archive.plainwalk import StoredRecord
from cc_pipeline.archive.record import ArchivedRecord
from cc_pipeline.archive.walk import iter_stored
from cc_pipeline.archive.windows import ByteSource
from cc_pipeline.errors import DataFault

_BLANK = b"\r\n"


def read_record(member: bytes, source: str, offset: int, limit: int = DEFAULT_LIMIT) -> ArchivedRecord:
    """The record in ``member``: one range-fetched gzip member, or one uncompressed record.

    A sound gzip member outranks its record's declared length (files of 2012 declare wrong ones): the record is
    flagged and ends where the member ends. Raises ``DataFault`` where the member is damaged, cut off or larger
    than ``limit`` bytes, the first line is no URL record line, or uncompressed content ends too early.
    """
    if member[:3] == GZIP_MAGIC:
        inflated = inflate_member(member, source, offset, limit)
        odd = () if inflated.consumed == len(member) else (flag.BYTES_AFTER_MEMBER,)
        return parse_record(inflated.content, source, offset, odd, sound=True)
    if not member or member[:2] == GZIP_MAGIC[:2]:
        raise DataFault(source, offset, describe_non_gzip(member))
    return parse_record(member, source, offset)


def iter_records(stream: ByteSource, source: str, limit: int = DEFAULT_LIMIT) -> Iterator[ArchivedRecord | DataFault]:
    """Every record of a whole ARC file (a path, bytes, or a binary stream), in order, the ``filedesc`` too.

    Compressed by record, as one gzip member, or not at all. A ``DataFault`` stands for each stretch that cannot
    be read, and reading goes on behind it; a file without any record gives at least one. ``limit`` bounds a
    record, and memory with it. Raises nothing but ``EnvironmentFault``, for a path that cannot be opened.
    """
    for found in iter_located(stream, source, limit):
        yield found.record if isinstance(found, StoredRecord) else found


def iter_located(stream: ByteSource, source: str, limit: int = DEFAULT_LIMIT) -> Iterator[StoredRecord | DataFault]:
    """Like ``iter_records``, with the place of each record."""
    return iter_stored(stream, source, ArcGrammar(), limit)


def parse_record(
    content: bytes, source: str, offset: int, odd: tuple[str, ...] = (), sound: bool = False
) -> ArchivedRecord:
    """The first record of ``content``; bytes behind its end are flagged. Raises ``DataFault``.

    ``sound``: ``content`` is a whole gzip member whose checksum held.
    """
    header = parse_header(content, source, offset)
    start = header.block_start
    if header.block_length < 0:
        return build_record(header, content[start:], odd)
    end = start + header.block_length
    if end > len(content):
        block = content[start:]
        if sound:
            return build_record(header, block, (*odd, flag.WRONG_LENGTH))
        if lost_carriage_returns(block, header.block_length):
            return build_record(header, block.rstrip(b"\n"), (*odd, flag.WRONG_LENGTH))
        raise DataFault(source, offset, f"record declares {header.block_length} bytes, {len(block)} are there")
    tail = content[end:]
    behind = tail.lstrip(_BLANK)
    if behind and sound and not begins_record(behind):
        return build_record(header, content[start:], (*odd, flag.WRONG_LENGTH))
    if behind:
        odd += (flag.BYTES_AFTER_RECORD,)
    return build_record(header, content[start:end], odd, "apart" if tail else "member")


class ArcGrammar:
    """ARC for ``walk.iter_stored``."""

    max_header = MAX_LINE
    max_start = MAX_LINE

    def starts(self, data: bytes) -> Iterator[int]:
        return record_starts(data)

    def begins(self, data: bytes) -> bool:
        return begins_record(data)

    def parse_header(self, data: bytes, source: str, offset: int) -> ArcHeader:
        return parse_header(data, source, offset)

    def elastic(self, header: ArcHeader) -> bool:
        return header.block_length < 0 or header.is_filedesc

    def lost_line_ends(self, header: ArcHeader, block: bytes) -> bool:
        return lost_carriage_returns(block, header.block_length)

    def build(self, header: ArcHeader, block: bytes, source: str, odd: tuple[str, ...], tail: bytes) -> ArchivedRecord:
        apart = tail[:1] in (b"\n", b"\r") or flag.WRONG_LENGTH in odd
        return build_record(header, block, odd, "apart" if apart else "adjacent")

    def single(self, content: bytes, source: str, offset: int) -> ArchivedRecord | None:
        try:
            header = parse_header(content, source, offset)
        except DataFault:
            return None
        end = header.block_start + max(header.block_length, 0)
        more = header.block_length < 0 or content[end:].strip(_BLANK)
        if more and next(record_starts(content[header.block_start - 1 :]), None) is not None:
            return None
        return parse_record(content, source, offset, sound=True)
