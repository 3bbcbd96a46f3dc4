"""Bounds of a key column that its writer did not leave: found by reading the column once, and kept.

The pages are walked here before a library decodes them, so that no size a header claims is believed.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.errors import DataFault, EnvironmentFault
from cc_pipeline.index.catalog_tables import KEY_COLUMN
from cc_pipeline.index.footer_statistics import REPAIRED
from cc_pipeline.index.footer_thrift import CompactReader, FooterFault, Value
from cc_pipeline.index.parquet_assemble import ColumnLayout, decode_batches

#: No page of the index is larger when inflated (the writer cuts them at 1 MB, dictionaries too).
MAX_PAGE_BYTES: Final = 64 * 2**20
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_BATCH_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """Smallest and largest value of a column in one row group, read from the values themselves."""

    path: str
    etag: str | None
    row_group: int
    minimum: bytes
    maximum: bytes
    column: str = KEY_COLUMN


def read_bounds(
    layout: ColumnLayout, data: bytes, rows: int, *, source: str, offset: int
) -> tuple[bytes, bytes] | None:
    """Smallest and largest of the ``rows`` values of a column chunk, ``None`` if all are null.

    ``data`` is the chunk with its dictionary, read at ``offset`` of ``source``. Raises ``DataFault``.
    """
    if layout.physical != "BYTE_ARRAY":
        raise DataFault(source, offset, f"column {layout.name} is {layout.physical}, no strings")
    values = check_pages(data, source=source, offset=offset)
    if values != rows:
        raise DataFault(source, offset, f"pages of column {layout.name} hold {values} of {rows} values")
    low: bytes | None = None
    high: bytes | None = None
    for batch in decode_batches(layout, data, rows, _BATCH_ROWS, source=source, offset=offset):
        found = pc.min_max(batch.cast(pa.large_binary())).as_py()
        if found["min"] is not None:
            low = found["min"] if low is None else min(low, found["min"])
            high = found["max"] if high is None else max(high, found["max"])
    return None if low is None or high is None else (low, high)


def check_pages(data: bytes, *, source: str, offset: int) -> int:
    """Goes from page header to page header of a whole chunk and gives the number of values.

    Raises ``DataFault`` where the headers do not lead exactly to the chunk's end, or claim absurd sizes.
    """
    reader = CompactReader(data)
    values = 0
    while reader.pos < reader.end:
        at = offset + reader.pos
        try:
            header = reader.struct()
        except FooterFault as fault:
            raise DataFault(source, offset + fault.offset, f"page header: {fault.reason}") from None
        kind, plain, stored = (_number(header.get(field)) for field in (1, 2, 3))
        if not 0 <= plain <= MAX_PAGE_BYTES or not 0 <= stored <= reader.end - reader.pos:
            raise DataFault(source, at, f"a page of {stored} bytes, {plain} inflated, cannot be there")
        details = header.get({_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}.get(kind, -1))
        if isinstance(details, dict) and kind != _DICTIONARY:
            values += max(0, _number(details.get(1)))
        reader.pos += stored
    return values


class RepairLog:
    """Bounds already read, one JSON line each, in a crawl's folder of the footer store."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "key-bounds.jsonl"

    def read(self) -> dict[tuple[str, int], KeyBounds]:
        """What is known, by path and row group; a line cut by a crash is left out."""
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return {}
        found = (_parsed(line) for line in lines)
        return {(bounds.path, bounds.row_group): bounds for bounds in found if bounds is not None}

    def add(self, bounds: KeyBounds) -> None:
        """Keeps one row group's bounds. Raises ``EnvironmentFault`` when the disk refuses."""
        values = {
            "path": bounds.path,
            "etag": bounds.etag,
            "row_group": bounds.row_group,
            "column": bounds.column,
            "min": base64.b64encode(bounds.minimum).decode(),
            "max": base64.b64encode(bounds.maximum).decode(),
        }
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # A newline in front ends whatever a crash left behind.
            with self.path.open("ab") as handle:
                handle.write(b"\n" + json.dumps(values).encode())
                handle.flush()
                os.fsync(handle.fileno())
        except OSError as error:
            raise EnvironmentFault(f"{self.path} cannot be written: {error}", "Check the home's disk.") from error


def apply_bounds(
    row_groups: pa.Table, etags: Mapping[str, str | None], bounds: Mapping[tuple[str, int], KeyBounds]
) -> pa.Table:
    """``row_groups`` with the key bounds that were read, where a row group has none and its file is the same still."""
    names = [f"{KEY_COLUMN}_{part}" for part in ("min", "max", "source", "min_truncated", "max_truncated")]
    if not bounds or any(name not in row_groups.column_names for name in names):
        return row_groups
    columns = {name: row_groups[name].to_pylist() for name in names}
    places = zip(row_groups["path"].to_pylist(), row_groups["row_group"].to_pylist(), strict=True)
    changed = False
    for row, place in enumerate(places):
        known = bounds.get(place)
        if known is None or columns[names[2]][row] is not None or known.etag != etags.get(place[0]):
            continue
        changed = True
        for name, value in zip(names, (known.minimum, known.maximum, REPAIRED, False, False), strict=True):
            columns[name][row] = value
    if not changed:
        return row_groups
    for name in names:
        index = row_groups.schema.get_field_index(name)
        field = row_groups.schema.field(index)
        row_groups = row_groups.set_column(index, field, pa.array(columns[name], field.type))
    return row_groups


def _parsed(line: bytes) -> KeyBounds | None:
    try:
        values = json.loads(line)
        low, high = (base64.b64decode(values[name], validate=True) for name in ("min", "max"))
        etag = values["etag"]
        return KeyBounds(
            str(values["path"]),
            None if etag is None else str(etag),
            int(values["row_group"]),
            low,
            high,
            str(values["column"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _number(value: Value) -> int:
    return value if isinstance(value, int) else -1
