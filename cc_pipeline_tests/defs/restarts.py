"""Restarts while a backfill and a schedule make partitions: what is killed, and what becomes of runs and partitions.

    python -m cc_pipeline_tests.defs.restarts              every cell, and its table into docs/dagster.md

Each kill (SIGKILL) hits some of the processes of an instance while a run of a backfill and one of ``backfill_missing``
fetch; then they are started again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import dagster as dg
import yaml
from cc_pipeline.defs.internals import find_origin
from cc_pipeline.defs.launcher import Launcher
from cc_pipeline.defs.partitions_in_flight import EXTRACTED, UNFINISHED, find_in_flight
from cc_pipeline.defs.run_notes import read_tried, read_workers

from cc_pipeline.defs.instance import DAEMON_VARIABLES, DAGSTER_YAML, open_instance_in
from cc_pipeline.settings import load_settings
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, MiniCrawlSpec
from cc_pipeline.workspace.workspace import Workspace, open_workspace
from cc_pipeline_tests.defs.backfills import backfill, backfill_status
from cc_pipeline_tests.defs.short_waits import DAEMON_ENVIRONMENT, with_short_waits
from cc_pipeline_tests.defs.test_dagster_process import BIN, Server, environment
from cc_pipeline_tests.defs.test_ui_stopped import descendants
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.ports import free_port
from cc_pipeline_tests.postgres import Postgres, postgres_server
from cc_pipeline_tests.world import NEW

CODE, DAEMON, WEBSERVER, WORKERS = "code server", "daemon", "webserver", "run workers"
#: What a cell kills. What runs on a host dies with it: its workers too.
KILLS: Final[Mapping[str, tuple[str, ...]]] = {
    CODE: (CODE,),
    DAEMON: (DAEMON,),
    WEBSERVER: (WEBSERVER,),
    WORKERS: (WORKERS,),
    f"{CODE} and {DAEMON}": (CODE, DAEMON),
    "all (the host)": (CODE, DAEMON, WEBSERVER, WORKERS),
}
#: The cells of each storage. In PostgreSQL the worst, of which SQLite has the host.
CELLS: Final[Mapping[str, Sequence[str]]] = {
    "SQLite": tuple(kind for kind, names in KILLS.items() if len(names) != 2),
    "PostgreSQL": tuple(kind for kind, names in KILLS.items() if len(names) > 1),
}
DOCS: Final = Path(__file__).resolve().parents[2] / "docs/dagster.md"
_BEGIN: Final = "<!-- made by python -m cc_pipeline_tests.defs.restarts -->"
_END: Final = "<!-- end of what it made -->"
#: For all that is left in the queue, on the slowest machine.
_PATIENCE_SECONDS: Final = 600
#: Runs of each that may pass while no kill waits for them.
_SPARE: Final = 2
SPEC: Final = MiniCrawlSpec(pages=160, sites=2 * (len(KILLS) + _SPARE), crawls=(CrawlSpec(NEW),))
_ENDS: Final = {
    dg.DagsterEventType.RUN_SUCCESS: "success",
    dg.DagsterEventType.RUN_FAILURE: "failure",
    dg.DagsterEventType.RUN_CANCELED: "canceled",
}
_STATES: Final = {*_ENDS, dg.DagsterEventType.RUN_START, dg.DagsterEventType.RUN_CANCELING}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of everything: how the run of the backfill and that of the schedule ended that each kill hit, with
    those that tried them again, and what was not as it has to be."""

    told: Mapping[str, tuple[str, str]]
    wrongs: tuple[str, ...]


