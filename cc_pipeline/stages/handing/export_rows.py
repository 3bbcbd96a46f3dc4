"""The records of a slice in one order that text and metadata share, with flat memory.

Tables give rows in no order, so what is exported goes to a scratch file first and is read from there by place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from cc_pipeline.documents.legacy2012.json import Compat, metadata_json
from cc_pipeline.documents.schemas import PAGE_METADATA_SCHEMA, PROVENANCE_FIELDS
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.slice import Slice
from cc_pipeline.keys import KEY_NAMES
from cc_pipeline.lake.streaming import stream_slices
from cc_pipeline.stages.workspace import Workspace

_KEYS = ("warc_filename", "warc_record_offset", "url")
#: Rows held at a time: a row may hold a whole page.
_BATCH_ROWS = 64
_SPILLED = pa.schema([pa.field("value", pa.large_string(), nullable=False)])
_NOT_IN_JSON = frozenset(KEY_NAMES) | {field.name for field in PROVENANCE_FIELDS} | {"metadata_json"}
#: What ``metadata_json`` writes; ``url`` is the record's key.
_METADATA_COLUMNS = tuple(name for name in PAGE_METADATA_SCHEMA.names if name not in _NOT_IN_JSON)

RecordKey = tuple[str | None, int | None, str | None]


def record_order(workspace: Workspace, slice_: Slice) -> list[RecordKey]:
    """The keys of the slice's metadata rows: by archive file, offset, URL. Failures are among them."""
    keys = [key for key, _ in _rows(workspace, "page_metadata", slice_, ())]
    return sorted(keys, key=_place)


def metadata_records(
    workspace: Workspace, slice_: Slice, order: Sequence[RecordKey], folder: Path, compat: Compat
) -> Iterator[tuple[str, str]]:
    """(URL, 2012 JSON) of every record, in ``order``."""

    def written(row: Mapping[str, Any]) -> str:
        return metadata_json(row, compat=compat)

    return _in_order(workspace, "page_metadata", slice_, _METADATA_COLUMNS, written, order, folder)


def text_records(
    workspace: Workspace, slice_: Slice, order: Sequence[RecordKey], folder: Path
) -> Iterator[tuple[str, str]]:
    """(URL, full text) of every record, in ``order``; an empty text for those that have none."""

    def written(row: Mapping[str, Any]) -> str:
        return row["text"] or ""

    return _in_order(workspace, "page_text", slice_, ("text",), written, order, folder)


def _in_order(
    workspace: Workspace,
    table: str,
    slice_: Slice,
    columns: Sequence[str],
    written: Callable[[Mapping[str, Any]], str],
    order: Sequence[RecordKey],
    folder: Path,
) -> Iterator[tuple[str, str]]:
    path = folder / f"{table}.arrow"
    places: dict[RecordKey, list[tuple[int, int]]] = {}
    batch: list[str] = []
    number = 0
    try:
        with pa.ipc.new_file(str(path), _SPILLED) as spill:
            for key, row in _rows(workspace, table, slice_, columns):
                places.setdefault(key, []).append((number, len(batch)))
                batch.append(written(row))
                if len(batch) == _BATCH_ROWS:
                    spill.write_batch(pa.record_batch([batch], schema=_SPILLED))
                    batch, number = [], number + 1
            if batch:
                spill.write_batch(pa.record_batch([batch], schema=_SPILLED))
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be written: {error}", "Check the disk, then run it again.") from error
    with pa.OSFile(str(path)) as source:
        spilled = pa.ipc.open_file(source)
        loaded, column = -1, None
        for key in order:
            # equal keys (rows without a place in an archive) take their values one after another
            found = places.get(key)
            value = ""
            if found:
                number, place = found.pop(0) if len(found) > 1 else found[0]
                if number != loaded:
                    loaded, column = number, spilled.get_batch(number).column(0)
                assert column is not None
                value = column[place].as_py()
            yield key[2] or "", value


def _rows(
    workspace: Workspace, table: str, slice_: Slice, columns: Sequence[str]
) -> Iterator[tuple[RecordKey, dict[str, Any]]]:
    parts = workspace.rows_of([slice_.target])[slice_.target]
    for batch in stream_slices(workspace.lake, table, slice_.crawl, parts, [*_KEYS, *columns]):
        for row in batch.to_pylist():
            yield (row.pop("warc_filename"), row.pop("warc_record_offset"), row.pop("url")), row


def _place(key: RecordKey) -> tuple[bool, str, int, str]:
    filename, offset, url = key
    return filename is None, filename or "", -1 if offset is None else offset, url or ""
