"""A catalog of millions of row groups: built, and asked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np

from benchmarks.catalog_synthetic import Shape, write_crawls
from benchmarks.report import Report, percentile
from cc_pipeline.commoncrawl.btree_keys import KeyRange
from cc_pipeline.index.catalog.build import build_catalog
from cc_pipeline.index.catalog.catalog import Catalog, open_catalog
from cc_pipeline.index.catalog.schemas import COVERAGE_SCHEMA

QUESTIONS = 1000
_BLOCK_BYTES = 256 * 1024


def bench_catalog(report: Report, folder: Path, scale: float) -> None:
    """Build time and sizes, one domain in one crawl and in all, and a thousand domains in one question."""
    shape = Shape(crawls=max(1, round(100 * scale)))
    print(f"# a synthetic catalog of {shape.row_groups:,} row groups in {shape.crawls} crawls", flush=True)
    sources = folder / f"synthetic-{shape.crawls}"
    if not sources.exists():
        write_crawls(shape, sources)
    path = folder / "catalog.duckdb"
    tables = {
        name: sorted((sources / name).glob("*.parquet")) for name in ("index_files", "row_groups", "column_chunks")
    }
    started = time.perf_counter()
    built = build_catalog(path, **tables, coverage=COVERAGE_SCHEMA.empty_table())  # type: ignore[arg-type]
    seconds = time.perf_counter() - started
    report.setting |= {
        "row_groups": shape.row_groups,
        "crawls": shape.crawls,
        "rows": built.rows,
        "unknown": built.unknown,
    }
    report.figure("catalog_build", seconds, None, 30, higher_is_better=False, unit="s", note=f"{built.rows}")
    for name, size in table_sizes(path).items():
        report.figure(f"catalog_size_{name}", size / 1e6, unit="MB")
    with open_catalog(path) as catalog:
        domains = sample_domains(catalog, 2 * QUESTIONS)
        for ranges in domains[-20:]:
            catalog.row_groups_for(None, ["warc"], ranges)
        crawls = catalog.sql("SELECT DISTINCT crawl FROM catalog.index_files ORDER BY 1")["crawl"].to_pylist()
        sorted_crawl, overlapping_crawl = crawls[-1], crawls[0]
        for name, chosen in (
            ("one_crawl", sorted_crawl),
            ("one_overlapping_crawl", overlapping_crawl),
            ("all_crawls", None),
        ):
            times, rows = ask(catalog, chosen, domains[:QUESTIONS])
            note = f"{QUESTIONS} domains, {rows:.0f} row groups each"
            report.figure(
                f"domain_{name}_p50", percentile(times, 0.5), None, 5, higher_is_better=False, unit="ms", note=note
            )
            report.figure(f"domain_{name}_p99", percentile(times, 0.99), None, 15, higher_is_better=False, unit="ms")
        for name, chosen in (("one_crawl", sorted_crawl), ("all_crawls", None)):
            targets = {str(number): ranges for number, ranges in enumerate(domains[:1000])}
            started = time.perf_counter()
            found = catalog.row_groups_for_many(chosen, ["warc"], targets)
            seconds = time.perf_counter() - started
            note = f"{len(found.row_groups)} row groups, {len(found.pairs)} pairs"
            report.figure(f"thousand_domains_{name}", seconds, None, 3, higher_is_better=False, unit="s", note=note)


def ask(catalog: Catalog, crawl: str | None, domains: Sequence[Sequence[KeyRange]]) -> tuple[list[float], float]:
    """Milliseconds of each question, and the mean number of row groups in an answer."""
    times, rows = [], 0
    for ranges in domains:
        started = time.perf_counter()
        found = catalog.row_groups_for(crawl, ["warc"], ranges)
        times.append((time.perf_counter() - started) * 1000)
        rows += len(found)
    return times, rows / len(domains)


def sample_domains(catalog: Catalog, count: int) -> list[tuple[KeyRange, ...]]:
    """Ranges of domains that are in the catalog, in no order."""
    keys = catalog.sql(
        f"SELECT url_surtkey_min AS key FROM catalog.row_groups WHERE url_surtkey_min IS NOT NULL "
        f"USING SAMPLE reservoir({count} ROWS) REPEATABLE (4711)"
    )["key"].to_pylist()
    np.random.default_rng(0).shuffle(keys)
    stems = [key[: key.index(b")")] for key in keys]
    return [(KeyRange(stem + b")", stem + b"-"), KeyRange(stem + b":", stem + b";")) for stem in stems]


def table_sizes(path: Path) -> dict[str, int]:
    """Bytes of each table's blocks, and of the whole file."""
    con = duckdb.connect()
    con.execute(f"ATTACH '{path}' AS c (READ_ONLY)")
    sizes = {}
    for table in ("index_files", "row_groups", "column_chunks"):
        row = con.execute(
            f"SELECT count(DISTINCT block_id) FROM pragma_storage_info('c.{table}') WHERE block_id >= 0"
        ).fetchone()
        sizes[table] = (row[0] if row else 0) * _BLOCK_BYTES
    con.close()
    return sizes | {"file": path.stat().st_size}
