"""``make bench-operate``: what operating costs beside the work: runs over many partitions, scattered ones, runs with
nothing to do, what history takes, the questions that every tick asks at 90,000 partitions, and the servers over a home
of 48,000.

Times are processor time of this process and its children (parsers), because on a machine that does other work as well
wall times say nothing. The rival of a run is the stage functions alone on the same slices; a ratio below 1 says how
much dearer the run is. ``FULL=1`` takes 500 targets × 3 crawls, 90,000 partitions of which 5,000 are made, and 48,000
that are all made (``servers``): to write these takes half an hour, so ``--built FOLDER`` keeps them, or takes those
that are there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
from cc_pipeline.defs.declared.build import everything
from cc_pipeline.defs.declared.collected_parts import listed_ops
from cc_pipeline.defs.launcher import Launcher
from cc_pipeline.defs.partitions_in_flight import EXTRACTED, find_in_flight, find_unresolved_failures

from benchmarks.many_partitions import fill
from benchmarks.operate_servers import bench_servers
from benchmarks.report import Report, percentile, sized
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.history import trim_run_history
from cc_pipeline.defs.instance import open_instance
from cc_pipeline.defs.partitions import KIND_TAG, config_of, partition_key, range_tags
from cc_pipeline.extraction.run import extract
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import DEMO, CrawlSpec, MiniCrawlSpec
from cc_pipeline.workspace.workspace import Workspace, open_workspace

CRAWLS = ("CC-MAIN-2024-22", "CC-MAIN-2023-50", "CC-MAIN-2018-05")
PARTS = ("runs", "large", "servers")
#: Milliseconds of processor time that Dagster may cost for each asset and partition.
_LIST_GOAL, _RANGE_GOAL = 40.0, 70.0
#: Kilobytes of Dagster's SQLite files for each partition when old runs are gone.
_HISTORY_GOAL = 32.0
_IDLE_GOAL_SECONDS, _QUESTION_GOAL_SECONDS = 5.0, 2.0
#: Of every so many targets one is asked for again, so that no two of them are neighbours.
_EVERY = 16
_MOST_SCATTERED = 30
_ASKED = sized(2, 20)


@dataclass(frozen=True, slots=True)
class Sizes:
    """``targets`` of each of three crawls; ``defined`` crawl × target partitions of which ``made`` are made; ``whole``
    ones that are all made."""

    targets: int
    crawls: int
    defined: tuple[int, int]
    made: int
    whole: tuple[int, int]


SIZES = sized(
    Sizes(targets=4, crawls=1, defined=(2, 5), made=5, whole=(1, 3)),
    Sizes(targets=40, crawls=2, defined=(30, 300), made=500, whole=(12, 40)),
    Sizes(targets=500, crawls=3, defined=(90, 1_000), made=5_000, whole=(120, 400)),
)


def used() -> float:
    """Seconds of processor time of this process and of those children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def cost(act: Callable[[], Any]) -> tuple[float, float]:
    """Processor and wall seconds of ``act``."""
    wall, processor = time.perf_counter(), used()
    act()
    return used() - processor, time.perf_counter() - wall


@dataclass(slots=True)
class Bench:
    """Where homes are made, of which bucket."""

    folder: Path
    bucket: Path
    crawls: Sequence[str]
    slugs: Sequence[str]

    def home(self, name: str) -> Settings:
        """A fresh home whose crawls are harvested and whose targets are partitions."""
        # one parser, in whose processor time all of a run's pages are seen when it has ended
        settings = load_settings({}, source=str(self.bucket), home=str(self.folder / name), workers=1)
        with open_workspace(settings) as workspace, Launcher(workspace) as launcher:
            launcher.harvest(list(reversed(self.crawls)))
            launcher.add_targets([parse_target(slug) for slug in self.slugs])
        return settings

    def keys(self) -> list[str]:
        """All partitions."""
        return [partition_key(crawl, slug) for crawl in self.crawls for slug in self.slugs]

    def run(self, settings: Settings, asked: Sequence[dict[str, Any]]) -> tuple[float, float]:
        """Processor and wall seconds of runs that are asked for so, one after the other."""
        with open_workspace(settings) as workspace:
            instance = open_instance(settings)
            defs = everything()

            def act() -> None:
                for one in asked:
                    job = defs.resolve_job_def("extract_targets" if "run_config" in one else "extract_domain")
                    given = {"run_config": _QUIET, "resources": {"workspace": workspace}, **one}
                    assert job.execute_in_process(instance=instance, **given).success

            try:
                return cost(act)
            finally:
                instance.dispose()


