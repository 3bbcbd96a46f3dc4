"""The lineage of columns, table by table, as the stages make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import dagster as dg
import pyarrow as pa

from cc_pipeline.capture_columns import KEY_NAMES, RECORD_KEY_NAMES
from cc_pipeline.columns import Column
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA, CONDITION_COLUMNS, INDEX_COLUMN_NAMES, LATER_COLUMNS
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.documents.schemas import PROVENANCE_COLUMNS, SCHEMAS
from cc_pipeline.records.schema import RECORD_SCHEMA

#: Assets of Common Crawl, by their role here; ``defs/assets/common_crawl.py`` describes them.
COLLINFO: Final = dg.AssetKey(["commoncrawl", "collinfo"])
PATH_LISTS: Final = dg.AssetKey(["commoncrawl", "path_lists"])
COLUMNAR_INDEX: Final = dg.AssetKey(["commoncrawl", "columnar_index"])
CLUSTER_INDEX: Final = dg.AssetKey(["commoncrawl", "cluster_index"])
URL_INDEX_2012: Final = dg.AssetKey(["commoncrawl", "url_index_2012"])
ARCHIVES: Final = dg.AssetKey(["commoncrawl", "archives"])
WHOLE_FILES: Final = dg.AssetKey(["commoncrawl", "whole_files"])

#: The source columns of each column.
Columns = Mapping[str, Sequence[tuple[dg.AssetKey, str]]]
_Columns = dict[str, tuple[tuple[dg.AssetKey, str], ...]]
_CAPTURES, _RECORDS = dg.AssetKey("captures"), dg.AssetKey("records")
#: The column that stands for the bytes of a record, and the columns that locate the stored bytes.
RECORD_BYTES: Final = "record"
_STORED: Final = ("stored_file", "stored_offset", "stored_length")
#: Columns of a record that are read from its bytes if the index does not have them.
_FILLED: Final = frozenset({"fetch_time", "fetch_status", "content_digest", "content_mime_type"})
#: Columns that describe the work of this program, and are made of no other.
_PROGRAM_COLUMNS: Final = frozenset(
    {"target", "attempts", "fetched_at", "parser", "asks", "last_ask_at", "detail", *_STORED}
)
#: Columns of ``page_metadata`` with the reason why a record was not fetched.
_FAILURE_COLUMNS: Final = {"disposition": "outcome", "failure_reason": "outcome", "failure_detail": "outcome"}


def _captures() -> _Columns:
    index_columns = {*INDEX_COLUMN_NAMES, *(field.name for field in LATER_COLUMNS), "crawl", "subset"}
    sources: _Columns = {name: ((COLUMNAR_INDEX, name),) for name in CAPTURE_SCHEMA.names if name in index_columns}
    sources["domain"] = ((COLUMNAR_INDEX, "url_host_registered_domain"), (COLUMNAR_INDEX, "url_host_name"))
    condition_columns = dict.fromkeys(column for read in CONDITION_COLUMNS.values() for column in read)
    sources["condition_match"] = tuple(
        (COLUMNAR_INDEX, column) for column in condition_columns if column in INDEX_COLUMN_NAMES
    )
    return sources


def _records() -> _Columns:
    sources: _Columns = {}
    for name in RECORD_SCHEMA.names:
        capture_sources = ((_CAPTURES, name),) if name in RECORD_KEY_NAMES else ()
        is_from_bytes = name in _FILLED or (not capture_sources and name not in _PROGRAM_COLUMNS)
        sources[name] = (*capture_sources, *(((ARCHIVES, RECORD_BYTES),) if is_from_bytes else ()))
    return sources


def _pages(schema: pa.Schema) -> _Columns:
    sources: _Columns = {}
    provenance = {field.name for field in PROVENANCE_COLUMNS}
    for name in schema.names:
        if name in KEY_NAMES:
            sources[name] = ((_RECORDS, name),)
        elif name not in provenance:
            sources[name] = tuple((_RECORDS, place) for place in _STORED)
            if name in _FAILURE_COLUMNS:
                sources[name] += ((_RECORDS, _FAILURE_COLUMNS[name]),)
    sources["source_file"] = ((_RECORDS, "warc_filename"),)
    return sources


#: By table and column, the columns of other assets that it is made of.
COLUMNS: Final[Mapping[str, Columns]] = {
    "captures": _captures(),
    "records": _records(),
    **{name: _pages(schema) for name, schema in SCHEMAS.items()},
}


def describe_sources(columns: Columns, column: str) -> str:
    """Returns a column's sources as text, for UIs that do not draw them; empty if there are none."""
    return ", ".join(f"{asset.path[-1]}.{name}" for asset, name in columns.get(column, ()))


def table_metadata(
    namespace: HomeNamespace, table: str, columns: Sequence[Column], lineage: Columns = MappingProxyType({})
) -> dict[str, Any]:
    """Returns the name and columns of a table, and the lineage of the columns: metadata that is known before the first
    materialization."""
    metadata: dict[str, Any] = {"dagster/column_schema": _column_schema(columns, lineage)}
    if lineage:
        metadata["dagster/column_lineage"] = _column_lineage(lineage, namespace)
    return metadata | {"dagster/table_name": ".".join((*namespace.prefix, table))}


def _column_lineage(columns: Columns, namespace: HomeNamespace) -> dg.TableColumnLineage:
    return dg.TableColumnLineage(
        {
            name: [dg.TableColumnDep(namespace.key(*asset.path), column) for asset, column in sources]
            for name, sources in columns.items()
            if sources
        }
    )


def _column_schema(columns: Sequence[Column], lineage: Columns) -> dg.TableSchema:
    """Returns columns with their sources, for the UI."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                column.name,
                _type(column.type),
                description=_described(column.note, describe_sources(lineage, column.name)),
                constraints=dg.TableColumnConstraints(nullable=column.nullable),
            )
            for column in columns
        ]
    )


def _type(data_type: pa.DataType) -> str:
    """Returns a type in a word or two: a column of the UI is as wide as the longest."""
    if pa.types.is_list(data_type):
        return f"list<{_type(data_type.value_type)}>"
    return "struct" if pa.types.is_struct(data_type) else str(data_type)


def _described(note: str, sources: str) -> str:
    return f"{note} [from {sources}]" if sources else note
