"""A catalog of many crawls: what adding a crawl costs as a harvest does it, and what questions cost.

Rows are generated and committed to a lake as a harvest commits them, each crawl in a process of its own:

    python -m benchmarks.index_growth HOME CRAWLS NUMBER    commits one; prints what it took as JSON
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.index_synthetic import Shape, crawl_name, crawl_tables
from benchmarks.report import Report, percentile, sized, spread
from cc_pipeline.commoncrawl.key_ranges import KeyRange
from cc_pipeline.harvesting.catalog import open_catalog
from cc_pipeline.index.catalog.catalog import Catalog
from cc_pipeline.lake.slice import HARVEST, Slice
from cc_pipeline.lake.slices import commit_stage, read_slice_rows
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import Workspace, open_lake
from cc_pipeline_tests.peak import own_peak

QUESTIONS = sized(20, 200)
#: Crawls to which a home grows; all that there are with ``FULL=1``.
CRAWLS = sized(2, 14, 128)
#: Some 9,000 row groups in 900 files, as a crawl of today has.
SUBSETS = sized((("warc", 6, 5),), (("warc", 300, 22), ("crawldiagnostics", 300, 6), ("robotstxt", 300, 2)))


def open_home(home: Path) -> Workspace:
    """The workspace of a home whose source is never asked."""
    return Workspace(load_settings({}, source=str(home / "bucket"), home=str(home)))


def bench_catalog(report: Report, folder: Path, crawls: int | None = None) -> None:
    """Adding crawls as a harvest does, disk, one domain in one crawl and in all."""
    shape = Shape(crawls=crawls or CRAWLS, subsets=SUBSETS)
    print(f"# a home that grows to {shape.row_groups:,} row groups in {shape.crawls} crawls", flush=True)
    report.setting |= {"row_groups": shape.row_groups, "crawls": shape.crawls}
    home = folder / f"home-{shape.crawls}"
    (home / "bucket").mkdir(parents=True, exist_ok=True)
    added = [_added(home, shape, number) for number in range(shape.crawls)]
    last = [one for one in added[-10:] if one]
    for name, goal, unit in (("seconds", 2, "s"), ("user", None, "s"), ("peak", 300, "MB")):
        if last:
            values = [took[name] for took in last]
            note = f"crawls {len(added) - len(last) + 1} to {len(added)}, {spread(values)}"
            typical = median(values)
            report.figure(f"crawl_added_{name}", typical, None, goal, higher_is_better=False, unit=unit, note=note)
    lake = open_lake(open_home(home).settings)
    report.figure("catalog_size", lake.pin("row_groups").bytes / 1e6, unit="MB", note=f"{shape.crawls} crawls")
    _ask(report, home)


def _added(home: Path, shape: Shape, number: int) -> dict[str, float]:
    """``seconds``, ``user`` seconds and ``peak`` MB of adding a crawl; nothing for one that is there."""
    slice_ = Slice(crawl_name(number))
    if read_slice_rows(open_home(home).lake, [slice_], (HARVEST,)):
        return {}
    arguments = [sys.executable, "-m", "benchmarks.index_growth", str(home), str(shape.crawls), str(number)]
    done = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _ask(report: Report, home: Path) -> None:
    started = time.perf_counter()
    with open_catalog(open_lake(open_home(home).settings)) as catalog:
        crawls = catalog.crawls()
        domains = []
        for what, chosen, goal in (
            ("one_crawl", crawls[-1], 5),
            # the oldest crawls overlap: their row groups each span their whole file
            ("one_overlapping_crawl", crawls[0], 5),
        ):
            catalog.row_groups_for(chosen, ["warc"], [KeyRange(b"com,", b"com-")])
            connected = (time.perf_counter() - started) * 1000
            note = "and the first answer"
            report.figure(f"connected_{what}", connected, higher_is_better=False, unit="ms", note=note)
            domains = domains or sample_domains(catalog, crawls[-1], QUESTIONS)
            times, rows = ask(catalog, chosen, domains)
            note = f"{len(times)} domains, {rows:.0f} row groups each"
            for part, share, most in (("p50", 0.5, goal), ("p99", 0.99, None)):
                value = percentile(times, share)
                report.figure(f"domain_{what}_{part}", value, None, most, higher_is_better=False, unit="ms", note=note)
            started = time.perf_counter()


def ask(catalog: Catalog, crawl: str, domains: Sequence[Sequence[KeyRange]]) -> tuple[list[float], float]:
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
    """Commits one crawl, measured in this process; its rows are packed as a harvest packs them."""
    home, crawls, number = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    workspace, tables = open_home(home), crawl_tables(Shape(crawls=crawls, subsets=SUBSETS), number)
    slice_ = Slice(crawl_name(number))
    inputs = {slice_: {"number": str(number)}}
    started, before = time.perf_counter(), os.times()
    commit_stage(workspace.lake, HARVEST, inputs, {"row_groups": tables.packed().to_batches()})
    spent, seconds = os.times(), time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "user": spent.user - before.user, "peak": own_peak() / 1024}))


if __name__ == "__main__":
    main()
