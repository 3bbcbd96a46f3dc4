"""Index files without a crawl behind them: one of real size, for look-ups, and many with real footers, for harvests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.index_rows import Hosts, index_rows, joined_hosts, named_hosts, some_hosts
from cc_pipeline.errors import UserInputError
from cc_pipeline.minicrawl import seeded
from cc_pipeline.minicrawl.indexes import published_schema, writer_options
from cc_pipeline.minicrawl.spec import CrawlSpec

CRAWL = "CC-MAIN-2024-22"
FOLDER = f"cc-index/table/cc-main/warc/crawl={CRAWL}/subset=warc"
#: Rows made at a time.
_CHUNK = 100_000


@dataclass(frozen=True, slots=True)
class IndexFile:
    """What ``generate_index_file`` wrote. ``first_row`` is the number of the domain's first row in the file."""

    path: Path
    rows: int
    row_groups: int
    domain: str
    domain_rows: int
    first_row: int


def generate_index_file(
    path: Path,
    rows: int = 3_400_000,
    row_group_rows: int = 1_700_000,
    *,
    domain_name: str = "example",
    domain_rows: int = 850,
    domain_at: float = 0.6,
    crawl: str = "CC-MAIN-2024-22",
    columns: Sequence[str] | None = None,
    page_bytes: int = 1 << 20,
    page_rows: int = 20_000,
    compression_level: int = 6,
    seed: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> IndexFile:
    """Writes one Parquet file as Common Crawl publishes it, sorted by ``url_surtkey``, all keys under ``com,``.

    The domain ``<domain_name>.com`` (lower-case letters from ``b`` on) has exactly ``domain_rows`` rows, in one
    stretch that starts at the share ``domain_at`` of the file, with ``<domain_name>-foo.com`` and
    ``<domain_name>x.com`` right behind it. ``columns`` keeps only some columns (default: all). ``page_bytes`` and
    ``page_rows`` bound a page before compression, as parquet-mr does. ``progress`` is told rows written and rows in
    all. Raises ``UserInputError`` for a domain that does not fit.
    """
    spec = CrawlSpec(crawl)
    hosts, first_row = _hosts_around(seed, domain_name, domain_rows, rows, domain_at)
    schema = _narrowed(published_schema(spec), columns)
    options = writer_options(spec, schema) | {
        "compression_level": compression_level,
        "data_page_size": page_bytes,
        "max_rows_per_page": page_rows,
        "write_batch_size": 1024,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    begins = range(0, rows, row_group_rows)
    with pq.ParquetWriter(path, schema, **options) as writer:
        for begin in begins:
            end = min(begin + row_group_rows, rows)
            chunks = [
                index_rows(_chunk_generator(seed, start), spec, hosts, start, min(start + _CHUNK, end)).select(
                    schema.names
                )
                for start in range(begin, end, _CHUNK)
            ]
            writer.write_table(pa.concat_tables(chunks), row_group_size=row_group_rows)
            if progress is not None:
                progress(end, rows)
    return IndexFile(path, rows, len(begins), f"{domain_name}.com", domain_rows, first_row)


def _chunk_generator(seed: int, start: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seeded.number(seed, "rows", start)))


def _narrowed(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    unknown = sorted(set(columns) - set(schema.names))
    if unknown:
        raise UserInputError(f"the columnar index has no column {unknown[0]!r}")
    return pa.schema([field for field in schema if field.name in set(columns)])


def _hosts_around(seed: int, name: str, domain_rows: int, rows: int, at: float) -> tuple[Hosts, int]:
    """Hosts before the domain, the domain's own, its look-alikes, and hosts behind; and the domain's first row."""
    fits = name.isascii() and name.isalpha() and name.islower() and "b" <= name[0] <= "y"
    if not fits or domain_rows < 1 or not 0 <= at <= 1:
        raise UserInputError(f"{name}.com with {domain_rows} rows at {at} does not fit the file")
    neighbours = [(f"{name}-foo", "", 20), (f"{name}x", "", 20)]
    others = rows - domain_rows - sum(size for _, _, size in neighbours)
    if others < 0:
        raise UserInputError(f"{domain_rows} rows of {name}.com do not fit {rows} rows")
    before = int(others * at)
    on_subdomain = domain_rows // 5
    own = [(name, "", domain_rows - on_subdomain), (name, "blog", on_subdomain)]
    rng = np.random.Generator(np.random.PCG64(seeded.number(seed, "hosts")))
    hosts = joined_hosts(
        [
            some_hosts(rng, before, "a", chr(ord(name[0]) - 1)),
            named_hosts([host for host in own + neighbours if host[2]]),
            some_hosts(rng, others - before, chr(ord(name[0]) + 1), "z"),
        ]
    )
    return hosts, before


def write_files(root: Path, count: int, distinct: int = 64, row_groups: int = 16) -> list[str]:
    """Makes ``count`` index files under ``root`` and gives their keys; files that are there are kept.

    Each has a footer of real size (some 60 KB). At most ``distinct`` files differ; the others are links to them.
    """
    keys = [f"{FOLDER}/part-{n:05d}-3f9c2d6a-1111-4222-8333-944455566677.c000.gz.parquet" for n in range(count)]
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    for number, key in enumerate(keys):
        path = root / key
        if not path.exists() and number < distinct:
            write_file(path, number, row_groups)
        elif not path.exists():
            try:
                os.link(root / keys[number % distinct], path)
            except OSError:
                shutil.copyfile(root / keys[number % distinct], path)
    return keys


def write_file(path: Path, seed: int, row_groups: int, rows: int = 4) -> None:
    """One index file with ``row_groups`` groups of ``rows`` rows, sorted by key."""
    spec = CrawlSpec(CRAWL)
    rng = np.random.Generator(np.random.PCG64(seeded.number(1, "file", CRAWL, seed)))
    first = "abcdefghijklmnopqrstuvwxyz"[seed % 26]
    table = index_rows(rng, spec, some_hosts(rng, row_groups * rows, first, first), 0, row_groups * rows)
    schema = published_schema(spec)
    with pq.ParquetWriter(path, schema, **writer_options(spec, schema)) as writer:
        for start in range(0, row_groups * rows, rows):
            writer.write_table(table.slice(start, rows))
