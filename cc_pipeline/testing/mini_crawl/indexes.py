"""The columnar index and the ZipNum index of a generated crawl, as each era published them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cc_pipeline.commoncrawl.crawls import FIRST_WITH, WITHOUT_KEY_STATISTICS, has_feature
from cc_pipeline.commoncrawl.domains import host_columns
from cc_pipeline.commoncrawl.index_schema import INDEX_COLUMNS
from cc_pipeline.commoncrawl.paths import OLD_FOLDER
from cc_pipeline.testing.mini_crawl.spec import (
    CrawlSpec,
    MemberFile,
    MiniCrawlSpec,
    drawn_number,
    generator,
    identifier,
)
from cc_pipeline.testing.mini_crawl.truth import Capture
from cc_pipeline.testing.mini_crawl.visits import serving_address

REQUIRED: frozenset[str] = frozenset(
    """
url_surtkey url url_host_name url_protocol url_path fetch_time fetch_status warc_filename warc_record_offset
warc_record_length warc_segment
""".split()
)
#: Columns stored without a dictionary, as published: nearly all values are distinct.
PLAIN_COLUMNS: frozenset[str] = frozenset(
    {"url_surtkey", "url", "content_digest", "warc_record_offset", "warc_record_id"}
)
#: Crawls whose CDXJ lines have neither status nor type (cdx-index-client#3).
_WITHOUT_STATUS = frozenset({"CC-MAIN-2015-06", "CC-MAIN-2015-11"})
#: The first and the last crawl whose members of ZipNum shards have no final line end, so that two records share a line
#: if members were joined (webarchive-indexing#4, fixed for later indexes on 24 November 2015).
_FIRST_JOINED_CRAWL, _LAST_JOINED_CRAWL = "CC-MAIN-2014-52", "CC-MAIN-2015-40"
_STORED_TYPES: dict[str, pa.DataType] = {"fetch_time": pa.timestamp("ms", tz="UTC")}
_PLACES: dict[str, pa.DataType] = {"warc_record_offset": pa.int32(), "warc_record_length": pa.int32()}


def published_schema(crawl: CrawlSpec) -> pa.Schema:
    """Returns the stored columns of a crawl's index files, with types and nullability as published."""
    stored = {} if crawl.long_places else _PLACES
    stored = stored | _STORED_TYPES
    fields = [
        pa.field(field.name, stored.get(field.name, field.type), nullable=field.name not in REQUIRED)
        for field in INDEX_COLUMNS
        if field.name not in FIRST_WITH or has_feature(crawl.id, field.name)
    ]
    if crawl.record_ids:
        record_id_index = next(index for index, field in enumerate(fields) if field.name == "content_truncated") + 1
        fields.insert(record_id_index, pa.field("warc_record_id", pa.binary()))
    if crawl.addresses:
        fields.append(pa.field("warc_ip_address", pa.string()))
    fields += [pa.field(name, pa.string()) for name in crawl.extra_columns]
    return pa.schema(fields)


def extra_value(capture: Capture, column: str) -> str:
    """Returns the value of a column that is unknown to readers."""
    return f"{column}-{drawn_number(0, column, capture.url) % 100}"


def write_columnar(root: Path, spec: MiniCrawlSpec, crawl: CrawlSpec, captures: Sequence[Capture]) -> list[str]:
    """Writes the Parquet files of all subsets; returns their keys in the order of cc-index-table.paths.gz."""
    schema = published_schema(crawl)
    keys: list[str] = []
    for subset in sorted({"warc", "crawldiagnostics", "robotstxt"}):
        rows = sorted(
            (capture for capture in captures if capture.subset == subset),
            key=lambda row: (row.url_surtkey.encode(), row.fetch_time, row.warc_filename, row.warc_record_offset),
        )
        run = identifier(spec.seed, "parquet", crawl.id, subset)
        streams = _parts(spec, crawl, rows, subset)
        for part, part_rows in enumerate(streams):
            suffix = {"gzip": "gz", "zstd": "zstd"}[crawl.compression]
            key = f"{crawl.table}/subset={subset}/part-{part:05d}-{run}.c000.{suffix}.parquet"
            path = root / key
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_part(path, spec, crawl, schema, part_rows)
            keys.append(key)
    return keys


