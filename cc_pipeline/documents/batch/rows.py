"""One batch of pages to rows. Imports all parsers, so only worker processes import it.

Whatever fails is a failure of one page, and only as many pages are parsed at once as have rows of bounded size. Memory
that is exhausted is neither: the process ends, and the page is parsed again in a fresh one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cc_pipeline.documents.batch.worker import Read, RecordBatches, make_failed_page
from cc_pipeline.documents.document2012.json import failed_page
from cc_pipeline.documents.page import ParsedPage, ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline.errors import DataFault

#: Size of the pages that are held until their rows are made: their characters, and so much for each row.
_PART_SIZE, _ROW_SIZE = 16 << 20, 512


def rows_of(
    items: Sequence[Any], options: ParseOptions, read: Read, on_position: Callable[[int], None] = lambda place: None
) -> RecordBatches:
    """Returns the rows of the items; only of the first ones if they are large. ``on_position`` is called with each
    position before the item is touched. Raises ``MemoryError``."""
    pages: list[ParsedPage] = []
    size = 0
    for place, item in enumerate(items):
        on_position(place)
        pages.append(_parse(item, options, read))
        size += _size_of(pages[-1])
        if size >= _PART_SIZE:
            break
    max_bytes = options.limits.row_bytes
    try:
        return _make_rows(pages, max_bytes)
    except Exception:
        return to_record_batches([_fit(page, item, read, max_bytes) for page, item in zip(pages, items, strict=False)])


def _parse(item: Any, options: ParseOptions, read: Read) -> ParsedPage:
    try:
        page = read(item, None)
        if isinstance(page, ParsedPage):
            return page
        try:
            return parse_page(page, options)
        except DataFault as fault:
            return failed_page(page, "ParseFailed", fault.reason)
    except Exception as error:
        return _fail(item, read, error)


def _size_of(page: ParsedPage) -> int:
    texts = (page.text or {}).values()
    rows = 1 + len(page.links) + len(page.feed_items)
    return sum(len(text) for text in texts if isinstance(text, str)) + rows * _ROW_SIZE


def _make_rows(pages: Sequence[ParsedPage], max_bytes: int) -> RecordBatches:
    rows = to_record_batches(pages)
    size = sum(batch.nbytes for batch in rows.values())
    if size > max_bytes:
        raise ValueError(f"rows of {size:,} bytes, more than {max_bytes:,}")
    return rows


def _fit(page: ParsedPage, item: Any, read: Read, max_bytes: int) -> ParsedPage:
    """Returns the page, or a failed page with the reason why its values fit no table."""
    try:
        _make_rows([page], max_bytes)
    except Exception as error:
        return _fail(item, read, error)
    return page


def _fail(item: Any, read: Read, error: Exception) -> ParsedPage:
    if isinstance(error, MemoryError):
        raise error
    return make_failed_page(item, read, f"{type(error).__name__}: {error}")