@dataclass(slots=True)
class Home:
    """A home, the processes on it, and the source that they fetch from."""

    settings: Any
    env: dict[str, str]
    source: FaultServer
    sites: Sequence[str]
    commands: Mapping[str, list[str]]
    ui_port: int
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return Path(self.settings.home)

    @property
    def log(self) -> Path:
        """What its processes print."""
        return self.folder / "processes.log"

    def start(self, *names: str) -> None:
        """Starts processes, all at once."""
        for name in names:
            with self.log.open("ab") as out:
                self.running[name] = subprocess.Popen(
                    self.commands[name], cwd=self.folder, env=self.env, stdout=out, stderr=subprocess.STDOUT,
                    start_new_session=True,
                )  # fmt: skip

    def kill(self, names: Sequence[str], workers: Sequence[int]) -> None:
        """Kills processes as SIGKILL does, all of them before any is missed. ``workers`` are the processes of runs."""
        for pid in workers if WORKERS in names else ():
            kill(pid)
        for name in names:
            if name in self.running:
                kill(self.running[name].pid)
        for name in names:
            if name in self.running:
                self.running.pop(name).wait()

    def loaded(self) -> Server:
        """The webserver, once it shows the assets."""
        server = Server(self.running[WEBSERVER], self.ui_port, self.log)
        server.wait_until_loaded()
        return server

    def wait_until(self, true: Callable[[], bool], what: str) -> None:
        """Waits for ``true``; raises with the log where it does not come."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not true():
            assert time.monotonic() < deadline, f"{what}\n{self.log.read_text('utf-8')[-6_000:]}"
            time.sleep(0.5)


def kill(pid: int) -> None:
    """SIGKILL, for a process that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_all(parent: int) -> None:
    """Ends a process and everything it started, as a power cut would."""
    for pid in (parent, *descendants(parent)):
        kill(pid)


@contextmanager
def home_on(storage: str, folder: Path) -> Iterator[Home]:
    """A harvested home with its processes, whose state is in ``SQLite`` or ``PostgreSQL``."""
    with ExitStack() as stack:
        bucket = folder / "bucket"
        truth = ensure(bucket, SPEC)
        source = stack.enter_context(FaultServer(bucket))
        settings = load_settings({}, source=source.url, home=str(folder / "home"))
        (folder / "home/dagster").mkdir(parents=True)
        postgres = stack.enter_context(postgres_server()) if storage == "PostgreSQL" else None
        (settings.dagster_home / "dagster.yaml").write_text(yaml.safe_dump(_config(postgres)), "utf-8")
        with open_workspace(settings) as workspace, Launcher(workspace) as launcher:
            launcher.harvest([NEW])
        env = environment(bucket, folder) | {
            "CC_PIPELINE_SOURCE": source.url, "CC_PIPELINE_HOME": str(settings.home), "CC_PIPELINE_CONCURRENCY": "1",
            "CC_PIPELINE_PARTITIONS_PER_RUN": "1", "CC_PIPELINE_WORKERS": "1", **DAEMON_VARIABLES,
            **DAEMON_ENVIRONMENT, "DAGSTER_HOME": str(settings.dagster_home),
        }  # fmt: skip
        code, ui = free_port(), free_port()
        place = settings.dagster_home / "workspace.yaml"
        server = {"host": "127.0.0.1", "port": code, "location_name": "cc_pipeline"}
        place.write_text(yaml.safe_dump({"load_from": [{"grpc_server": server}]}), "utf-8")
        here = ["-h", "127.0.0.1", "-p"]
        grpc = ["dagster", "api", "grpc", "-m", "cc_pipeline.definitions", *here, str(code)]
        commands = {
            CODE: [*grpc, "--location-name", "cc_pipeline"],
            WEBSERVER: ["dagster-webserver", *here, str(ui), "-w", str(place)],
            DAEMON: ["python", "-m", "cc_pipeline_tests.defs.short_waits", "run", "-w", str(place)],
        }
        commands = {name: [str(BIN / program), *rest] for name, (program, *rest) in commands.items()}
        home = Home(settings, env, source, truth.domains(), commands, ui)
        try:
            home.start(*commands)
            yield home
        finally:
            for process in home.running.values():
                kill_all(process.pid)
                process.wait()


def _config(postgres: Postgres | None) -> dict[str, Any]:
    config = yaml.safe_load(DAGSTER_YAML)
    with_short_waits(config)
    # the daemon would look for the code server every ten seconds
    config["run_queue"]["user_code_failure_retry_delay"] = 1
    # so that a run of both is under way
    config["concurrency"]["runs"]["tag_concurrency_limits"] = [
        {"key": key, "limit": 1} for key in ("dagster/backfill", "dagster/schedule_name")
    ]
    if postgres is not None:
        config["storage"] = postgres.storage
    return config


