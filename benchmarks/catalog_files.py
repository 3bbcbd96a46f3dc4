"""Index files for the harvest benchmark: the published columns, gzip, sixteen row groups, footers of some 60 KB.

A few distinct files are written with pyarrow and linked under as many names as are asked for.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cc_pipeline.commoncrawl.index_schema import INDEX_COLUMNS

CRAWL = "CC-MAIN-2024-22"
FOLDER = f"cc-index/table/cc-main/warc/crawl={CRAWL}/subset=warc"


def write_files(root: Path, count: int, distinct: int = 64, row_groups: int = 16) -> list[str]:
    """Makes ``count`` index files under ``root`` and gives their keys; files that are there are kept."""
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    keys = [
        f"{FOLDER}/part-{number:05d}-3f9c2d6a-1111-4222-8333-944455566677.c000.gz.parquet" for number in range(count)
    ]
    for number, key in enumerate(keys):
        path = root / key
        if path.exists():
            continue
        if number < distinct:
            write_file(path, seed=number, row_groups=row_groups)
        else:
            os.link(root / keys[number % distinct], path)
    return keys


def write_file(path: Path, seed: int, row_groups: int = 16, rows: int = 8) -> None:
    """One index file with ``row_groups`` groups of ``rows`` rows, sorted by key."""
    random = np.random.default_rng(seed)
    table = index_rows(random, row_groups * rows)
    with pq.ParquetWriter(path, table.schema, compression="gzip", version="1.0", use_dictionary=True) as writer:
        for group in range(row_groups):
            writer.write_table(table.slice(group * rows, rows))


def index_rows(random: np.random.Generator, count: int) -> pa.Table:
    """Rows of the index in key order, with values as long as real ones."""
    names = sorted("".join(random.choice(list("abcdefghijklmnopqrstuvwxyz"), 11)) for _ in range(count))
    start = datetime(2024, 5, 18, tzinfo=UTC)
    paths = [f"/news/2024/05/{random.integers(10**9)}/an-article-of-some-length-about-{name}.html" for name in names]
    columns: dict[str, list[object]] = {
        "url_surtkey": [f"com,{name},www){path}" for name, path in zip(names, paths, strict=True)],
        "url": [f"https://www.{name}.com{path}" for name, path in zip(names, paths, strict=True)],
        "url_host_name": [f"www.{name}.com" for name in names],
        "url_host_registered_domain": [f"{name}.com" for name in names],
        "url_host_name_reversed": [f"com.{name}.www" for name in names],
        "url_path": list(paths),
        "fetch_time": [start + timedelta(seconds=int(second)) for second in random.integers(0, 10**6, count)],
        "warc_filename": [
            f"crawl-data/{CRAWL}/segments/1715971057216.39/warc/CC-MAIN-20240517233122-20240518023122-{n:05d}.warc.gz"
            for n in random.integers(0, 900, count)
        ],
        "content_digest": ["".join(random.choice(list("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"), 32)) for _ in names],
    }
    arrays = []
    for field in INDEX_COLUMNS:
        values = columns.get(field.name)
        if values is None and pa.types.is_integer(field.type):
            values = [int(value) for value in random.integers(1, 30_000, count)]
        arrays.append(pa.array(values or [f"{field.name[:6]}-{n % 5}" for n in range(count)], field.type))
    return pa.table(arrays, names=[field.name for field in INDEX_COLUMNS])
