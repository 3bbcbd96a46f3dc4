"""``make soak``: months of automation in an hour, on PostgreSQL, with processes killed at random.

A code server and a daemon run with all sensors and schedules on, over a source in which a new crawl appears now and
then. Each step moves the clock by some days while nothing runs (``clock.py``), waits until the ticks of that day
and their runs are done, and counts. One partition in fifty always fails (``location.py``). On some days a process
is killed in the middle and started again.

It ends with status 1 where a good partition was made twice or not at all, a run is left that nobody executes, or
something grew that should not. The picture in docs/dagster.md is made by ``--picture``. ``SHORT=1`` takes two days.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import psycopg2
import yaml

from benchmarks.report import Report, sized
from cc_pipeline.defs.instance import DAEMON_VARIABLES
from cc_pipeline.extensions.several_machines.team import Team as WrittenTeam
from cc_pipeline.extensions.several_machines.team import team_files
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, MiniCrawlSpec
from cc_pipeline_tests.defs.short_waits import with_short_waits
from cc_pipeline_tests.defs.test_dagster_process import until_listening
from cc_pipeline_tests.extensions.several_machines.soak.clock import Clock, missing, new_clock
from cc_pipeline_tests.extensions.several_machines.soak.location import is_bad
from cc_pipeline_tests.ports import free_port
from cc_pipeline_tests.postgres import Postgres, postgres_server

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[4]
#: Days of Dagster's history that are kept, and of what is compared: before, the home has not had its first deletion.
HISTORY = 30
SETTLED = 2 * HISTORY
#: Newest last. Two are there from the beginning.
CRAWLS = tuple(f"CC-MAIN-2024-{week:02}" for week in (10, 18, 22, 26, 30, 33, 38, 42, 46, 51))
PLANNED, ENDED = ("NOT_STARTED", "QUEUED", "STARTING", "STARTED", "CANCELING"), ("SUCCESS", "FAILURE", "CANCELED")
ASSET = '["page_metadata"]'
_PATIENCE = 600.0
#: Seconds without a run after which a day is over.
_CALM = 4.0
#: They tick soon after the clock was moved by a day.
_SENSORS = ("new_crawls", "watch_list", "publication")


@dataclass(frozen=True, slots=True)
class Sizes:
    """``days`` in steps of ``step``, ``sites`` of which each crawl has pages; a new crawl every ``crawl`` days.

    None appears in the last step: the schedule may have ticked before its harvest ended, and asks for its partitions
    half an hour later, which is the step after."""

    days: int
    step: int
    sites: int
    crawl: int


SIZES = sized(Sizes(2, 1, 4, 1), Sizes(200, 4, 30, 22))


@dataclass(frozen=True, slots=True)
class Day:
    """What a day left: bytes of the database, of Dagster's files, of the tables' logs and rows and of the rest of the
    home; partitions that are made, and runs that Dagster knows."""

    day: float
    database: int
    files: int
    logs: int
    rows: int
    rest: int
    partitions: int
    runs: int


@dataclass(slots=True)
class Team:
    """The processes of an instance: started, killed, and started again."""

    folder: Path
    env: dict[str, str]
    port: int
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def commands(self) -> dict[str, list[str]]:
        """The command of each process, by its name."""
        workspace = str(self.folder / "workspace.yaml")
        server = [
            "-m",
            "cc_pipeline_tests.extensions.several_machines.soak.location",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
        ]
        return {
            "code": [str(BIN / "dagster"), "api", "grpc", *server, "--location-name", "cc_pipeline"],
            "daemon": [str(BIN / "dagster-daemon"), "run", "-w", workspace],
        }

    def start(self, name: str) -> None:
        """Starts one of them, and waits for a code server."""
        with (self.folder.parent / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                self.commands[name], cwd=self.folder.parent, env=self.env, stdout=log, stderr=log
            )
        if name == "code":
            until_listening(self.port)
            check = [BIN / "dagster", "api", "grpc-health-check", "-p", str(self.port)]
            until = time.monotonic() + _PATIENCE
            while subprocess.run(check, env=self.env, capture_output=True, check=False).returncode:
                assert time.monotonic() < until, (self.folder.parent / "code.log").read_text("utf-8")[-3_000:]
                time.sleep(0.5)

    def kill(self, name: str) -> bool:
        """Kills one of them, and starts it again; ``worker``: a run's process, if there is one; ``all``. Returns
        whether anything was killed."""
        if name == "worker":
            for pid in _children(self.running["code"].pid)[:1]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    return True
            return False
        names = list(self.running) if name == "all" else [name]
        for one in names:
            workers = _children(self.running[one].pid) if name == "all" else []
            for pid in (self.running[one].pid, *workers):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.running[one].wait()
        for one in names:
            self.start(one)
        return True

    def stop(self) -> None:
        """Ends all of them."""
        for process in reversed(self.running.values()):
            workers = _children(process.pid)
            process.kill()
            process.wait()
            for pid in workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    with suppress(FileNotFoundError):
        own = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
        return [*own, *(below for one in own for below in _children(one))]
    return []


class Database:
    """Dagster's tables, asked from outside."""

    def __init__(self, postgres: Postgres) -> None:
        self._connection = psycopg2.connect(
            host=postgres.host, port=postgres.port, user=postgres.user, password=postgres.password,
            dbname=postgres.database,
        )  # fmt: skip
        self._connection.autocommit = True

    def ask(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of an answer."""
        with self._connection.cursor() as cursor:
            cursor.execute(question, values)
            return cursor.fetchall()

    def going(self) -> int:
        """Runs that have not ended, and ticks that go on."""
        [(runs,)] = self.ask("SELECT count(*) FROM runs WHERE status IN %s", PLANNED)
        [(ticks,)] = self.ask("SELECT count(*) FROM job_ticks WHERE status = 'STARTED'")
        return int(runs) + int(ticks)

    def last_tick(self) -> int:
        """The place of the newest tick."""
        [(place,)] = self.ask("SELECT coalesce(max(id), 0) FROM job_ticks")
        return int(place)

    def ticked(self, after: int, names: tuple[str, ...]) -> bool:
        """Whether these have ticked after that place, to the end."""
        # not by time: the time of a schedule's tick is the one at which it was due
        question = "SELECT DISTINCT tick_body::json ->> 'job_name' FROM job_ticks WHERE status <> 'STARTED' AND id > %s"
        return {name for (name,) in self.ask(question, after)} >= set(names)

    def made_after(self, place: int) -> tuple[int, Counter[str]]:
        """How often partitions were made by a run after a place in the event log, and the newest place."""
        found = self.ask(
            "SELECT id, partition FROM event_logs WHERE asset_key = %s AND id > %s "
            "AND dagster_event_type = 'ASSET_MATERIALIZATION' AND run_id <> ''",
            ASSET, place,
        )  # fmt: skip
        return max((row[0] for row in found), default=place), Counter(row[1] for row in found)

    def size(self) -> int:
        """Bytes, when what was deleted is free."""
        self.ask("SELECT 1")
        with self._connection.cursor() as cursor:
            cursor.execute("VACUUM")
        [(size,)] = self.ask("SELECT pg_database_size(current_database())")
        return int(size)


@dataclass(slots=True)
class Soak:
    """A team's instance that grows old: what was made in it, and what each day left."""

    sizes: Sizes
    folder: Path
    clock: Clock
    team: Team
    database: Database
    draw: random.Random
    sites: tuple[str, ...]
    made: Counter[str] = field(default_factory=Counter)
    days: list[Day] = field(default_factory=list)
    killed: Counter[str] = field(default_factory=Counter)
    #: Bytes of the database before anything ran.
    empty: int = 0
    place: int = 0
    published: int = 2

    def run(self) -> None:
        """All days."""
        self.empty = self.database.size()
        # schedules tick at their next time, and no earlier
        self.settle(0, _SENSORS)
        for day in range(self.sizes.step, self.sizes.days + 1, self.sizes.step):
            is_due = day // self.sizes.crawl + 2 > self.published and self.published < len(CRAWLS)
            if is_due and day < self.sizes.days:
                self.published += 1
                self.publish()
            began = self.database.last_tick()
            self.clock.forward(self.sizes.step)
            if self.draw.random() < 0.2:
                name = self.draw.choice(["code", "daemon", "worker", "all"])
                time.sleep(self.draw.uniform(0, 12))
                self.killed[name] += self.team.kill(name)
            self.settle(began, (*_SENSORS, "backfill_missing"))
            self.note(day)

    def publish(self) -> None:
        """Shows the crawls that the source has by now."""
        bucket, hidden = self.folder / "bucket", self.folder / "hidden"
        for crawl in CRAWLS[: self.published]:
            for source in [*hidden.rglob(f"*{crawl}")]:
                if source.is_dir():
                    place = bucket / source.relative_to(hidden)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    source.rename(place)
        every = json.loads((hidden / "collinfo.json").read_text("utf-8"))
        shown = [one for one in every if one["id"] in CRAWLS[: self.published]]
        (bucket / "collinfo.json").write_text(json.dumps(shown), "utf-8")

    def settle(self, after: int, names: tuple[str, ...]) -> None:
        """Waits until sensors and schedules have ticked after that place, and nothing runs any more."""
        until, calm = time.monotonic() + _PATIENCE, None
        while calm is None or time.monotonic() - calm < _CALM:
            assert time.monotonic() < until, self.told()
            time.sleep(0.5)
            for name, process in self.team.running.items():
                assert process.poll() is None, (name, self.told())
            busy = self.database.going() or not self.database.ticked(after, names)
            calm = None if busy else calm or time.monotonic()

    def told(self) -> str:
        """What is going on, and the end of each log."""
        going = self.database.ask("SELECT run_id, status, create_timestamp FROM runs WHERE status IN %s", PLANNED)
        ends = "".join(path.read_text("utf-8")[-2_000:] for path in sorted(self.folder.glob("*.log")))
        return f"{going}\n{ends}"

    def note(self, day: float) -> None:
        """Counts what there is."""
        self.place, made = self.database.made_after(self.place)
        self.made.update(made)
        home = self.folder / "home"
        lake, dagster = home / "lake", home / "dagster"
        logs = sum(_bytes(table) for table in lake.rglob("_delta_log"))
        own, all_of_it = _bytes(dagster), _bytes(home)
        rows = _bytes(lake) - logs
        [(runs,)] = self.database.ask("SELECT count(*) FROM runs")
        rest = all_of_it - own - logs - rows
        self.days.append(Day(day, self.database.size(), own, logs, rows, rest, len(self.made), int(runs)))
        now = self.days[-1]
        print(
            f"day {now.day:.0f}: {now.partitions} partitions, {now.runs} runs, database {now.database >> 10:,} KB, "
            f"files {now.files >> 10:,}, logs {now.logs >> 10:,}, rows {now.rows >> 10:,}, rest {now.rest >> 10:,}",
            flush=True,
        )


def _bytes(folder: Path) -> int:
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += (Path(at) / name).stat().st_size
    return total


@contextmanager
def soak(sizes: Sizes, folder: Path, seed: int) -> Iterator[Soak]:
    """Makes the source and the instance, and starts its processes."""
    folder.chmod(0o755)
    home = folder / "home"
    clock = new_clock(folder / "clock", [home])
    crawls = [CrawlSpec(name, segments=1, files_per_segment=1, parts=1) for name in reversed(CRAWLS)]
    truth = ensure(folder / "hidden", MiniCrawlSpec(pages=4 * sizes.sites, sites=sizes.sites, crawls=tuple(crawls)))
    (folder / "bucket").mkdir()
    with postgres_server(clock.environment()) as postgres:
        port = free_port()
        env = dict(os.environ) | clock.environment() | postgres.environment | {
            "CC_PIPELINE_SOURCE": str(folder / "bucket"), "CC_PIPELINE_HOME": str(home),
            "DAGSTER_HOME": str(home / "dagster"), "CC_PIPELINE_CRAWLS": "all", "CC_PIPELINE_WORKERS": "1",
            "CC_PIPELINE_HISTORY_DAYS": str(HISTORY), "PYTHONPATH": str(ROOT), "NO_COLOR": "1",
            "CC_PIPELINE_CODE_HOST": "127.0.0.1", "CC_PIPELINE_CODE_PORT": str(port), **DAEMON_VARIABLES,
        }  # fmt: skip
        (home / "dagster").mkdir(parents=True)
        for name, text in instance_files().items():
            (home / name).write_text(text, "utf-8")
        (home / "domains.txt").write_text("".join(f"{site}\n" for site in truth.domains()), "utf-8")
        team = Team(home, env, port)
        made = Soak(sizes, folder, clock, team, Database(postgres), random.Random(seed), truth.domains())
        made.publish()
        # the database is made once, before several processes would
        subprocess.run([BIN / "dagster", "instance", "migrate"], env=env, check=True, capture_output=True)
        subprocess.run([BIN / "cc-pipeline", "automation", "on"], env=env, check=True, capture_output=True)
        try:
            for name in team.commands:
                team.start(name)
            yield made
        finally:
            team.stop()


def instance_files() -> dict[str, str]:
    """``dagster.yaml`` and ``workspace.yaml`` as ``team init`` writes them, but that what runs print stays here and
    that the daemon waits little."""
    written = team_files(WrittenTeam("", "", "s3://none/none", "", "us-east-1", "", "1:1"))
    config = yaml.safe_load(written["dagster/dagster.yaml"])
    del config["compute_logs"]
    with_short_waits(config)
    return {"dagster/dagster.yaml": yaml.safe_dump(config), "workspace.yaml": written["workspace.yaml"]}


def main() -> int:
    """Runs the soak; gives the exit status."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="other days on which processes are killed")
    parser.add_argument("--picture", type=Path, help="write the picture of all days there (SVG)")
    parser.add_argument("--keep", type=Path, help="leave everything in this new folder")
    chosen = parser.parse_args()
    # whoever ends it by a signal wants its processes ended too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if lacks := missing():
        print(f"no soak here: {lacks}", file=sys.stderr)
        return 1
    folder = chosen.keep or Path(tempfile.mkdtemp(prefix="soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with soak(SIZES, folder, chosen.seed) as one:
            one.run()
            if chosen.picture:
                chosen.picture.write_text(picture(one.days), "utf-8")
            return judged(one)
    finally:
        if chosen.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def judged(one: Soak) -> int:
    """Reports what came of all days; the exit status."""
    good = {f"{crawl}|{site}" for crawl in CRAWLS[: one.published] for site in one.sites if not is_bad(crawl, site)}
    report = Report("soak", {"days": SIZES.days, "sites": SIZES.sites, "killed": dict(one.killed)})
    report.setting["by day"] = [list(astuple(day)) for day in one.days]
    wrong = sum(times > 1 for times in one.made.values()), len(good ^ one.made.keys()), one.database.going()
    for name, count in zip(("made_twice", "made_else_or_not", "left_running"), wrong, strict=True):
        report.figure(name, count, goal=0, higher_is_better=False, unit="partitions" if "made" in name else "runs")
    last, settled = one.days[-1], next((day for day in one.days if day.day >= SETTLED), one.days[-1])
    report.figure(
        "database_a_partition", (last.database - one.empty) / 1_024 / max(1, last.partitions), goal=16,
        higher_is_better=False, unit="KB",
    )  # fmt: skip
    # each new crawl brings partitions, and a catalog: what is flat is what a partition takes
    for name in ("database", "files", "logs", "rest"):
        now, before = (getattr(day, name) / 1_024 / day.partitions for day in (last, settled))
        report.figure(
            f"{name}_since_day_{settled.day:.0f}", now / before, goal=1.25, higher_is_better=False, unit="x",
            note=f"{now:,.1f} KB a partition, was {before:,.1f}",
        )  # fmt: skip
    report.write()
    return 1 if any(wrong) or not report.all_met else 0


_WIDTH, _HEIGHT, _LEFT, _BELOW = 760, 300, 70, 40
_LINES = {
    "database": ("Dagster's database", "#3b7dd8"),
    "rows": ("rows of tables", "#2a9d5c"),
    "logs": ("logs of tables", "#d9822b"),
    "files": ("Dagster's files", "#9b59b6"),
    "rest": ("rest of the home", "#808080"),
}


def picture(days: Sequence[Day]) -> str:
    """The bytes of all days as an SVG picture, and each day on which there was a new crawl as a line."""
    most, end = max(getattr(day, name) for day in days for name in _LINES), days[-1].day
    step = next(size for size in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000) if size * 5 >= most / (1 << 20))

    def x(day: float) -> float:
        return round(_LEFT + day / end * (_WIDTH - _LEFT - 170), 1)

    def y(size: float) -> float:
        return round(_HEIGHT - _BELOW - size / (step * 5 << 20) * (_HEIGHT - _BELOW - 15), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12" fill="#808080">'
    ]
    for number in range(6):
        at = y(number * step << 20)
        parts.append(f'<path d="M{_LEFT} {at}H{_WIDTH - 170}" stroke="#808080" stroke-opacity=".3"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4}" text-anchor="end">{number * step} MB</text>')
    for day in range(0, int(end) + 1, max(1, int(end) // 5)):
        parts.append(f'<text x="{x(day)}" y="{_HEIGHT - 20}" text-anchor="middle">{day}</text>')
    parts.append(f'<text x="{x(end / 2)}" y="{_HEIGHT - 4}" text-anchor="middle">days</text>')
    for number, (name, (title, colour)) in enumerate(_LINES.items()):
        points = " ".join(f"{x(day.day)},{y(getattr(day, name))}" for day in days)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        at = 30 + 22 * number
        parts.append(f'<path d="M{_WIDTH - 155} {at}h20" stroke="{colour}" stroke-width="3"/>')
        parts.append(f'<text x="{_WIDTH - 128}" y="{at + 4}">{title}</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    sys.exit(main())
