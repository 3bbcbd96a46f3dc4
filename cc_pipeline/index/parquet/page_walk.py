"""Walks from page header to page header of a column chunk, before any library reads it, and bounds its claims.

Arrow allocates memory by the headers: an inflated size, a number of dictionary entries, a value for each row. A chunk
of a few kilobytes can claim gigabytes. Format: ``PageHeader`` in ``parquet.thrift`` of apache/parquet-format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.index.footers.thrift import CompactReader, FooterFault, Value

#: No page of the index is larger when inflated (the writer cuts them at 1 MB, dictionaries too).
MAX_PAGE_BYTES: Final = 64 * 2**20
#: A chunk of the index has some 120 pages; this many pages can be walked in a second.
MAX_PAGES: Final = 1 << 16
#: A header has 20 bytes and perhaps the page's bounds, keys of some kilobytes. The second limit is for a whole chunk.
MAX_HEADER_BYTES: Final = 1 << 18
MAX_HEADERS_BYTES: Final = 1 << 23
#: A column chunk of the index is decoded to at most 270 MB: file names of 140 bytes in 1.9 million rows.
MAX_COLUMN_BYTES: Final = 384 * 2**20
#: A value of the index takes less than 256 bytes on average in every column; few rows may have longer ones.
_ROW_BYTES: Final = 256
_FEW_ROWS_BYTES: Final = 64 * 2**20

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
#: The field of a header with its details, by the page's type, and the field of these with the encoding.
_DETAILS: Final = {_DATA: (5, 2), _DICTIONARY: (7, 2), _DATA_V2: (8, 4)}
#: ``PLAIN_DICTIONARY`` and ``RLE_DICTIONARY``.
_DICTIONARY_ENCODINGS: Final = (2, 8)
_DELTA_BYTE_ARRAY: Final = 7


@dataclass(frozen=True, slots=True)
class DictionaryPage:
    """A dictionary page as stored: its packed bytes, their size inflated, and how many entries it claims."""

    stored: bytes
    plain: int
    entries: int


@dataclass(slots=True)
class PageClaims:
    """The claims of a chunk's pages together: ``values``, and ``plain``, the inflated bytes of its data pages.

    ``numbered`` of the values are numbers of dictionary entries. ``delta`` is the inflated size of the largest page
    with delta-encoded values (0: there is none). ``dictionary_end`` is the position, in all pieces joined, at which the
    pages with a dictionary end; ``None`` if other pages come between them, which writers never do."""

    values: int = 0
    plain: int = 0
    numbered: int = 0
    delta: int = 0
    dictionary: DictionaryPage | None = None
    dictionary_end: int | None = 0


@dataclass(frozen=True, slots=True)
class _Page:
    kind: int
    plain: int
    stored: int
    values: int
    encoding: int


def column_bound(rows: int) -> int:
    """Returns the maximum bytes of ``rows`` decoded values of one column."""
    return min(MAX_COLUMN_BYTES, _FEW_ROWS_BYTES + _ROW_BYTES * rows)


def walk_pages(pieces: Sequence[tuple[int, bytes]], *, source: str) -> PageClaims:
    """Walks over the pages of one column chunk, or some of them: ``pieces`` of whole pages, each with its offset.

    Raises ``DataFault`` with ``source`` and the offset of the page: ``MALFORMED`` if headers do not lead exactly to a
    piece's end or contradict each other, ``TOO_LARGE`` for more than the bounds of this module.
    """
    claims = PageClaims()
    pages = header_bytes = joined = 0
    has_left_dictionary = False
    for offset, data in pieces:
        reader = CompactReader(data)
        while reader.pos < len(data):
            start = reader.pos
            page = _read_header(reader, source, offset)
            header_bytes += reader.pos - start
            body, end = reader.pos, reader.pos + page.stored
            if end > len(data):
                reason = f"a page of {page.stored} bytes ends outside its column chunk"
                raise DataFault(DataKind.MALFORMED, source, offset + start, reason)
            reader.pos = end
            if page.kind == _DICTIONARY:
                claims.dictionary = _dictionary(page, data[body:end], pages, source, offset + start)
            elif page.kind in _DETAILS:
                _add_data_page(claims, page, source, offset + start)
                if page.encoding not in _DICTIONARY_ENCODINGS:
                    has_left_dictionary = True
                else:
                    claims.dictionary_end = None if has_left_dictionary else joined + end
            pages += 1
            if pages > MAX_PAGES or header_bytes > MAX_HEADERS_BYTES:
                reason = f"a column chunk has more than {MAX_PAGES} pages, or {MAX_HEADERS_BYTES} bytes of page headers"
                raise DataFault(DataKind.TOO_LARGE, source, offset + start, reason)
        joined += len(data)
    return claims


def _dictionary(page: _Page, stored: bytes, pages_before: int, source: str, position: int) -> DictionaryPage:
    if pages_before:
        raise DataFault(DataKind.MALFORMED, source, position, "a dictionary page is not the first page")
    if page.values > page.plain:
        reason = f"a dictionary of {page.plain} bytes claims {page.values} entries"
        raise DataFault(DataKind.MALFORMED, source, position, reason)
    return DictionaryPage(stored, page.plain, page.values)


def _add_data_page(claims: PageClaims, page: _Page, source: str, position: int) -> None:
    claims.values += page.values
    claims.plain += page.plain
    if page.encoding in _DICTIONARY_ENCODINGS:
        if claims.dictionary is None:
            raise DataFault(
                DataKind.MALFORMED, source, position, "a page needs a dictionary, but the column chunk has none"
            )
        claims.numbered += page.values
    elif page.encoding == _DELTA_BYTE_ARRAY:
        claims.delta = max(claims.delta, page.plain)


def is_numbered(page: bytes, *, source: str, offset: int) -> bool:
    """Whether a data page, header first, read at ``offset``, holds numbers of dictionary entries instead of values.

    Raises ``DataFault`` for anything but a data page.
    """
    header = _read_header(CompactReader(page), source, offset)
    if header.kind not in (_DATA, _DATA_V2):
        raise DataFault(DataKind.MALFORMED, source, offset, "a page has another type than a data page")
    return header.encoding in _DICTIONARY_ENCODINGS


def _read_header(reader: CompactReader, source: str, offset: int) -> _Page:
    """Reads the header at the reader's position, with plausible sizes and counts."""
    start, data_end = reader.pos, reader.end
    reader.end = min(data_end, start + MAX_HEADER_BYTES)
    try:
        header = reader.struct()
    except FooterFault as fault:
        raise DataFault(DataKind.MALFORMED, source, offset + fault.offset, f"page header: {fault.reason}") from None
    finally:
        reader.end = data_end
    kind, plain, stored = (_number(header.get(field)) for field in (1, 2, 3))
    if plain < 0 or stored < 0:
        raise DataFault(
            DataKind.MALFORMED,
            source,
            offset + start,
            f"a page header has impossible sizes: {stored} bytes, {plain} inflated",
        )
    if plain > MAX_PAGE_BYTES:
        raise DataFault(
            DataKind.TOO_LARGE, source, offset + start, f"a page of {plain} bytes inflated is above {MAX_PAGE_BYTES}"
        )
    if kind not in _DETAILS:
        return _Page(kind, plain, stored, 0, -1)  # index pages and kinds to come: every reader passes them over
    place, encoding = _DETAILS[kind]
    details = header.get(place)
    values = _number(details.get(1)) if isinstance(details, dict) else -1
    if values < 0 or not isinstance(details, dict):
        raise DataFault(DataKind.MALFORMED, source, offset + start, "a page header lacks the number of values")
    return _Page(kind, plain, stored, values, _number(details.get(encoding)))


def _number(value: Value) -> int:
    return value if isinstance(value, int) else -1