def _parts(spec: MiniCrawlSpec, crawl: CrawlSpec, rows: list[Capture], subset: str) -> list[list[Capture]]:
    """Divides rows among files. Files are sorted since 2022-27; before, two sorted streams alternate, so row groups
    overlap.

    The files are in no order of their keys, since none is guaranteed.
    """
    count = min(crawl.parts if subset == "warc" else 1, max(len(rows), 1))
    order = list(range(count))
    generator(spec.seed, "parts", crawl.id, subset).shuffle(order)
    if has_feature(crawl.id, "sorted_parts"):
        chunks = _chunks(rows, count)
        return [chunks[index] for index in order]
    chunks = _chunks(rows, 2 * count)
    return [_alternate(chunks[index], chunks[index + count]) for index in order]


def _chunks(rows: list[Capture], count: int) -> list[list[Capture]]:
    bounds = [len(rows) * index // count for index in range(count + 1)]
    return [rows[low:high] for low, high in pairwise(bounds)]


def _alternate(first: list[Capture], second: list[Capture]) -> list[Capture]:
    mixed = [row for pair in zip(first, second, strict=False) for row in pair]
    shorter = min(len(first), len(second))
    return mixed + first[shorter:] + second[shorter:]


def _write_part(path: Path, spec: MiniCrawlSpec, crawl: CrawlSpec, schema: pa.Schema, rows: Sequence[Capture]) -> None:
    described = [_row(spec, crawl, capture) for capture in rows]
    columns = [pa.array([_value(row, field.name) for row in described], field.type) for field in schema]
    table = pa.table(columns, schema=schema)
    with pq.ParquetWriter(path, schema, **writer_options(crawl, schema)) as writer:
        for start in range(0, max(len(rows), 1), crawl.row_group_rows):
            writer.write_table(table.slice(start, crawl.row_group_rows), row_group_size=crawl.row_group_rows)


def writer_options(crawl: CrawlSpec, schema: pa.Schema) -> dict[str, Any]:
    """Returns the options of ``pyarrow.parquet.ParquetWriter`` for the era's kind of file."""
    modern_times = bool(has_feature(crawl.id, "int64_fetch_time"))
    return {
        "version": "1.0",
        "data_page_version": crawl.page_version,
        "compression": crawl.compression,
        "compression_level": {"gzip": 6, "zstd": 19}[crawl.compression],
        "use_dictionary": [name for name in schema.names if name not in PLAIN_COLUMNS],
        "write_statistics": crawl.id not in WITHOUT_KEY_STATISTICS,
        "write_page_index": bool(has_feature(crawl.id, "page_index")),
        "use_deprecated_int96_timestamps": not modern_times,
        "coerce_timestamps": "ms" if modern_times else None,
        "max_rows_per_page": crawl.page_rows,
        "write_batch_size": min(1024, crawl.page_rows),
        "store_schema": False,
    }


def _row(spec: MiniCrawlSpec, crawl: CrawlSpec, capture: Capture) -> tuple[Capture, dict[str, Any]]:
    derived: dict[str, Any] = host_columns(capture.url) | {"warc_filename": indexed_name(crawl, capture)}
    if crawl.addresses:
        derived["warc_ip_address"] = serving_address(spec.seed, capture.url, capture.domain, crawl)
    if capture.warc_record_id is not None:
        derived["warc_record_id"] = uuid.UUID(capture.warc_record_id).bytes
    return capture, derived


def _value(row: tuple[Capture, dict[str, Any]], column: str) -> Any:
    capture, derived = row
    if column in derived:
        return derived[column]
    if column in Capture.__slots__:
        return getattr(capture, column)
    return extra_value(capture, column)


def indexed_name(crawl: CrawlSpec, capture: Capture) -> str:
    """Returns the name of a capture's archive file in the crawl's indexes."""
    return f"{OLD_FOLDER}{capture.warc_filename}" if crawl.old_names else capture.warc_filename


def cdxj_line(spec: MiniCrawlSpec, crawl: CrawlSpec, capture: Capture) -> str:
    """Returns one line without its line feed: key, 14-digit time, and the JSON keys of this crawl's index."""
    has_status = crawl.id not in _WITHOUT_STATUS
    fields: list[tuple[str, str | None]] = [
        ("url", capture.url),
        ("mime", capture.content_mime_type if has_status else None),
        ("mime-detected", capture.content_mime_detected if has_status else None),
        ("status", str(capture.fetch_status) if has_status else None),
        ("digest", capture.payload_digest if crawl.format == "arc" else capture.content_digest),
        ("length", str(capture.warc_record_length)),
        ("offset", str(capture.warc_record_offset)),
        ("filename", indexed_name(crawl, capture)),
        ("charset", capture.content_charset),
        ("languages", capture.content_languages),
        ("truncated", capture.content_truncated),
        ("redirect", capture.fetch_redirect),
        ("recordid", capture.warc_record_id),
        ("ipaddress", serving_address(spec.seed, capture.url, capture.domain, crawl) if crawl.addresses else None),
        *((name.replace("_", "-"), extra_value(capture, name)) for name in crawl.extra_columns),
    ]
    document = json.dumps({name: value for name, value in fields if value is not None}, ensure_ascii=False)
    return f"{capture.url_surtkey} {capture.fetch_time:%Y%m%d%H%M%S} {document}"


def write_zipnum(root: Path, spec: MiniCrawlSpec, crawl: CrawlSpec, captures: Sequence[Capture]) -> list[str]:
    """Writes shards, cluster.idx and metadata.yaml; returns their keys in the order of cc-index.paths.gz."""
    return write_cdx(root, crawl, sorted(cdxj_line(spec, crawl, capture).encode() for capture in captures))


def write_cdx(root: Path, crawl: CrawlSpec, lines: Sequence[bytes]) -> list[str]:
    """Does the same for sorted CDXJ ``lines`` without their line feeds."""
    folder = f"cc-index/collections/{crawl.id}"
    cluster: list[str] = []
    keys: list[str] = []
    for shard in range(crawl.zipnum_shards):
        low, high = (len(lines) * bound // crawl.zipnum_shards for bound in (shard, shard + 1))
        name = f"cdx-{shard:05d}.gz"
        keys.append(f"{folder}/indexes/{name}")
        with MemberFile(root / keys[-1]) as out:
            for start in range(low, high, crawl.zipnum_lines):
                block = lines[start : min(start + crawl.zipnum_lines, high)]
                offset, length = out.append(_member(crawl, block))
                key, moment, _ = block[0].split(b" ", 2)
                cluster.append(f"{key.decode()} {moment.decode()}\t{name}\t{offset}\t{length}\t{len(cluster) + 1}\n")
    for name, text in (
        ("indexes/cluster.idx", "".join(cluster)),
        ("metadata.yaml", f"title: {crawl.id}\ndescription: Index of a generated crawl\n"),
    ):
        keys.append(f"{folder}/{name}")
        (root / keys[-1]).write_text(text, encoding="utf-8", newline="\n")
    return keys


def _member(crawl: CrawlSpec, lines: Sequence[bytes]) -> bytes:
    """Joins the lines of a member, as in shards of this crawl's time."""
    if crawl.since(_FIRST_JOINED_CRAWL) and (crawl.id == _LAST_JOINED_CRAWL or not crawl.since(_LAST_JOINED_CRAWL)):
        middle = len(lines) // 2
        return b"\n".join(lines[:middle]) + b"\n".join(lines[middle:])
    return b"".join(line + b"\n" for line in lines)
