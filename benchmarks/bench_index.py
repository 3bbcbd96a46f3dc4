"""Harvest, catalog and lookups: every footer of every crawl, which row groups may hold a domain, and its captures.

    python -m benchmarks.bench_index                      everything, some ten minutes
    python -m benchmarks.bench_index harvest --files 6000
    python -m benchmarks.bench_index catalog --crawls 30      a home that grows crawl by crawl (14; FULL=1: 120)

Ours and the rivals run against the same server in one run: a process on this machine whose answers come late.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from benchmarks.index_files import CRAWL, write_files
from benchmarks.index_growth import bench_catalog
from benchmarks.index_look_ups import bench_look_ups
from benchmarks.report import Report, sized, spread
from cc_pipeline.index.catalog.from_footers import crawl_tables
from cc_pipeline.index.footers.harvest import harvest_crawl
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.limits import default_limits
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.faultserver import FaultServerProcess
from cc_pipeline_tests.peak import own_peak

#: Seconds of distance, and the requests under way that it takes.
DISTANCES = sized(((0.0, 16),), ((0.030, 160), (0.200, 448)))
FEW_FILES = 400
SMALL, LARGE = sized((20, 60), (1_000, 25_000))
PARTS = ("harvest", "catalog", "memory", "lookups")
ROW_GROUPS = 16


def bench_harvest(report: Report, folder: Path, files: int, repeats: int) -> None:
    """Footers fetched, decoded to table rows and stored, a second; beside two libraries."""
    root = folder / "bucket"
    keys = write_files(root, files)
    report.setting |= {"files": files}
    # the rates below are of a source without limits: Common Crawl's own host's decide alone, whatever the method
    limits = default_limits("https://data.commoncrawl.org")
    report.setting["common_crawl"] = {"requests_a_second": limits.rate, "under_way": limits.concurrency}
    for name, count in (("a_crawl", 900), ("all_footers", 88_000)):
        seconds = count / (limits.rate or float("inf"))
        note = f"{count} requests at {limits.rate:g}/s, by arithmetic"
        report.figure(f"common_crawl_{name}", seconds, higher_is_better=False, unit="s", note=note)
    for delay, concurrency in DISTANCES:
        name = f"harvest_{delay * 1000:.0f}ms"
        with FaultServerProcess(root, latency=delay) as server:
            url = server.url
            print(f"# {delay * 1000:g} ms; {concurrency} requests under way, {files} files", flush=True)
            rates = [our_rate(url, keys, concurrency, folder) for _ in range(repeats)]
            ours = median(rates)
            report.figure(name, ours, unit="files/s", note=spread(rates))
            if (delay, concurrency) == DISTANCES[0]:
                report.figure(f"{name}_rate", ours, None, 50, unit="files/s", note=f"best {max(rates):.0f}")
                few = keys[:FEW_FILES]
                rate = pyarrow_rate(url, few, concurrency)
                note = f"{len(few)} files, over fsspec, as many at the same time"
                report.figure(f"{name}_and_pyarrow_dataset", ours, rate, unit="files/s", note=note)
                rate, note = duckdb_rate(url, root, few)
                report.figure(f"{name}_and_duckdb_parquet_metadata", ours, rate, unit="files/s", note=note)


def bench_memory(report: Report, folder: Path) -> None:
    """Peak memory of a harvest, small and large."""
    root = folder / "bucket"
    keys = write_files(root, LARGE)
    with FaultServerProcess(root) as server:
        small, large = (peak_memory(server.url, keys[:count], 64) for count in (SMALL, LARGE))
    note = f"{small:.0f} MB at {SMALL} footers, {large:.0f} MB at {LARGE}"
    report.figure("memory_growth", large - small, None, 300, higher_is_better=False, unit="MB", note=note)


def our_rate(url: str, keys: Sequence[str], concurrency: int, scratch: Path) -> float:
    """Files a second: fetched, checked, stored durably, and decoded into the catalog's tables."""
    with (
        tempfile.TemporaryDirectory(dir=scratch) as folder,
        Transport(url, SourceOptions(concurrency=concurrency)) as transport,
    ):
        started = time.perf_counter()
        store = FooterStore(Path(folder))
        report = harvest_crawl(CRAWL, keys, transport, store)
        row_groups = len(crawl_tables(CRAWL, keys, store).row_groups)
        seconds = time.perf_counter() - started
    if report.fetched != len(keys) or row_groups != ROW_GROUPS * len(keys):
        raise RuntimeError(f"{report.fetched} files and {row_groups} row groups of {len(keys)} files")
    return len(keys) / seconds