_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def bench_runs(report: Report, folder: Path, sizes: Sizes) -> None:
    """Runs over all partitions, by list and by range; then some scattered ones, and nothing to do."""
    crawls = CRAWLS[: sizes.crawls]
    bucket = folder / "bucket"
    spec = MiniCrawlSpec(pages=sizes.targets * 4, sites=sizes.targets, crawls=tuple(map(CrawlSpec, crawls)))
    truth = ensure(bucket, spec)
    bench = Bench(folder, bucket, crawls, truth.domains())
    partitions, most = len(bench.keys()), load_settings({}).partitions_per_run
    report.setting |= {"targets": len(bench.slugs), "crawls": len(crawls), "captures": len(truth.captures)}

    with open_workspace(bench.home("bare")) as workspace:
        bare, _ = cost(lambda: _alone(workspace, bench))
    each = 1_000 / (partitions * len(EXTRACTED))
    keys = bench.keys()
    lists = [
        {
            "run_config": _QUIET | config_of(listed_ops()["extract_targets"], keys[at : at + most]),
            "tags": {KIND_TAG: "backfill"},
        }
        for at in range(0, partitions, most)
    ]
    several = [bench.slugs[at : at + most] for at in range(0, len(bench.slugs), most)]
    ranges = [
        {"tags": range_tags(partition_key(crawl, some[0]), partition_key(crawl, some[-1]))}
        for crawl in crawls
        for some in several
    ]
    used_home = bench.home("list")
    for name, asked, goal in (("list", lists, _LIST_GOAL), ("range", ranges, _RANGE_GOAL))[: sized(1, 2)]:
        settings = used_home if name == "list" else bench.home(name)
        processor, wall = bench.run(settings, asked)
        note = f"{partitions} partitions, {len(asked)} runs, {wall:.0f} s of wall time"
        report.figure(
            f"{name}_overhead", (processor - bare) * each, goal=goal, unit="ms", higher_is_better=False,
            note="processor time for each asset and partition beyond the functions alone",
        )  # fmt: skip
        report.figure(f"{name}_run", processor, bare, unit="s", higher_is_better=False, note=note)
    _ask_again(report, bench, used_home)
    _forget(report, used_home, partitions)


def _forget(report: Report, settings: Settings, partitions: int) -> None:
    """What Dagster's files take with every run there, when all of them have gone, and when nothing was left to go."""

    def each() -> float:
        files = [file for file in settings.dagster_home.rglob("*") if file.is_file()]
        return sum(file.stat().st_size for file in files) / 1024 / partitions

    def forgotten() -> float:
        with open_instance(settings) as instance:
            trim_run_history(instance, settings.history_days, now=datetime.now(UTC) + timedelta(days=1_000))
        return each()

    report.figure("history_before", each(), unit="KB", higher_is_better=False, note="of Dagster's, each partition")
    report.figure("history_after", forgotten(), goal=_HISTORY_GOAL, unit="KB", higher_is_better=False)
    report.figure("history_again", forgotten(), goal=_HISTORY_GOAL, unit="KB", higher_is_better=False)


def _alone(workspace: Workspace, bench: Bench) -> None:
    for made in extract(workspace, [(crawl, slug) for crawl in bench.crawls for slug in bench.slugs], EXTRACTED):
        assert made.error is None
    workspace.close()  # a parser's time counts when it has ended