def kill_all_kinds(home: Home, kinds: Sequence[str]) -> Outcome:
    """Has a backfill of the UI and ``backfill_missing`` make partitions, one a run, and kills ``kinds`` one after the
    other, each while a run of both fetches. Says what came of it when nothing is left to do."""
    count = 2 * (len(kinds) + _SPARE)
    sites = home.sites[:count]
    ours, theirs = sites[::2], sites[1::2]
    with open_instance_in(home.settings.dagster_home) as instance, open_workspace(home.settings) as workspace:
        before = {run.run_id for run in instance.get_runs()}
        server = home.loaded()
        # neighbours that are not asked for: a run for each of ours
        instance.add_dynamic_partitions("target", sites)
        home.settings.watch_list_path.write_text("".join(f"{site}\n" for site in theirs), "utf-8")
        asked = backfill(server, tuple(f"{NEW}|{site}" for site in ours))
        of_backfill = dg.RunsFilter(tags={"dagster/backfill": asked})
        home.wait_until(lambda: bool(instance.get_runs(of_backfill)), "the backfill begins")
        _make_due(instance)
        hit: dict[str, tuple[str, str]] = {}
        for kind in kinds:
            hit[kind] = _kill_one(home, instance, kind, before | {root for pair in hit.values() for root in pair})
        server = home.loaded()
        home.wait_until(lambda: backfill_status(server, asked) not in ("REQUESTED", "FAILING"), "the backfill ends")
        home.wait_until(
            lambda: not _missing(instance, theirs) or bool(_given_up(instance)), "the schedule's partitions are made"
        )
        home.wait_until(lambda: not instance.get_runs(dg.RunsFilter(statuses=list(UNFINISHED))), "all runs end")
        runs = [run for run in instance.get_runs(ascending=True) if run.run_id not in before]
        told = {kind: (_told(instance, runs, one), _told(instance, runs, two)) for kind, (one, two) in hit.items()}
        wrongs = list(_wrongs(instance, workspace, runs, sites))
        if (status := backfill_status(server, asked)) != "COMPLETED_SUCCESS":
            wrongs.append(f"the backfill ended {status}")
        return Outcome(told, tuple(wrongs))


def _kill_one(home: Home, instance: dg.DagsterInstance, kind: str, before: Collection[str]) -> tuple[str, str]:
    """Kills and starts again while a run of both fetches that no kill has hit ``before``; gives the ids of the two."""
    home.source.scene.held = "*.warc.gz"

    def fetching() -> dict[bool, dg.DagsterRun]:
        under_way = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
        tried = read_tried(instance, [run.run_id for run in under_way])
        mine = [run for run in under_way if tried.get(run.run_id) and not {run.run_id, run.root_run_id} & set(before)]
        return {"dagster/backfill" in run.tags: run for run in mine}

    home.wait_until(lambda: len(fetching()) == 2, f"two runs fetch, to kill {kind}")
    found = fetching()
    ids = (found[True].run_id, found[False].run_id)
    marks = read_workers(instance, ids)
    home.kill(KILLS[kind], [int(mark.partition("-")[0]) for mark in marks.values()])
    home.source.scene.held = ""
    home.start(*(name for name in KILLS[kind] if name in home.commands))

    def ended() -> bool:
        return all(run.is_finished for run in instance.get_runs(dg.RunsFilter(run_ids=list(ids))))

    # those that are tried again come behind all others in the queue
    home.wait_until(ended, f"what was under way when {kind} was killed ends")
    return ids


def _told(instance: dg.DagsterInstance, runs: Sequence[dg.DagsterRun], root: str) -> str:
    """How a run ended, and those that tried it again."""
    return ", then ".join(_ended(instance, run) for run in runs if root in (run.run_id, run.root_run_id))


