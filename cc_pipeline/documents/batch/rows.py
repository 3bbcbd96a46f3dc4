"""One batch of pages to rows, and rows to bytes that travel between processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from cc_pipeline.documents.legacy2012.mapping import failed_page
from cc_pipeline.documents.page import PageInput, ParsedPage, ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline.errors import DataFault

Input = PageInput | ParsedPage
Read = Callable[[Any], Input]

_MISFITS = (pa.ArrowException, ValueError, TypeError, OverflowError)


def rows_of(
    items: Sequence[Any],
    options: ParseOptions,
    read: Read,
    broken: Mapping[int, str],
    at: Callable[[int], None] | None = None,
) -> dict[str, pa.RecordBatch]:
    """The rows of some items. ``broken`` maps items (by place) that must not be parsed again to the reason. ``at`` is
    called with each place before the item is touched."""
    pages: list[ParsedPage] = []
    inputs: list[Input] = []
    for place, item in enumerate(items):
        if at is not None:
            at(place)
        page = read(item)
        inputs.append(page)
        if isinstance(page, ParsedPage):
            pages.append(page)
            continue
        if place in broken:
            # nothing of it is looked at again
            pages.append(failed_page(replace(page, http_status=None), "ParseFailed", broken[place]))
            continue
        try:
            pages.append(parse_page(page, options))
        except DataFault as fault:
            pages.append(failed_page(page, "ParseFailed", fault.reason))
    try:
        return to_record_batches(pages)
    except _MISFITS:
        return to_record_batches([_fit_for_tables(page, source) for page, source in zip(pages, inputs, strict=True)])


def _fit_for_tables(page: ParsedPage, source: Input) -> ParsedPage:
    """The page, or a row that says why its values fit no column."""
    try:
        to_record_batches([page])
    except _MISFITS as error:
        if isinstance(source, PageInput):
            return failed_page(replace(source, http_status=None, fetch_status=None), "ParseFailed", str(error))
        raise
    return page


def pack(batches: Mapping[str, pa.RecordBatch]) -> dict[str, bytes]:
    """Record batches as Arrow streams."""
    packed = {}
    for table, batch in batches.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        packed[table] = sink.getvalue().to_pybytes()
    return packed


def unpack(packed: Mapping[str, bytes]) -> dict[str, pa.RecordBatch]:
    """The reverse of ``pack``."""
    return {table: pa.ipc.open_stream(data).read_next_batch() for table, data in packed.items()}
