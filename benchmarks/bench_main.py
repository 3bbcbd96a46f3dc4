"""``make bench-main``: what a command costs before and beside its work, in processor time and in what it calls.

    python -m benchmarks.bench_main                   150 partitions with nothing to do
    FULL=1 python -m benchmarks.bench_main            1,500 of them; to make them takes some minutes
    python -m benchmarks.bench_main start             how long it takes to begin: imports, --help, the definitions
    python -m benchmarks.bench_main run idle lookup   some of its cases
    python -m benchmarks.bench_main --keep FOLDER     the bucket and the homes stay there for another time

Each command is a fresh process on a small generated home; its processor time is that of the process and its children.
Modules of ours are compiled before, as those of an installed package are. What it takes to import Dagster, with its
storages, and the libraries of tables is printed apart, and taken off where a command has to import all of them:
modules of ours count as the command's. What is called is counted in a run of its own (``main_trace``), since counting
is slow; the names are in the JSON, to compare two of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import Report, sized, spread

_ROOT = Path(__file__).parent.parent
#: A command as it is where only this package is installed: Arrow imports pandas, which the tests need, as soon as it
#: makes an array and finds it.
_AS_INSTALLED = """
import sys

class NoPandas:
    @staticmethod
    def find_spec(name, *_):
        if name == "pandas":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoPandas)
from cc_pipeline.cli import main
main()
"""
_COMMAND = [sys.executable, "-c", _AS_INSTALLED]
_TRACED = [sys.executable, str(Path(__file__).with_name("main_trace.py"))]
CRAWLS = ("CC-MAIN-2024-22", "CC-MAIN-2023-50", "CC-MAIN-2018-05")
CASES = ("start", "fresh", "run", "idle", "many", "lookup", "plan")
#: Captures of the partition that is run, and about those of the one that a fresh home gets.
_CAPTURES, _FRESH_CAPTURES = 4, 110
_REPEATS = sized(1, 5)
#: What a command imports that Dagster runs; its storages import SQLAlchemy and Alembic.
_LIBRARIES = "import dagster, dagster._core.storage.sqlite_storage, deltalake, duckdb, pyarrow.parquet"
#: Seconds of processor time, beyond the libraries where a command imports them.
_GOALS = {"run": 1.5, "idle": 0.6, "many": 2.5, "lookup": 0.8, "plan": 0.8,
          "import": 0.15, "help": 0.6, "definitions": 0.5}  # fmt: skip
#: What is begun, and what of it is taken off.
_STARTS = {
    "import": ("import cc_pipeline as cc; cc.open", False),
    "help": ("import sys; sys.argv = ['cc-pipeline', '--help']; from cc_pipeline.cli import main; main()", False),
    "definitions": ("from cc_pipeline.definitions import defs; defs().get_repository_def()", True),
}
#: What a run of the few captures may call.
_CALLED = {"functions": 600, "modules": 110, "delta_openings": 40}
#: What a run in a fresh home may call.
_CALLED_FRESH = {"lake_opens": 60, "requests_after_pages": 0}
_TARGETS = sized(50, 50, 500)


@dataclass(slots=True)
class Bench:
    """Where homes lie, of which bucket; ``few`` and ``more`` are domains of some captures of the newest crawl."""

    report: Report
    folder: Path
    targets: int
    repeats: int
    domains: Sequence[str] = ()
    few: str = ""
    more: str = ""
    libraries: float = 0.0
    traces: dict[str, Any] = field(default_factory=dict)

    @property
    def bucket(self) -> Path:
        """Where the source lies."""
        return self.folder / "bucket"

    def arguments(self, *command: str, home: Path) -> list[str]:
        """A command with its source and home."""
        return [*command, "--source", str(self.bucket), "--home", str(home)]

    @contextmanager
    def copy_of(self, home: Path) -> Iterator[Path]:
        """A home to change, for once."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            yield shutil.copytree(home, Path(folder) / "home")


def processor(command: Sequence[str]) -> float:
    """Seconds of processor time of a process and those it waited for. Raises ``SystemExit`` where it fails."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, cwd=_ROOT, env=_environment())
        _, ended, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(ended)
        if process.returncode:
            said.seek(0)
            raise SystemExit(f"{command[3:]} ended with {process.returncode}\n{said.read().decode()[-3_000:]}")
    return used.ru_utime + used.ru_stime


def _environment() -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("CC_PIPELINE_", "DAGSTER"))}
    return {**plain, "PYTHONPATH": str(_ROOT)}


def made(bench: Bench) -> None:
    """The bucket, and a home of it that is harvested and used."""
    from cc_pipeline.testing.mini_crawl.generate import ensure
    from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, MiniCrawlSpec

    spec = MiniCrawlSpec(pages=bench.targets * 4, sites=bench.targets, crawls=tuple(map(CrawlSpec, CRAWLS)))
    truth = ensure(bench.bucket, spec)
    newest = [one for one in truth.captures if one.crawl == CRAWLS[0]]
    bench.domains = truth.domains()
    counts = Counter(one.domain for one in newest)
    named = [domain for domain in bench.domains if domain.rpartition(".")[2].isalpha()]
    bench.few = next(domain for domain in named if counts[domain] == _CAPTURES)
    bench.more = min(named, key=lambda domain: (abs(counts[domain] - _FRESH_CAPTURES), domain))
    other = next(domain for domain in named if counts[domain] > _CAPTURES)
    bench.report.setting |= {"targets": bench.targets, "crawls": len(CRAWLS), "captures": len(truth.captures)}
    bench.report.setting["captures_fresh"] = counts[bench.more]
    home = bench.folder / "home"
    if not home.exists():
        with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
            making = Path(folder) / "home"
            processor([*_COMMAND, *bench.arguments("run", "-c", CRAWLS[0], other, home=making)])
            making.rename(home)


def bench_start(bench: Bench) -> None:
    """What comes before any work; each time beside ``import dagster``, since a busy machine slows both."""
    times: dict[str, list[float]] = {name: [] for name in _STARTS}
    for _ in range(bench.repeats):
        beside = processor([sys.executable, "-c", "import dagster"])
        for name, (code, less) in _STARTS.items():
            times[name].append(processor([sys.executable, "-c", code]) - (beside if less else 0.0))
    for name, (_, less) in _STARTS.items():
        _say(bench, name, times[name], note="beyond import dagster beside it" if less else "")


def bench_fresh(bench: Bench) -> None:
    """A run of some captures in a fresh home: what is called, and what is asked for once the pages are there."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        command = bench.arguments("run", "-c", CRAWLS[0], bench.more, home=Path(folder) / "home")
        _count(bench, "fresh", command, _CALLED_FRESH)


