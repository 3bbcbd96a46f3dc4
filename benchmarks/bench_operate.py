"""What Dagster costs beside the work: planning a run over many partitions, its events, and its history.

    python -m benchmarks.bench_operate                  200 of 19,950 partitions planned; 10 made, in one run and each
    SHORT=1 python -m benchmarks.bench_operate          every path on tiny input

The figures of planning are wall times on SQLite, so they say something on a quiet machine alone.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import dagster as dg

from benchmarks.report import SHORT, Report, sized
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.build import build_own_home
from cc_pipeline.defs.history import trim_history
from cc_pipeline.defs.home_namespace import OWN_HOME, TABLES
from cc_pipeline.defs.instance import keep_log_open, open_instance
from cc_pipeline.defs.stage_runner import StageRunner
from cc_pipeline.settings import load_settings
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import DEMO
from cc_pipeline.workspace.workspace import open_workspace

_CRAWL: Final = "CC-MAIN-2024-22"
_QUIET: Final = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
_EVENTS: Final = ("ASSET_MATERIALIZATION", "ASSET_MATERIALIZATION_PLANNED", "ASSET_CHECK_EVALUATION")


def main() -> None:
    """Prints a line a figure and writes ``benchmarks/results/operate.json``."""
    report = Report("operate")
    with tempfile.TemporaryDirectory(prefix="bench-operate-") as folder:
        bench_planning(report, Path(folder))
        bench_history(report, Path(folder))
    report.write()


def bench_planning(report: Report, folder: Path) -> None:
    """The seconds from the creation of a run over 200 of 19,950 partitions until it is planned."""
    crawls, targets, planned = sized(3, 21), sized(20, 950), sized(5, 200)
    settings = load_settings({}, source=str(folder), home=str(folder / "planning"))
    job = build_own_home().resolve_implicit_global_asset_job_def()
    with open_instance(settings) as instance:
        keep_log_open(instance)
        instance.add_dynamic_partitions("crawl", [f"C{number:02d}" for number in range(crawls)])
        for start in range(0, targets, 500):
            instance.add_dynamic_partitions("target", [f"t{n:04d}" for n in range(start, min(start + 500, targets))])
        started = time.monotonic()
        instance.create_run_for_job(
            job,
            tags={
                "dagster/asset_partition_range_start": "C00|t0000",
                "dagster/asset_partition_range_end": f"C00|t{planned - 1:04d}",
            },
            asset_selection={*map(dg.AssetKey, TABLES)},
        )
        report.figure(
            "planning", ours=time.monotonic() - started, goal=20.0, goal_on="value", unit="s", higher_is_better=False,
            note=f"{planned} of {crawls * targets:,} partitions, SQLite",
        )  # fmt: skip


def bench_history(report: Report, folder: Path) -> None:
    """The events of a partition in a run over many, and the kilobytes that a partition with a run of its own takes in
    SQLite when old runs are gone."""
    truth = ensure(folder / "bucket", DEMO)
    slugs = truth.domains(_CRAWL)[: sized(3, 10)]
    os.environ |= {"CC_PIPELINE_SOURCE": str(folder / "bucket"), "CC_PIPELINE_HOME": str(folder / "home")}
    settings = load_settings()
    job = build_own_home().resolve_implicit_global_asset_job_def()
    with open_workspace(settings) as workspace, StageRunner(workspace) as runner:
        runner.harvest([_CRAWL])
        runner.add_targets([parse_target(slug) for slug in slugs])
        keys, instance = [f"{_CRAWL}|{slug}" for slug in instance_order(runner.instance)], runner.instance

        def run(**chosen: object) -> dg.ExecuteInProcessResult:
            return job.execute_in_process(
                instance=instance,
                asset_selection=[*map(dg.AssetKey, TABLES)],
                run_config=_QUIET,
                **chosen,  # type: ignore[arg-type]
            )

        ends = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
        entries = instance.all_logs(run(tags=ends).run_id)
        events = [one for one in entries if one.dagster_event and one.dagster_event.event_type_value in _EVENTS]
        report.figure(
            "events", ours=len(events) / len(keys), goal=20.0, goal_on="value", unit="a partition",
            higher_is_better=False, note=f"a run over {len(keys)} partitions of six tables",
        )  # fmt: skip

    # growth: a home has constant parts, such as the snapshots of its jobs
    os.environ["CC_PIPELINE_HOME"] = str(folder / "history")
    settings = load_settings()
    with open_workspace(settings) as workspace, StageRunner(workspace) as runner:
        runner.harvest([_CRAWL])
        runner.add_targets([parse_target(slug) for slug in slugs])
        instance, sizes = runner.instance, list[int]()
        for group in (keys[:1], keys[1:]):
            for key in group:
                run(partition_key=key)
            trim_history(instance, workspace, OWN_HOME, now=datetime.now(UTC) + timedelta(days=1_000))
            sizes.append(measure(settings.dagster_home, folder))
        report.figure(
            "history",
            ours=(sizes[1] - sizes[0]) / (len(keys) - 1) / 1e3,
            goal=None if SHORT else 32.0,
            goal_on="value",
            unit="kB",
            higher_is_better=False,
            note="a partition of six tables that had a run of its own, after the trim",
        )


def measure(dagster_home: Path, folder: Path) -> int:
    """The bytes of all files of an instance, those of SQLite without pages that the next events take again."""
    size = sum(path.stat().st_size for path in dagster_home.rglob("*") if path.is_file() and ".db" not in path.name)
    for number, path in enumerate(dagster_home.rglob("*.db")):
        copy = folder / f"copy-{number}"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("VACUUM INTO ?", [str(copy)])
        size += copy.stat().st_size
        copy.unlink()
    return size


def instance_order(instance: dg.DagsterInstance) -> list[str]:
    """The targets in Dagster's order, by which a range goes."""
    return [*OWN_HOME.target_keys(instance)]


if __name__ == "__main__":
    main()