def _make_due(instance: dg.DagsterInstance) -> None:
    """Turns ``backfill_missing`` on as of just before it was due last."""
    instigation = import_module("dagster._core.scheduler.instigation")
    data = instigation.ScheduleInstigatorData("*/30 * * * *", time.time() // 1800 * 1800 - 1)
    kind, on = instigation.InstigatorType.SCHEDULE, instigation.InstigatorStatus.RUNNING
    instance.add_instigator_state(instigation.InstigatorState(find_origin("backfill_missing"), kind, on, data))


def _missing(instance: dg.DagsterInstance, sites: Sequence[str]) -> set[str]:
    return {f"{NEW}|{site}" for site in sites} - instance.get_materialized_partitions(dg.AssetKey("page_metadata"))


def _given_up(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """Runs that failed and are not tried again: the next tick of the schedule would be half an hour away."""
    failed = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
    return [run for run in failed if run.tags.get("dagster/will_retry") == "false"]


def _ended(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str:
    """How a run ended; where its states are not true, all of them."""
    events = [one.dagster_event for one in instance.all_logs(run.run_id, of_type=_STATES)]
    states = [event.event_type for event in events if event is not None]
    if sum(state in _ENDS for state in states) == 1 and states[-1] in _ENDS:
        return _ENDS[states[-1]]
    return " → ".join(state.value for state in states)


def _wrongs(
    instance: dg.DagsterInstance, workspace: Workspace, runs: Sequence[dg.DagsterRun], sites: Sequence[str]
) -> Iterator[str]:
    """What is not as it has to be, whatever was killed."""
    keys = {f"{NEW}|{site}" for site in sites}
    for asset in EXTRACTED:
        made: Counter[str | None] = Counter()
        for run in runs:
            for one in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION):
                event = one.dagster_event
                if event is not None and event.asset_key == dg.AssetKey(asset):
                    made[event.partition] += 1
        if made != Counter(keys):
            yield f"{asset} was recorded {dict(made)}"
    for table in ("captures", "records", "page_metadata"):
        rows = Counter(workspace.lake.read(table, columns=["target"])["target"].to_pylist())
        here = {site: rows[site] for site in sites}
        if table == "captures":
            planned = here
        elif here != planned:
            yield f"{table} has {here} rows, captures {planned}"
    if not all(planned.values()):
        yield f"captures has {planned} rows"
    for run in _given_up(instance):
        words = [one.message for one in instance.all_logs(run.run_id) if "ailed" in one.message or one.error_info]
        yield f"a run failed and was not tried again: {dict(run.tags)} {words[-3:]}"
    if find_in_flight(instance).is_busy:
        yield f"in flight for ever: {find_in_flight(instance)}"
    for run in runs:
        if "→" in _ended(instance, run):
            yield f"states of a run: {_ended(instance, run)}"


def table(told: Mapping[str, Mapping[str, tuple[str, str]]]) -> list[str]:
    """The Markdown lines of what each storage's outcome told; storages that do the same share a line."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for kind in KILLS:
        for storage, by_kind in told.items():
            if kind in by_kind:
                rows.setdefault((kind, *by_kind[kind]), []).append(storage)
    head = ("killed, and started again", "state in", "a run of a backfill", "a run of `backfill_missing`")
    lines = [head, ("---",) * len(head), *((kind, ", ".join(on), *ended) for (kind, *ended), on in rows.items())]
    return [f"| {' | '.join(line)} |" for line in lines]


def read_table(page: str) -> dict[tuple[str, str], tuple[str, str]]:
    """What the table in ``page`` tells of each storage and kind."""
    found = {}
    for line in page.partition(_BEGIN)[2].partition(_END)[0].strip().splitlines()[2:]:
        kind, storages, of_backfill, of_schedule = (part.strip() for part in line.strip("|").split(" | "))
        for storage in storages.split(", "):
            found[storage, kind] = of_backfill, of_schedule
    return found


def outcome_on(storage: str, folder: Path) -> Outcome:
    """All cells of a storage."""
    with home_on(storage, folder) as home:
        return kill_all_kinds(home, CELLS[storage])


def main() -> None:
    """Runs every cell and writes the table; ends with what was not as it has to be."""
    told, wrongs = {}, []
    for storage in CELLS:
        with tempfile.TemporaryDirectory() as folder:
            found = outcome_on(storage, Path(folder))
        told[storage] = found.told
        wrongs += [f"{storage}: {wrong}" for wrong in found.wrongs]
    head, _, rest = DOCS.read_text("utf-8").partition(_BEGIN)
    lines = [head + _BEGIN, *table(told), _END + rest.partition(_END)[2]]
    DOCS.write_text("\n".join(lines), "utf-8")
    sys.exit("\n".join(wrongs))


if __name__ == "__main__":
    main()