def peak_memory(url: str, keys: Sequence[str], concurrency: int) -> float:
    """Megabytes at the peak of a process of its own that harvests ``keys``."""
    arguments = [sys.executable, "-m", "benchmarks.bench_index", "--peak", url, str(concurrency)]
    done = subprocess.run(arguments, input=json.dumps(list(keys)), stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def pyarrow_rate(url: str, keys: Sequence[str], concurrency: int) -> float:
    """Files a second of ``pyarrow.dataset`` reading the key's statistics over HTTP."""
    import fsspec  # only here, and only for rivals
    import pyarrow.dataset as ds

    started = time.perf_counter()
    dataset = ds.dataset([url + key for key in keys], filesystem=fsspec.filesystem("http"), format="parquet")
    with ThreadPoolExecutor(concurrency) as pool:
        found = pool.map(lambda fragment: fragment.row_groups, dataset.get_fragments())
        rows = [group.statistics["url_surtkey"] for groups in found for group in groups]
    seconds = time.perf_counter() - started
    if not rows or rows[0]["min"] is None:
        raise RuntimeError("pyarrow.dataset found no statistics")
    return len(keys) / seconds


def duckdb_rate(url: str, root: Path, keys: Sequence[str]) -> tuple[float, str]:
    """Files a second of DuckDB's ``parquet_metadata``, over HTTP where its extension is there, else on local files."""
    import duckdb

    con = duckdb.connect()
    query = """SELECT file_name, row_group_id, stats_min_value, stats_max_value FROM parquet_metadata({})
        WHERE path_in_schema = 'url_surtkey'"""
    try:
        con.execute("LOAD httpfs")
        files, note = [url + key for key in keys], f"{len(keys)} files, over httpfs"
    except duckdb.Error:
        files, note = [str(root / key) for key in keys], f"{len(keys)} local files: its httpfs extension is not here"
    started = time.perf_counter()
    rows = con.execute(query.format([*files])).fetchall()
    seconds = time.perf_counter() - started
    if not rows or rows[0][2] is None:
        raise RuntimeError("DuckDB found no statistics")
    return len(keys) / seconds, note


def main() -> None:
    """Prints a line a figure and writes ``benchmarks/results/index.json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="what to measure (default: everything)")
    parser.add_argument("--files", type=int, default=sized(40, 3_000), help="index files to harvest")
    parser.add_argument("--repeats", type=int, default=sized(1, 3))
    parser.add_argument("--crawls", type=int, help="crawls of 30,000 row groups in the catalog")
    parser.add_argument("--folder", type=Path, help="where generated data is kept for the next run")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak:
        with tempfile.TemporaryDirectory() as scratch:
            our_rate(given.peak[0], json.load(sys.stdin), int(given.peak[1]), Path(scratch))
        print(own_peak() / 1024)
        return
    parts = given.parts or PARTS
    folder = given.folder or Path(tempfile.mkdtemp(prefix="bench-index-"))
    folder.mkdir(parents=True, exist_ok=True)
    report = Report("index" if len(parts) == len(PARTS) else f"index-{'-'.join(parts)}")
    try:
        if "harvest" in parts:
            bench_harvest(report, folder, given.files, given.repeats)
        if "catalog" in parts:
            bench_catalog(report, folder, given.crawls)
        if "memory" in parts:
            bench_memory(report, folder)
        if "lookups" in parts:
            bench_look_ups(report, folder / "lookups")
    finally:
        if given.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"# written to {report.write()}")


if __name__ == "__main__":
    main()