def _ask_again(report: Report, bench: Bench, settings: Settings) -> None:
    """The command line in a used home: scattered targets of which every other is new, and the same again."""
    named = [slug for slug in bench.slugs if slug.rpartition(".")[2].isalpha()]  # no addresses of hosts
    scattered = named[:: max(2, len(named) // _EVERY)][:_MOST_SCATTERED]
    # targets of their own, so that something is to be done, beside what is there
    asked = [*scattered, *(f"host:www.{slug}" for slug in scattered)]
    newest = bench.crawls[0]
    command = [sys.executable, "-c", "from cc_pipeline.cli import main; main()"]
    command += ["run", "-c", newest, "--home", str(settings.home)]
    command += asked
    before = _runs(settings)
    processor, wall = cost(lambda: _quietly(command))
    note = f"{len(asked)} targets, every other new; {wall:.0f} s of wall time"
    report.figure(
        "scattered_runs", _runs(settings) - before, goal=3, higher_is_better=False, goal_on="value",
        note="of Dagster's, one of them the publication",
    )  # fmt: skip
    report.figure("scattered", processor, unit="s", higher_is_better=False, note=note)
    processor, wall = cost(lambda: _quietly(command))
    report.figure(
        "nothing_to_do", processor, goal=_IDLE_GOAL_SECONDS, unit="s", higher_is_better=False,
        note=f"the same command again, a whole process; {wall:.0f} s of wall time",
    )  # fmt: skip


def _quietly(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2_000:])


def _runs(settings: Settings) -> int:
    instance = open_instance(settings)
    try:
        return instance.get_runs_count()
    finally:
        instance.dispose()


def bench_large(report: Report, folder: Path, sizes: Sizes) -> None:
    """Questions to an instance with many partitions, of which some are made, some failed, and some are under way."""
    settings = load_settings({}, source=str(folder / "nothing"), home=str(folder / "large"))
    crawls, domains = _named(*sizes.defined)
    _watch(settings, domains)
    instance = open_instance(settings)
    report.setting |= {"defined": sizes.defined[0] * sizes.defined[1], "made": sizes.made}
    try:
        instance.add_dynamic_partitions("crawl", crawls)
        for at in range(0, len(domains), 500):
            instance.add_dynamic_partitions("target", domains[at : at + 500])
        _record(instance, crawls, domains, sizes.made)
        with open_workspace(settings) as workspace:
            _ask(report, instance, workspace)
    finally:
        instance.dispose()


def bench_whole(report: Report, folder: Path, sizes: Sizes, built: Path | None) -> None:
    """The servers over a home whose partitions are all made and watched."""
    root = built or folder / "whole"
    settings = load_settings({}, source=str(root / "bucket"), home=str(root / "home"), crawls=("all",))
    crawls, domains = _named(*sizes.whole)
    if not settings.home.exists():
        ensure(root / "bucket", DEMO)
        _watch(settings, domains)
        instance = open_instance(settings)
        with open_workspace(settings) as workspace:
            fill(workspace, instance, crawls, domains)
        instance.dispose()
    report.setting |= {"whole": len(crawls) * len(domains)}
    bench_servers(report, settings, folder)


def _named(crawls: int, domains: int) -> tuple[list[str], list[str]]:
    """Names of as many crawls, the oldest first, and domains."""
    return (
        [f"CC-MAIN-{2013 + number // 12}-{number % 12 + 10}" for number in range(crawls)],
        [f"site-{number:05d}.example" for number in range(domains)],
    )


def _watch(settings: Settings, domains: Sequence[str]) -> None:
    settings.watch_list_path.parent.mkdir(parents=True, exist_ok=True)
    settings.watch_list_path.write_text("".join(f"{domain}\n" for domain in domains), "utf-8")


def _record(instance: dg.DagsterInstance, crawls: Sequence[str], domains: Sequence[str], made: int) -> None:
    """Every crawl is harvested, and ``made`` partitions are there, the newest crawls first."""
    for crawl in crawls:
        instance.report_runless_asset_event(dg.AssetMaterialization("row_groups", partition=crawl))
    for number in range(made):
        crawl = crawls[-1 - number // len(domains)]
        tags = {"dagster/partition/crawl": crawl, "dagster/partition/target": domains[number % len(domains)]}
        key = partition_key(crawl, domains[number % len(domains)])
        instance.report_runless_asset_event(dg.AssetMaterialization("page_metadata", partition=key, tags=tags))


def _ask(report: Report, instance: dg.DagsterInstance, workspace: Workspace) -> None:
    """Our own questions, as every tick asks them."""
    workspace.register_targets([])
    backfill_missing = everything().resolve_schedule_def("backfill_missing")

    def tick() -> None:
        context = dg.build_schedule_context(
            instance=instance, resources={"workspace": workspace}, scheduled_execution_time=datetime.now(UTC)
        )
        backfill_missing.evaluate_tick(context)

    for name, ask in (
        ("flight", lambda: find_in_flight(instance)),
        ("left_failed", lambda: find_unresolved_failures(instance)),
        ("schedule_tick", tick),
    ):
        seconds = []
        for _ in range(_ASKED):
            started = time.perf_counter()
            ask()
            seconds.append(time.perf_counter() - started)
        report.figure(
            f"{name}_p95", percentile(seconds, 0.95), goal=_QUESTION_GOAL_SECONDS, unit="s", higher_is_better=False,
            note=f"wall time, p95 of {_ASKED}; fastest {min(seconds):.3f}",
        )  # fmt: skip


def main() -> None:
    """Prints a line a figure and writes ``benchmarks/results/operate.json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="what to measure (default: everything)")
    parser.add_argument("--targets", type=int, help="other than the default or FULL=1 have")
    parser.add_argument("--built", type=Path, help="where the home of the servers is, or is to be kept")
    given = parser.parse_args()
    sizes = SIZES
    parts = given.parts or PARTS
    report = Report("operate" if len(parts) == len(PARTS) else f"operate-{'-'.join(parts)}")
    if given.targets:
        sizes = replace(sizes, targets=given.targets)
    with tempfile.TemporaryDirectory(prefix="bench-operate-") as folder:
        if "runs" in parts:
            bench_runs(report, Path(folder), sizes)
        if "large" in parts:
            bench_large(report, Path(folder), sizes)
        if "servers" in parts:
            bench_whole(report, Path(folder), sizes, given.built)
    print(f"# written to {report.write()}")


if __name__ == "__main__":
    main()
