"""From stored columns of any era to capture rows: types widened, missing columns null, unknown ones kept as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import pyarrow as pa

from cc_pipeline.commoncrawl.domains import host_columns, registered_domain
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA, INDEX_COLUMN_NAMES, LATER_COLUMNS, TIMESTAMP
from cc_pipeline.errors import DataFault
from cc_pipeline.index.parquet_read import Found

KNOWN = frozenset((*INDEX_COLUMN_NAMES, *(field.name for field in LATER_COLUMNS)))
_EXTRA = CAPTURE_SCHEMA.field("extra_columns").type


def capture_rows(found: Found, located_by: str) -> tuple[pa.Table, list[str]]:
    """``CAPTURE_SCHEMA`` rows of what was read from one row group, and the host of each row.

    A host comes from the URL where the index's column was not stored or not read. Raises ``DataFault`` for a column
    whose stored type cannot be what the schema says.
    """
    place, file = found.place, found.place.file
    count = len(found.rows)
    meanings = {name: meaning for name, (_, _, meaning) in file.columns.items()}
    columns: dict[str, pa.Array] = {}
    for name in KNOWN & found.columns.keys():
        try:
            columns[name] = _typed(found.columns[name], CAPTURE_SCHEMA.field(name).type, meanings.get(name, ""))
        except (pa.ArrowException, ValueError) as error:
            raise DataFault(file.path, None, f"column {name} cannot be read as the index schema's ({error})") from error
    hosts = _hosts(columns, count)
    columns["domain"] = pa.array(_domains(columns, hosts), pa.string())
    columns["extra_columns"] = _extra({name: found.columns[name] for name in found.columns if name not in KNOWN}, count)
    constants = {
        "crawl": file.crawl,
        "subset": file.subset,
        "archive_format": "warc",
        "located_by": located_by,
        "index_file": file.path,
        "index_position": place.number,
    }
    arrays = []
    for field in CAPTURE_SCHEMA:
        if field.name in constants:
            arrays.append(pa.repeat(pa.scalar(constants[field.name], field.type), count))
        else:
            arrays.append(columns.get(field.name, pa.nulls(count, field.type)))
    return pa.Table.from_arrays(arrays, schema=CAPTURE_SCHEMA), hosts


def as_text(values: pa.Array) -> pa.Array:
    """Stored bytes as strings; bytes that are no UTF-8 are written as ``\\xNN``."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if raw is None else raw.decode("utf-8", "backslashreplace") for raw in values.to_pylist()]
        return pa.array(texts, pa.string())


def _typed(values: pa.Array, wanted: pa.DataType, meaning: str) -> pa.Array:
    if wanted == pa.string() and pa.types.is_binary(values.type):
        return as_text(values)
    if wanted == TIMESTAMP:
        if pa.types.is_integer(values.type):
            unit = "us" if "MICROS" in meaning else "ns" if "NANOS" in meaning else "ms"
            values = values.cast(pa.timestamp(unit, tz="UTC"))
        return values.cast(wanted, safe=False)
    return values.cast(wanted)


def _hosts(columns: Mapping[str, pa.Array], count: int) -> list[str]:
    names, urls = (
        columns[name].to_pylist() if name in columns else [None] * count for name in ("url_host_name", "url")
    )
    return [
        name if name is not None else str(host_columns(url or "")["url_host_name"] or "")
        for name, url in zip(names, urls, strict=True)
    ]


def _domains(columns: Mapping[str, pa.Array], hosts: Sequence[str]) -> list[str | None]:
    name = "url_host_registered_domain"
    said = columns[name].to_pylist() if name in columns else [None] * len(hosts)
    return [domain or _domain(host) for domain, host in zip(said, hosts, strict=True)]


@lru_cache(maxsize=4096)
def _domain(host: str) -> str | None:
    return registered_domain(host) or host or None


def _extra(unknown: Mapping[str, pa.Array], count: int) -> pa.Array:
    if not unknown:
        return pa.nulls(count, _EXTRA)
    texts = {name: as_text(values) if pa.types.is_binary(values.type) else values for name, values in unknown.items()}
    listed = {name: values.to_pylist() for name, values in texts.items()}
    rows = [
        [(name, str(values[row])) for name, values in listed.items() if values[row] is not None] for row in range(count)
    ]
    return pa.array(rows, _EXTRA)
