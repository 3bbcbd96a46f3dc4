"""Where columns come from, table by table, as the stages make them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import dagster as dg
import pyarrow as pa

from cc_pipeline.capture_columns import KEY_NAMES, RECORD_KEY_NAMES
from cc_pipeline.commoncrawl.filters import COLUMNS as CONDITIONS
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA, INDEX_COLUMN_NAMES, LATER_COLUMNS
from cc_pipeline.documents.schemas import PROVENANCE_FIELDS, SCHEMAS
from cc_pipeline.hostfacts.datasets import ready_made
from cc_pipeline.records.schema import RECORD_SCHEMA

#: Assets of Common Crawl's, by what they are to us; ``defs/assets/commoncrawl`` describes them.
COLLINFO: Final = dg.AssetKey(["commoncrawl", "collinfo"])
PATH_LISTS: Final = dg.AssetKey(["commoncrawl", "path_lists"])
COLUMNAR_INDEX: Final = dg.AssetKey(["commoncrawl", "columnar_index"])
CLUSTER_INDEX: Final = dg.AssetKey(["commoncrawl", "cluster_index"])
URL_INDEX_2012: Final = dg.AssetKey(["commoncrawl", "url_index_2012"])
ARCHIVES: Final = dg.AssetKey(["commoncrawl", "archives"])
WHOLE_FILES: Final = dg.AssetKey(["commoncrawl", "whole_files"])
HOST_INDEX: Final = dg.AssetKey(["commoncrawl", "host_index"])
DEGREES: Final = dg.AssetKey(["commoncrawl", "webgraph_degrees"])
GNEISSWEB: Final = dg.AssetKey(["commoncrawl", "gneissweb_hosts"])
#: Of which dataset each of these is.
KEYED: Final[Mapping[dg.AssetKey, str]] = {HOST_INDEX: "host-index", DEGREES: "degrees", GNEISSWEB: "gneissweb-hosts"}

#: What an asset is made of, beside assets of ours.
FROM_COMMON_CRAWL: Final[Mapping[str, tuple[dg.AssetKey, ...]]] = {
    "crawls": (COLLINFO,),
    "index_manifest": (PATH_LISTS,),
    "built_index": (PATH_LISTS, ARCHIVES),
    "index_footers": (COLUMNAR_INDEX,),
    "repaired_statistics": (COLUMNAR_INDEX,),
    "url_index": (COLUMNAR_INDEX, ARCHIVES),
    "captures": (COLUMNAR_INDEX, CLUSTER_INDEX, URL_INDEX_2012),
    "records": (ARCHIVES,),
    "host_facts": (HOST_INDEX, DEGREES, GNEISSWEB),
    "source_metadata": (WHOLE_FILES,),
    "source_text": (WHOLE_FILES,),
    "source_links": (WHOLE_FILES,),
    "source_feed_items": (WHOLE_FILES,),
    "source_faults": (WHOLE_FILES,),
}

Columns = dict[str, tuple[tuple[dg.AssetKey, str], ...]]
_CAPTURES, _RECORDS = dg.AssetKey("captures"), dg.AssetKey("records")
#: The bytes of a record, as a column that stands for them, and where they are kept.
RECORD_BYTES: Final = "record"
_STORED: Final = ("stored_file", "stored_offset", "stored_length")
#: Columns of a record that its bytes fill where the index says nothing.
_FILLED: Final = frozenset({"fetch_time", "fetch_status", "content_digest", "content_mime_type"})
#: Columns that say what a program did, and are made of no other.
_OURS: Final = frozenset(
    {"target", "attempts", "fetched_at", "parser", "settled", "rounds", "served_by", "detail", *_STORED}
)
#: Columns of ``page_metadata`` that say of a record that was not fetched why.
_OF_FAILURES: Final = {"disposition": "outcome", "failure_reason": "outcome", "failure_detail": "reason"}


def _captures() -> Columns:
    of_index = {*INDEX_COLUMN_NAMES, *(field.name for field in LATER_COLUMNS), "crawl", "subset"}
    found: Columns = {name: ((COLUMNAR_INDEX, name),) for name in CAPTURE_SCHEMA.names if name in of_index}
    found["domain"] = ((COLUMNAR_INDEX, "url_host_registered_domain"), (COLUMNAR_INDEX, "url_host_name"))
    asked = dict.fromkeys(column for read in CONDITIONS.values() for column in read)
    found["meant"] = tuple((COLUMNAR_INDEX, column) for column in asked if column in INDEX_COLUMN_NAMES)
    return found


def _records() -> Columns:
    found: Columns = {}
    for name in RECORD_SCHEMA.names:
        own = ((_CAPTURES, name),) if name in RECORD_KEY_NAMES else ()
        of_bytes = name in _FILLED or (not own and name not in _OURS)
        found[name] = (*own, *(((ARCHIVES, RECORD_BYTES),) if of_bytes else ()))
    return found


def _pages(schema: pa.Schema) -> Columns:
    found: Columns = {}
    provenance = {field.name for field in PROVENANCE_FIELDS}
    for name in schema.names:
        if name in KEY_NAMES:
            found[name] = ((_RECORDS, name),)
        elif name not in provenance:
            found[name] = tuple((_RECORDS, place) for place in _STORED)
            if name in _OF_FAILURES:
                found[name] += ((_RECORDS, _OF_FAILURES[name]),)
    found["source_file"] = ((_RECORDS, "warc_filename"),)
    return found


def _host_facts() -> Columns:
    ready = ready_made()
    found: Columns = {"surt_host_name": tuple((asset, ready[name].key) for asset, name in KEYED.items())}
    found["host"] = found["domain"] = found["surt_host_name"]
    for asset, name in KEYED.items():
        found |= {column: ((asset, column),) for column in ready[name].columns or ()}
    return found


#: By table and column, the columns of other assets that it is made of.
COLUMNS: Final[Mapping[str, Columns]] = {
    "captures": _captures(),
    "records": _records(),
    "host_facts": _host_facts(),
    **{name: _pages(schema) for name, schema in SCHEMAS.items()},
}


def column_lineage(table: str) -> dg.TableColumnLineage | None:
    """The same as Dagster has it; ``None`` for a table whose columns are not followed."""
    columns = COLUMNS.get(table)
    if columns is None:
        return None
    return dg.TableColumnLineage(
        {name: [dg.TableColumnDep(asset, of) for asset, of in found] for name, found in columns.items() if found}
    )


def made_of(table: str, column: str) -> str:
    """A column's sources in words, for people whose UI does not draw them; empty where there are none."""
    found = COLUMNS.get(table, {}).get(column, ())
    return ", ".join(f"{asset.path[-1]}.{name}" for asset, name in found)


def upstream(asset: str) -> list[dg.AssetKey]:
    """Common Crawl's data that an asset of ours is made of."""
    return [*FROM_COMMON_CRAWL.get(asset, ())]
