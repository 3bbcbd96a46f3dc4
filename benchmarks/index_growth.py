"""A catalog of millions of row groups: what adding a crawl costs as a harvest does it, and what questions cost.

Rows are generated and committed to a lake as a harvest commits them. Each measurement runs in a process of its own:

    python -m benchmarks.index_growth HOME    brings the catalog up to date; prints what it took as JSON
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import numpy as np
from cc_pipeline.index.catalog.contents import base_file, read_contents, recent_file
from cc_pipeline.index.catalog.keep import merge_crawls

from benchmarks.index_synthetic import SUBSETS, Shape, crawl_tables
from benchmarks.report import Report, percentile, sized, spread
from cc_pipeline.commoncrawl.key_ranges import KeyRange
from cc_pipeline.index.catalog.catalog import Catalog, open_catalog
from cc_pipeline.index.catalog.from_footers import coverage_table
from cc_pipeline.indexing.catalog import rebuild_catalog
from cc_pipeline.lake.slice import HARVEST, Slice
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.peak import own_peak

QUESTIONS = sized(20, 1_000)
#: Crawls to which a home grows; all that there are, and some more, with ``FULL=1``.
CRAWLS = sized(2, 14, 120)


def open_home(home: Path) -> Workspace:
    """The workspace of a home whose source is never asked."""
    return Workspace(load_settings({}, source=str(home / "bucket"), home=str(home)))


def commit_crawl(workspace: Workspace, shape: Shape, number: int) -> str:
    """Commits the rows of crawl ``number``, as a harvest does; gives its name."""
    tables = crawl_tables(shape, number)
    slice_ = Slice(tables.crawl)
    digest = HARVEST.digest(number=number)
    if HARVEST.stale(workspace.lake, {slice_: digest}):
        covered = coverage_table(
            tables.crawl, tables.index_files["path"].to_pylist(), tables.index_files, tables.row_groups
        )
        rows = {
            "coverage": covered,
            "index_files": tables.index_files,
            "column_chunks": tables.column_chunks,
            "row_groups": tables.row_groups,
        }
        HARVEST.commit(workspace.lake, {slice_: digest}, rows)
    return tables.crawl


def grow(home: Path, shape: Shape) -> Iterator[dict[str, float]]:
    """Adds crawl after crawl; yields what adding each took."""
    workspace = open_home(home)
    for number in range(shape.crawls):
        commit_crawl(workspace, shape, number)
        yield measured(home)


def measured(home: Path) -> dict[str, float]:
    """``seconds``, ``user`` seconds and ``peak`` MB in a process of its own; ``merged`` where it merged."""
    arguments = [sys.executable, "-m", "benchmarks.index_growth", str(home)]
    done = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def disk(folder: Path) -> dict[str, int]:
    """Bytes of the crawls' own files, and of the merged ones."""
    files = list(folder.glob("*.duckdb"))
    merged = sum(path.stat().st_size for path in files if path.name.endswith(".merged.duckdb"))
    return {"crawls": sum(path.stat().st_size for path in files) - merged, "merged": merged}


def bench_catalog(report: Report, folder: Path, crawls: int | None = None) -> None:
    """Adding crawls as a harvest does, disk, one domain in one crawl and in all."""
    shape = Shape(crawls=crawls or CRAWLS, subsets=sized((("warc", 6, 5),), SUBSETS))
    print(f"# a home that grows to {shape.row_groups:,} row groups in {shape.crawls} crawls", flush=True)
    report.setting |= {"row_groups": shape.row_groups, "crawls": shape.crawls}
    home = folder / f"home-{shape.crawls}"
    (home / "bucket").mkdir(parents=True, exist_ok=True)
    path = open_home(home).settings.catalog_path
    _grow(report, home, shape)
    for name, size in disk(path).items():
        report.figure(f"catalog_size_{name}", size / 1e6, unit="MB", note=f"{shape.crawls} crawls")
    _ask(report, path, "unmerged")
    started = time.perf_counter()
    merge_crawls(path, base_file(path), read_contents(path).crawls)
    recent_file(path).unlink(missing_ok=True)
    report.figure("all_merged", time.perf_counter() - started, higher_is_better=False, unit="s")
    _ask(report, path, "merged")


def _grow(report: Report, home: Path, shape: Shape) -> None:
    added = list(grow(home, shape))
    merging = max((took["peak"] for took in added if took["merged"]), default=0.0)
    report.figure("merge_peak", merging, None, 300, higher_is_better=False, unit="MB", note="of the largest")
    last = added[-10:]
    for name, goal, unit in (("seconds", 2, "s"), ("user", None, "s"), ("peak", 300, "MB")):
        values = [took[name] for took in last]
        note = f"crawls {len(added) - len(last) + 1} to {len(added)}, {spread(values)}; with merges that were due"
        report.figure(f"crawl_added_{name}", median(values), None, goal, higher_is_better=False, unit=unit, note=note)


def _ask(report: Report, path: Path, state: str) -> None:
    """``state`` says whether the newest crawls are in the merged file of all."""
    started = time.perf_counter()
    with open_catalog(path) as catalog:
        crawls = catalog.crawls()
        catalog.coverage(crawls[-1])
        opened = (time.perf_counter() - started) * 1000
        report.figure(f"opened_{state}", opened, higher_is_better=False, unit="ms", note="and one crawl's coverage")
        domains = sample_domains(catalog, crawls[-1], QUESTIONS)
        # the oldest crawls overlap: their row groups each span their whole file
        for name, chosen, goal in (
            ("one_crawl", crawls[-1], 3),
            ("one_overlapping_crawl", crawls[0], 3),
            ("all_crawls", None, 8),
        ):
            ask(catalog, chosen, domains[-20:])
            times, rows = ask(catalog, chosen, domains)
            note = f"{len(domains)} domains, {rows:.0f} row groups each"
            for part, share, most in (("p50", 0.5, goal), ("p99", 0.99, None)):
                value = percentile(times, share)
                report.figure(
                    f"domain_{name}_{state}_{part}", value, None, most, higher_is_better=False, unit="ms", note=note
                )


def ask(catalog: Catalog, crawl: str | None, domains: Sequence[Sequence[KeyRange]]) -> tuple[list[float], float]:
    """Milliseconds of each question, and the mean number of row groups in an answer."""
    times, rows = [], 0
    for ranges in domains:
        started = time.perf_counter()
        found = catalog.row_groups_for(crawl, ["warc"], ranges)
        times.append((time.perf_counter() - started) * 1000)
        rows += len(found)
    return times, rows / len(domains)


def sample_domains(catalog: Catalog, crawl: str, count: int) -> list[tuple[KeyRange, ...]]:
    """Ranges of domains that are in ``crawl``, in no order."""
    found = catalog.row_groups_for(crawl, None, [KeyRange(b"", None)])["url_surtkey_min"].drop_null().to_pylist()
    keys = [found[place] for place in np.random.default_rng(4711).choice(len(found), count, replace=False)]
    stems = [key[: key.index(b")")] for key in keys]
    return [(KeyRange(stem + b")", stem + b"-"), KeyRange(stem + b":", stem + b";")) for stem in stems]


def main() -> None:
    """Brings the catalog of a home up to date, measured in this process."""
    workspace = open_home(Path(sys.argv[1]))
    started, before = time.perf_counter(), os.times()
    merged = rebuild_catalog(workspace).merged
    spent = os.times()
    seconds = time.perf_counter() - started
    figures = {"seconds": seconds, "user": spent.user - before.user, "peak": own_peak() / 1024, "merged": merged}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
