"""Harvest and catalog: every footer of every crawl, and which row groups may hold a domain.

    python -m benchmarks.bench_catalog                      everything, some ten minutes
    python -m benchmarks.bench_catalog harvest --files 6000
    python -m benchmarks.bench_catalog catalog --crawls 30      a home that grows crawl by crawl (14; FULL=1: 120)
    python -m benchmarks.bench_catalog harvest --link ./a-delay-line.sh

Ours and the rivals run against the same server in one run, which says how the distance is made.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.catalog_files import write_files
from benchmarks.catalog_harvests import our_rate, peak_memory
from benchmarks.catalog_queries import bench_catalog
from benchmarks.catalog_rivals import duckdb_rate, pyarrow_rate, user_method
from benchmarks.catalog_server import far_server
from benchmarks.report import Report, spread
from cc_pipeline.index.footers.walk import COMPILED
from cc_pipeline.transport.rates import default_limits

#: Seconds of distance, and the requests under way that it takes.
DISTANCES = ((0.030, 160), (0.200, 448))
RIVAL_FILES = 1000
FEW_FILES = 400
SMALL, LARGE = 1_000, 25_000
PARTS = ("harvest", "catalog", "memory")


def bench_harvest(report: Report, folder: Path, files: int, repeats: int, link: str | None) -> None:
    """Footers fetched, decoded to table rows and stored, a second; against the user's method and two libraries."""
    root = folder / "bucket"
    keys = write_files(root, files)
    report.setting |= {"files": files, "compiled_walk": COMPILED}
    # the rates below are of a source without limits: the public mirror's decide alone, whatever the method
    limits = default_limits("https://data.commoncrawl.org")
    report.setting["public_mirror"] = {"requests_a_second": limits.rate, "under_way": limits.concurrency}
    for name, count in (("a_crawl", 900), ("all_footers", 88_000)):
        seconds = count / (limits.rate or float("inf"))
        note = f"{count} requests at {limits.rate:g}/s, by arithmetic"
        report.figure(f"public_mirror_{name}", seconds, higher_is_better=False, unit="s", note=note)
    for delay, concurrency in DISTANCES:
        name = f"harvest_{delay * 1000:.0f}ms"
        with far_server(root, delay, link) as (url, how):
            print(f"# {how}; {concurrency} requests under way, {files} files", flush=True)
            report.setting[name] = how
            rates = [our_rate(url, keys, concurrency, folder) for _ in range(repeats)]
            ours = median(rates)
            rival = user_method([url + key for key in keys[:RIVAL_FILES]], concurrency)
            note = f"{spread(rates)}; rival: three requests, fastparquet, sqlitedict, as many under way"
            report.figure(name, ours, rival.rate, 5, unit="files/s", goal_on="ratio", note=note)
            note = "ours decodes and stores as well"
            report.figure(f"{name}_and_its_fetch_alone", ours, rival.fetch_rate, unit="files/s", note=note)
            if (delay, concurrency) == DISTANCES[0]:
                report.figure(f"{name}_rate", ours, None, 1200, unit="files/s", note=f"best {max(rates):.0f}")
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
    with far_server(root, 0.0) as (url, _):
        small, large = (peak_memory(url, keys[:count], 64) for count in (SMALL, LARGE))
    note = f"{small:.0f} MB at {SMALL} footers, {large:.0f} MB at {LARGE}"
    report.figure("memory_growth", large - small, None, 300, higher_is_better=False, unit="MB", note=note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="what to measure (default: everything)")
    parser.add_argument("--files", type=int, default=3000, help="index files to harvest")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--crawls", type=int, help="crawls of 30,000 row groups in the catalog")
    parser.add_argument("--link", help="command that serves a folder over a real delay line (see catalog_server)")
    parser.add_argument("--folder", type=Path, help="where generated data is kept for the next run")
    given = parser.parse_args()
    parts = given.parts or PARTS
    folder = given.folder or Path(tempfile.mkdtemp(prefix="bench-catalog-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # nginx started as root serves as nobody
    report = Report("catalog" if len(parts) == len(PARTS) else f"catalog-{'-'.join(parts)}")
    try:
        if "harvest" in parts:
            bench_harvest(report, folder, given.files, given.repeats, given.link)
        if "catalog" in parts:
            bench_catalog(report, folder, given.crawls)
        if "memory" in parts:
            bench_memory(report, folder)
    finally:
        if given.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"# written to {report.write()}")


if __name__ == "__main__":
    main()