def bench_run(bench: Bench) -> None:
    """A run of few captures in a harvested home."""
    command = ("run", "-c", CRAWLS[0], bench.few)
    times = []
    for _ in range(bench.repeats):
        with bench.copy_of(bench.folder / "home") as home:
            times.append(processor([*_COMMAND, *bench.arguments(*command, home=home)]))
    _say(bench, "run", times, less=bench.libraries)
    with bench.copy_of(bench.folder / "home") as home:
        _count(bench, "run", bench.arguments(*command, home=home), {**_CALLED, "requests_after_pages": 0})


def bench_idle(bench: Bench) -> None:
    """The same run again."""
    with bench.copy_of(bench.folder / "home") as home:
        command = bench.arguments("run", "-c", CRAWLS[0], bench.few, home=home)
        processor([*_COMMAND, *command])
        _say(bench, "idle", [processor([*_COMMAND, *command]) for _ in range(bench.repeats)], less=bench.libraries)
        _count(bench, "idle", command)


def bench_many(bench: Bench) -> None:
    """Nothing to do, of many partitions."""
    listed = bench.folder / "targets.txt"
    listed.write_text("\n".join(bench.domains) + "\n", "utf-8")
    home = bench.folder / "many"
    command = bench.arguments("run", *(word for crawl in CRAWLS for word in ("-c", crawl)), f"@{listed}", home=home)
    marker = bench.folder / "many.made"
    if not marker.exists():
        shutil.rmtree(home, ignore_errors=True)
        processor([*_COMMAND, *command])
        marker.touch()
    partitions = len(bench.domains) * len(CRAWLS)
    times = [processor([*_COMMAND, *command]) for _ in range(bench.repeats)]
    _say(bench, "many", times, less=bench.libraries, note=f"{partitions:,} partitions")
    _count(bench, "many", command)


def _asked(name: str) -> Callable[[Bench], None]:
    def bench_asked(bench: Bench) -> None:
        command = bench.arguments(name, bench.few, "-c", CRAWLS[0], home=bench.folder / "home")
        _say(bench, name, [processor([*_COMMAND, *command]) for _ in range(bench.repeats)])
        _count(bench, name, command)

    return bench_asked


def _say(
    bench: Bench, name: str, times: Sequence[float], *, less: float = 0.0, goal: float | None = None, note: str = ""
) -> None:
    beyond = ", beyond the libraries" if less else ""
    each = [one - less for one in times]
    bench.report.figure(
        f"{name}_processor", median(each), goal=goal or _GOALS[name], unit="s", higher_is_better=False,
        note=f"{f'{note}; ' if note else ''}{spread(each)}{beyond}",
    )  # fmt: skip


def _count(bench: Bench, name: str, arguments: Sequence[str], goals: dict[str, int] | None = None) -> None:
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        out = Path(folder) / "trace.json"
        processor([*_TRACED, str(out), *arguments])
        found: dict[str, Any] = json.loads(out.read_text("utf-8"))
    bench.report.setting[f"trace_{name}"] = found
    statements, callers, story = found.pop("statements"), found.pop("callers"), found.pop("story")
    figures = {key: value if isinstance(value, int) else len(value) for key, value in found.items()}
    figures |= {"sqlite_pragmas": statements.get("PRAGMA", 0), "sqlite_statements": sum(statements.values())}
    found |= {"statements": statements, "callers": callers, "story": story}
    for key, value in figures.items():
        bench.report.figure(f"{name}_{key}", value, goal=(goals or {}).get(key), higher_is_better=False)


def main() -> None:
    """All cases, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[[], *CASES], default=[])
    parser.add_argument("--keep", type=Path, help="a folder for bucket and homes that stay")
    parser.add_argument("--repeats", type=int, default=_REPEATS)
    given = parser.parse_args()
    report = Report("main")
    with tempfile.TemporaryDirectory() as folder:
        place = given.keep or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        processor([sys.executable, "-m", "compileall", "-q", str(_ROOT / "cc_pipeline")])
        bench = Bench(report, place.resolve(), _TARGETS, given.repeats)
        if given.cases != ["start"]:
            made(bench)
        for name, code in {"dagster": "import dagster", "libraries": _LIBRARIES}.items():
            times = [processor([sys.executable, "-c", code]) for _ in range(given.repeats)]
            report.figure(f"import_{name}", median(times), unit="s", higher_is_better=False, note=spread(times))
        bench.libraries = median(times)
        steps = {"start": bench_start, "fresh": bench_fresh, "run": bench_run, "idle": bench_idle, "many": bench_many}
        for name in given.cases or sized(("start", "lookup", "plan"), CASES):
            (steps.get(name) or _asked(name))(bench)
    report.write()


if __name__ == "__main__":
    main()
