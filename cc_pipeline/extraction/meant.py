"""Of some captures an index does not tell whether their target's condition is so; their pages do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.filters import NO, OPEN, UNKNOWN, YES, parse_condition
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.records.places import PLACE_NAME

_METADATA: Final = "page_metadata"
_ONE: Final = ("target", *PLACE_NAME)


def settled(batches: Mapping[str, pa.RecordBatch]) -> Mapping[str, pa.RecordBatch]:
    """Rows of the page tables of some records, by table, with ``yes``, ``no`` or ``unknown`` in place of what was to be
    asked of each page. It stays unknown of pages that did not come or that nobody could read."""
    metadata = batches[_METADATA]
    asked = [text for text in pc.unique(metadata.column("meant")).to_pylist() if text and text.startswith(OPEN)]
    if not asked:
        return batches
    pages = _as_captures(metadata, batches["page_text"])
    came = pc.is_valid(metadata.column("http_result"))
    said = metadata.column("meant")
    for text in asked:
        so = parse_condition(text.removeprefix(OPEN)).truth(pages, parsed=True)
        words = pc.coalesce(pc.if_else(pc.and_(so, came), YES, pc.if_else(came, NO, UNKNOWN)), UNKNOWN)
        said = pc.if_else(pc.equal(said, text), words, said)
    of = dict(zip(_keys(metadata), said.to_pylist(), strict=True))
    return {table: _with(batch, [of.get(key) for key in _keys(batch)]) for table, batch in batches.items()}


def _as_captures(metadata: pa.RecordBatch, texts: pa.RecordBatch) -> pa.Table:
    """What pages say of themselves, under the names that an index has for it."""
    spoken = dict(zip(_keys(texts), texts.column("content_languages").to_pylist(), strict=True))
    said: dict[str, Any] = {field.name: pa.nulls(metadata.num_rows, field.type) for field in CAPTURE_SCHEMA}
    said |= {name: metadata.column(name) for name in metadata.schema.names if name in said}
    said |= {
        "fetch_time": pc.coalesce(metadata.column("fetch_time"), metadata.column("attempt_time")),
        "fetch_status": metadata.column("http_result"),
        "content_mime_type": metadata.column("mime_type"),
        "content_charset": metadata.column("charset_detected"),
        "content_languages": pa.array([spoken.get(key) for key in _keys(metadata)], pa.string()),
    }
    return pa.table(said)


def _keys(rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return list(zip(*(rows.column(name).to_pylist() for name in _ONE), strict=True))


def _with(batch: pa.RecordBatch, meant: list[str | None]) -> pa.RecordBatch:
    at = batch.schema.get_field_index("meant")
    return batch.set_column(at, batch.schema.field(at), pa.array(meant, pa.string()))
