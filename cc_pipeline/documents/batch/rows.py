"""One batch of pages to rows. Imports all parsers, so only worker processes import it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from cc_pipeline.documents.batch.worker import Broken, Input, Read
from cc_pipeline.documents.document2012.json import failed_page
from cc_pipeline.documents.page import PageInput, ParsedPage, ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline.errors import DataFault

#: The part that is read of a page that ended its parser before, in bytes, tags and open elements.
_SHORT_BYTES, _SHORT_ELEMENTS, _SHORT_DEPTH = 64 * 1024, 20_000, 64

_MISFITS = (pa.ArrowException, ValueError, TypeError, OverflowError)


def rows_of(
    items: Sequence[Any],
    options: ParseOptions,
    read: Read,
    broken: Mapping[int, Broken],
    on_position: Callable[[int], None] | None = None,
) -> dict[str, pa.RecordBatch]:
    """Returns the rows of the items. Items in ``broken`` (by position) ended a worker: only their beginning is read. An
    item that ended two is not read. ``on_position`` is called with each position before the item is touched."""
    pages: list[ParsedPage] = []
    inputs: list[Input] = []
    for place, item in enumerate(items):
        if on_position is not None:
            on_position(place)
        page = read(item)
        inputs.append(page)
        if isinstance(page, ParsedPage):
            pages.append(page)
            continue
        ended = broken.get(place)
        if ended is not None and ended.times > 1:
            # without a status no header is parsed either
            pages.append(failed_page(replace(page, http_status=None), "ParseFailed", ended.cause))
            continue
        try:
            pages.append(parse_page(page, options) if ended is None else _beginning(page, options))
        except DataFault as fault:
            pages.append(failed_page(page, "ParseFailed", fault.reason))
    try:
        return to_record_batches(pages)
    except _MISFITS:
        return to_record_batches([_fit_for_tables(page, source) for page, source in zip(pages, inputs, strict=True)])


def _beginning(page: PageInput, options: ParseOptions) -> ParsedPage:
    """Parses so little of a page, with so few parsers, that none should break on it."""
    limits = replace(
        options.limits,
        payload_bytes=min(_SHORT_BYTES, options.limits.payload_bytes),
        elements=_SHORT_ELEMENTS,
        depth=_SHORT_DEPTH,
    )
    short = replace(options, main_content="none", language=False, text_simhash=False, limits=limits)
    parsed = parse_page(page, short)
    flags = sorted({*(parsed.metadata.get("flags") or ()), "parser_ended"})
    return replace(parsed, metadata={**parsed.metadata, "flags": flags})


def _fit_for_tables(page: ParsedPage, source: Input) -> ParsedPage:
    """Returns the page, or a failed page with the reason why its values fit no column."""
    try:
        to_record_batches([page])
    except _MISFITS as error:
        if isinstance(source, PageInput):
            return failed_page(replace(source, http_status=None, fetch_status=None), "ParseFailed", str(error))
        raise
    return page
