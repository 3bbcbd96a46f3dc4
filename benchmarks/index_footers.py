"""A bucket of many index files with real footers and next to no rows, for benchmarks of harvesting footers."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.index_rows import index_rows, some_hosts
from cc_pipeline.errors import UserInputError
from cc_pipeline.minicrawl import seeded
from cc_pipeline.minicrawl.indexes import published_schema, writer_options
from cc_pipeline.minicrawl.seeded import gzip_member
from cc_pipeline.minicrawl.spec import CrawlSpec

_ROWS = 4  # rows in each row group: enough for a smallest and a largest value that differ


def generate_footers(
    root: Path,
    crawls: Sequence[str] = ("CC-MAIN-2024-22",),
    *,
    files: int = 900,
    row_groups: int = 16,
    distinct: int = 64,
    seed: int = 1,
) -> dict[str, list[str]]:
    """Writes collinfo.json, the table path lists and ``files`` Parquet files for each of the weekly ``crawls``.

    The files are shared evenly between the subsets, as published (900 = 3 x 300). Each has ``row_groups`` row groups of
    four rows and a footer of real size (about 60 KB at 16 row groups); no more than ``distinct`` files of a crawl
    differ, the others are hard links to them (copies where links cannot be made). Gives the keys by crawl. Raises
    ``UserInputError`` where ``root`` holds something or a count is below 1.
    """
    if min(files, row_groups, distinct) < 1:
        raise UserInputError("files, row groups and distinct files must each be at least 1")
    if root.exists() and any(root.iterdir()):
        raise UserInputError(f"{root} is not empty: footers are generated into a new folder")
    keys = {crawl: _crawl(root, CrawlSpec(crawl), files, row_groups, distinct, seed) for crawl in crawls}
    entries = [
        {"id": crawl, "name": crawl, "cdx-api": f"https://index.commoncrawl.org/{crawl}-index"} for crawl in crawls
    ]
    (root / "collinfo.json").write_text(json.dumps(entries), encoding="utf-8")
    return keys


def _crawl(root: Path, crawl: CrawlSpec, files: int, row_groups: int, distinct: int, seed: int) -> list[str]:
    subsets = ("crawldiagnostics", "robotstxt", "warc")
    keys: list[str] = []
    for number in range(files):
        subset = subsets[number * len(subsets) // files] if files >= len(subsets) else "warc"
        folder = f"cc-index/table/cc-main/warc/crawl={crawl.id}/subset={subset}"
        part = sum(1 for key in keys[-files:] if key.startswith(folder))
        run = seeded.identifier(seed, "footers", crawl.id, subset)
        keys.append(f"{folder}/part-{part:05d}-{run}.c000.gz.parquet")
        path = root / keys[-1]
        path.parent.mkdir(parents=True, exist_ok=True)
        if number < distinct:
            _write(path, crawl, row_groups, seeded.number(seed, "file", crawl.id, number))
        else:
            _share(root / keys[number % distinct], path)
    text = "".join(key + "\n" for key in keys)
    listing = root / "crawl-data" / crawl.id / "cc-index-table.paths.gz"
    listing.parent.mkdir(parents=True, exist_ok=True)
    listing.write_bytes(gzip_member(text.encode()))
    return keys


def _write(path: Path, crawl: CrawlSpec, row_groups: int, seed: int) -> None:
    rng = np.random.Generator(np.random.PCG64(seed))
    first = "abcdefghijklmnopqrstuvwxyz"[seed % 26]
    rows = row_groups * _ROWS
    table = index_rows(rng, crawl, some_hosts(rng, rows, first, first), 0, rows)
    schema = published_schema(crawl)
    with pq.ParquetWriter(path, schema, **writer_options(crawl, schema)) as writer:
        for start in range(0, rows, _ROWS):
            writer.write_table(table.slice(start, _ROWS))


def _share(existing: Path, path: Path) -> None:
    try:
        os.link(existing, path)
    except OSError:
        shutil.copyfile(existing, path)
