"""Rows of parsed pages as Arrow record batches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from cc_pipeline.capture_columns import KEY_NAMES
from cc_pipeline.documents.page import LINK_ATTRIBUTE, Link, ParsedPage
from cc_pipeline.documents.schemas import (
    CONTENT,
    FEED_ITEMS_SCHEMA,
    LINK,
    PAGE_LINKS_SCHEMA,
    PAGE_METADATA_SCHEMA,
    PAGE_TEXT_SCHEMA,
    PROVENANCE_COLUMNS,
)

_SHARED = frozenset(KEY_NAMES) | {field.name for field in PROVENANCE_COLUMNS}
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def to_record_batches(pages: Sequence[ParsedPage]) -> dict[str, pa.RecordBatch]:
    """Returns the rows of the pages, one batch a table, in the pages' order. Empty tables give empty batches."""
    with_text = [number for number, page in enumerate(pages) if page.text is not None]
    flat = _FlatLinks(pages)
    item_pages = [number for number, page in enumerate(pages) for _ in page.feed_items]
    metadata = [dict(page.metadata) for page in pages]
    return {
        "page_metadata": _batch(
            PAGE_METADATA_SCHEMA, pages, range(len(pages)), metadata, {"content": _content(metadata, flat)}
        ),
        "page_text": _batch(PAGE_TEXT_SCHEMA, pages, with_text, [pages[number].text for number in with_text], {}),
        "page_links": _batch(PAGE_LINKS_SCHEMA, pages, flat.pages, [], flat.columns()),
        "feed_items": _batch(
            FEED_ITEMS_SCHEMA, pages, item_pages, [item for page in pages for item in page.feed_items], {}
        ),
    }


def _batch(
    schema: pa.Schema,
    pages: Sequence[ParsedPage],
    numbers: Sequence[int],
    rows: Sequence[Any],
    ready: dict[str, pa.Array],
) -> pa.RecordBatch:
    """Returns a batch. Row i takes its shared columns from page ``numbers[i]``, the others from ``rows`` or
    ``ready``."""
    has_all_pages = numbers == range(len(pages))
    index = None if has_all_pages else pa.array(numbers, pa.int32())
    columns = []
    for field in schema:
        if field.name in ready:
            columns.append(ready[field.name])
        elif field.name in _SHARED:
            column = _make_array([page.keys.get(field.name) for page in pages], field.type)
            columns.append(column if index is None else column.take(index))
        else:
            columns.append(_make_array([row.get(field.name) for row in rows], field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _FlatLinks:
    """Every link of every page in one set of columns, shared by page_links and ``content.links``."""

    def __init__(self, pages: Sequence[ParsedPage]) -> None:
        self.pages = [number for number, page in enumerate(pages) for _ in page.links]
        links: list[Link] = [link for page in pages for link in page.links]
        self._index = [place for page in pages for place in range(len(page.links))]
        self._counts = [len(page.links) for page in pages]
        fields = list(zip(*links, strict=True)) if links else [()] * len(Link._fields)
        by_name = dict(zip(Link._fields, fields, strict=True))
        self._columns = {
            name: _make_array(by_name[name], pa.string())
            for name in ("type", "href", "url", "text", "rel", "host", "domain", "attribute", "host_shown")
        }
        self._columns["attributes"] = _maps(by_name["attributes"])
        self._items, self._tags, self._names = by_name["item_index"], by_name["type"], by_name["attribute"]

    def columns(self) -> dict[str, pa.Array]:
        """Returns the columns of page_links that are not shared."""
        renamed = {"url": "link_url", "host": "link_host", "domain": "link_domain", "host_shown": "link_host_shown"}
        columns = {renamed.get(name, name): column for name, column in self._columns.items()}
        columns["link_index"] = pa.array(self._index, pa.int32())
        columns["item_index"] = pa.array(self._items, pa.int32())
        return columns

    def nested(self) -> pa.ListArray:
        """Returns one list a page: the page's own links that the 2012 document lists, null if there are none."""
        structs = pa.StructArray.from_arrays([self._columns[field.name] for field in LINK], fields=list(LINK))
        counts = list(self._counts)
        positions = [
            place
            for place, (item, tag, name) in enumerate(zip(self._items, self._tags, self._names, strict=True))
            if item is None and (name is None or LINK_ATTRIBUTE.get(tag) == name)
        ]
        if len(positions) < len(self._items):
            structs = structs.take(pa.array(positions, pa.int64()))
            counts = [0] * len(counts)
            for place in positions:
                counts[self.pages[place]] += 1
        offsets: list[int | None] = []
        total = 0
        for count in counts:
            offsets.append(total if count else None)
            total += count
        return pa.ListArray.from_arrays(pa.array([*offsets, total], pa.int32()), structs)


def _content(metadata: list[dict[str, Any]], flat: _FlatLinks) -> pa.Array:
    contents = [row.pop("content", None) for row in metadata]
    filled = [content or {} for content in contents]
    columns = []
    for field in CONTENT:
        if field.name == "links":
            columns.append(flat.nested().cast(field.type))
        else:
            columns.append(_make_array([content.get(field.name) for content in filled], field.type))
    return pa.StructArray.from_arrays(
        columns, fields=list(CONTENT), mask=pa.array([content is None for content in contents], pa.bool_())
    )


def _maps(values: Iterable[dict[str, str]]) -> pa.Array:
    offsets = [0]
    names: list[str] = []
    contents: list[str] = []
    for attributes in values:
        names.extend(attributes)
        contents.extend(attributes.values())
        offsets.append(len(names))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), _make_array(names, pa.string()), _make_array(contents, pa.string())
    )


def _make_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    try:
        return _convert(values, kind)
    except UnicodeEncodeError:
        return _convert([_without_surrogates(value) for value in values], kind)


def _convert(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_map(kind):
        values = [list(value.items()) if isinstance(value, dict) else value for value in values]
    return pa.array(values, kind)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_surrogates(member) for member in value]
    return value
