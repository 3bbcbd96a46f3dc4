"""``make bench-main``: what a partition costs in a run of 1, 10 and 100, and how much of it is not our own code.

The rival is the same graph launched the way Dagster does without batching: one run per partition.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import Report, sized, spread
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs import partition_runs as slices
from cc_pipeline.defs.launch import Launcher
from cc_pipeline.minicrawl.generate import ensure
from cc_pipeline.minicrawl.spec import spec_for
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import open_workspace

CRAWL = "CC-MAIN-2024-22"


class Clock:
    """Adds up the seconds spent inside our stages."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def timed(*arguments: Any, **named: Any) -> Iterator[Any]:
            given = function(*arguments, **named)
            while True:
                started = time.perf_counter()
                try:
                    each = next(given)
                except StopIteration:
                    return
                finally:
                    self.seconds += time.perf_counter() - started
                yield each

        return timed


def main() -> None:
    """Runs the benchmark and writes ``benchmarks/results/main.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=sized(1, 3), help="fresh homes per size (default 3)")
    parser.add_argument("--sizes", type=int, nargs="+", default=sized([1], [1, 10, 100]), help="partitions in one run")
    arguments = parser.parse_args()
    clock = Clock()
    slices.extract = clock.around(slices.extract)
    report = Report("main")
    with tempfile.TemporaryDirectory() as folder:
        bucket = Path(folder) / "bucket"
        spec = spec_for(sized(60, 6_000), crawls=(CRAWL,))
        truth = ensure(bucket, spec)
        domains = [domain for domain in truth.domains() if "." in domain][: max(arguments.sizes)]
        report.setting = {"captures": len(truth.captures), "domains": len(domains), "crawl": CRAWL}
        for size in arguments.sizes:
            ours, shares = [], []
            for repeat in range(arguments.repeats):
                seconds, inside = one_run(Path(folder) / f"home-{size}-{repeat}", bucket, domains[:size], clock)
                ours.append(seconds / size)
                shares.append(1 - inside / seconds)
            rival = run_by_run(Path(folder) / f"rival-{size}", bucket, domains[: min(size, sized(1, 10))])
            report.figure(
                f"seconds_per_partition_{size}", median(ours), rival, unit="s", higher_is_better=False,
                note=f"{spread(ours)}; rival: one run per partition",
            )  # fmt: skip
            report.figure(f"share_outside_our_functions_{size}", median(shares), note=spread(shares))
    report.write()


def one_run(home: Path, bucket: Path, domains: list[str], clock: Clock) -> tuple[float, float]:
    """Seconds of one run over all ``domains``, and those of them inside our stages."""
    settings = load_settings({}, source=str(bucket), home=str(home))
    with open_workspace(settings) as workspace, Launcher(workspace) as launcher:
        launcher.harvest([CRAWL])
        clock.seconds = 0.0
        started = time.perf_counter()
        list(launcher.extract([CRAWL], [parse_target(domain) for domain in domains]))
        return time.perf_counter() - started, clock.seconds


def run_by_run(home: Path, bucket: Path, domains: list[str]) -> float:
    """Seconds per partition when each has a run of its own."""
    settings = load_settings({}, source=str(bucket), home=str(home))
    with open_workspace(settings) as workspace, Launcher(workspace) as launcher:
        launcher.harvest([CRAWL])
        started = time.perf_counter()
        for domain in domains:
            list(launcher.extract([CRAWL], [parse_target(domain)]))
        return (time.perf_counter() - started) / len(domains)


if __name__ == "__main__":
    main()
