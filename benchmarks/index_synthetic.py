"""A synthetic catalog of any size: the tables a harvest of many crawls would leave.

Keys are spread like Common Crawl's: half of them under ``com,``, every crawl cut into files of contiguous
ranges. The first ``overlapping`` share of the crawls has row groups that each span their whole file, as files
written before May 2022 do; ``unknown`` is the share of row groups without statistics.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.index.catalog.from_footers import CrawlTables, coverage_table
from cc_pipeline.index.catalog.schemas import INDEX_FILES_SCHEMA, ROW_GROUPS_SCHEMA

TLDS = ("com", "org", "net", "de", "ru", "uk,co", "jp,co", "fr", "it", "br,com", "nl", "pl", "info", "es", "cn")
LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz0123456789", dtype=np.uint8)
NAME_BYTES = 9
SUBSETS = (("warc", 300, 60), ("crawldiagnostics", 300, 30), ("robotstxt", 300, 10))


@dataclass(frozen=True, slots=True)
class Shape:
    """How big: row groups = crawls x the sum over subsets of files x row groups a file."""

    crawls: int = 100
    subsets: tuple[tuple[str, int, int], ...] = SUBSETS
    overlapping: float = 0.3
    unknown: float = 0.01

    @property
    def row_groups(self) -> int:
        return self.crawls * sum(files * groups for _, files, groups in self.subsets)


def domain_keys(count: int, seed: int) -> pa.Array:
    """``count`` distinct sorted keys ``tld,name`` as bytes."""
    random = np.random.default_rng(seed)
    names = LETTERS[random.integers(0, len(LETTERS), (count, NAME_BYTES))]
    weights = np.array([0.5, *([0.5 / (len(TLDS) - 1)] * (len(TLDS) - 1))])
    prefixes = pa.array(TLDS).take(pa.array(random.choice(len(TLDS), count, p=weights)))
    names_text = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(NAME_BYTES), count, [None, pa.py_buffer(names.tobytes())]
    )
    keys = pc.binary_join_element_wise(prefixes, names_text.cast(pa.binary()).cast(pa.string()), ",").unique()
    return keys.take(pc.array_sort_indices(keys)).cast(pa.binary())


def crawl_name(number: int) -> str:
    """The name of crawl ``number`` (0 is the oldest)."""
    return f"CC-MAIN-{2013 + number // 12}-{5 + 4 * (number % 12):02d}"


def crawl_tables(shape: Shape, number: int) -> CrawlTables:
    """The tables of crawl ``number``."""
    crawl = crawl_name(number)
    overlapping = number < shape.overlapping * shape.crawls
    random = np.random.default_rng(1000 + number)
    parts = [_subset(shape, crawl, *subset, overlapping, random) for subset in shape.subsets]
    files, row_groups = (pa.concat_tables([part[i] for part in parts]) for i in range(2))
    return CrawlTables(files, row_groups, coverage_table(crawl, files["path"].to_pylist(), files, row_groups))


def _subset(
    shape: Shape, crawl: str, subset: str, files: int, groups: int, overlapping: bool, random: np.random.Generator
) -> tuple[pa.Table, pa.Table]:
    count = files * groups
    base = f"cc-index/table/cc-main/warc/crawl={crawl}/subset={subset}"
    paths = pa.array(
        [f"{base}/part-{n:05d}-5c6f2d1e-7f62-4c7b-9a34-0f4d2b8e6a11.c000.gz.parquet" for n in range(files)]
    )
    file_of = np.repeat(np.arange(files), groups)
    keys = domain_keys(count + count // 4, int(random.integers(1 << 30)))
    cuts = np.linspace(0, len(keys) - 1, count + 1).astype(np.int64)
    low, high = cuts[:-1].copy(), cuts[1:]
    if overlapping:
        low, high = np.repeat(cuts[:-1:groups], groups), np.repeat(cuts[groups::groups], groups)
    unknown = random.random(count) < shape.unknown
    suffix = pa.scalar(b")/page/index.html?id=4711")
    surt_min = pc.binary_join_element_wise(keys.take(pa.array(low)), pa.scalar(b")/"), pa.scalar(b""))
    surt_max = pc.binary_join_element_wise(keys.take(pa.array(high)), suffix, pa.scalar(b""))
    rows = random.integers(35_000, 1_900_000, count)
    sizes = random.integers(1_000, 24_000_000, (count, 8))
    group_bytes = sizes.sum(axis=1) * 2
    offset = (
        4
        + np.concatenate(
            [np.cumsum(group_bytes.reshape(files, groups), axis=1) - group_bytes.reshape(files, groups)]
        ).ravel()
    )
    start_time = 1_400_000_000_000 + random.integers(0, 10**9)
    times = random.integers(0, 1_000_000_000, (2, count)) // 2
    columns: dict[str, pa.Array] = {
        "crawl": _same(crawl, count),
        "subset": _same(subset, count),
        "path": paths.take(pa.array(file_of)),
        "part": pa.array(file_of, pa.int32()),
        "row_group": pa.array(np.tile(np.arange(groups), files), pa.int32()),
        "rows": pa.array(rows),
        "total_bytes": pa.array(group_bytes * 4),
        "compressed_bytes": pa.array(group_bytes),
        "data_offset": pa.array(offset),
        "data_end": pa.array(offset + group_bytes),
    }
    bounds = {
        "url_surtkey": (surt_min, surt_max),
        "fetch_time": (pa.array(start_time + times[0]), pa.array(start_time + times[0] + times[1])),
        "url_host_registered_domain": (_domains(keys.take(pa.array(low))), _domains(keys.take(pa.array(high)))),
    }
    known = pa.array(~unknown)
    for name, (minimum, maximum) in bounds.items():
        kind = ROW_GROUPS_SCHEMA.field(f"{name}_min").type
        columns[f"{name}_min"] = pc.if_else(known, minimum.cast(kind), pa.scalar(None, kind))
        columns[f"{name}_max"] = pc.if_else(known, maximum.cast(kind), pa.scalar(None, kind))
        columns[f"{name}_source"] = pc.if_else(known, pa.scalar("statistics"), pa.scalar(None, pa.string()))
    row_groups = pa.table([columns[name] for name in ROW_GROUPS_SCHEMA.names], schema=ROW_GROUPS_SCHEMA)
    return _files(crawl, subset, paths, files, groups, rows), row_groups


def _files(crawl: str, subset: str, paths: pa.Array, files: int, groups: int, rows: np.ndarray) -> pa.Table:
    values = {
        "crawl": _same(crawl, files), "subset": _same(subset, files), "path": paths,
        "part": pa.array(np.arange(files), pa.int32()), "outcome": _same("decoded", files),
        "rows": pa.array(rows.reshape(files, groups).sum(axis=1)), "row_groups": pa.array([groups] * files, pa.int32()),
        "file_size": pa.array(np.full(files, 10**9)), "footer_bytes": pa.array(np.full(files, 58_000)),
    }  # fmt: skip
    return pa.table(
        [values.get(field.name, pa.nulls(files, field.type)) for field in INDEX_FILES_SCHEMA], schema=INDEX_FILES_SCHEMA
    )


def _domains(keys: pa.Array) -> pa.Array:
    parts = pc.split_pattern(keys.cast(pa.string()), ",", max_splits=1, reverse=True)
    return pc.binary_join_element_wise(pc.list_element(parts, 1), pc.list_element(parts, 0), ".").cast(pa.binary())


def _same(value: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value), count)
