"""The three processes that operate a home, over many partitions: how soon the UI's first page is there, what a tick
costs, and how much memory daemon and code server hold.

They are started as three services, on addresses of this machine. The webserver has the code server evaluate ticks
as the daemon does, which in the end says whether anything was asked for.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from cc_pipeline.defs.automation.automation_status import list_automations, set_all_automations
from cc_pipeline.defs.internals import LOCATION

from benchmarks.report import Report, sized
from cc_pipeline.defs.instance import open_instance
from cc_pipeline.settings import Settings

_PATIENCE = 600.0
#: Seconds for which the daemon goes on, so that each of its parts and of the sensors was there.
_DAEMON_SECONDS = sized(1, 60)
_GOALS = {"nodes": 3.0, "tick": 2.0, "daemon": 200.0, "code": 250.0}
_SELECTOR = {"repositoryName": "__repository__", "repositoryLocationName": LOCATION}
#: What the UI's list and graph of assets ask of each.
_NODES = """{ assetNodes { id assetKey { path } groupName hasMaterializePermission isPartitioned
  partitionStats { numMaterialized numMaterializing numPartitions numFailed }
  assetMaterializations(limit: 1) { timestamp runId } } }"""
_TICK = """mutation ($selector: ScheduleSelector!, $at: Float!) {
  scheduleDryRun(selectorData: $selector, timestamp: $at) { __typename
    ... on DryRunInstigationTick { evaluationResult { skipReason runRequests { runKey } error { message } } }
    ... on PythonError { message } } }"""


class _Process:
    """One of them."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.popen = process

    def _every(self) -> Iterator[int]:
        waiting = [self.popen.pid]
        while waiting:
            number = waiting.pop()
            yield number
            for children in Path(f"/proc/{number}/task").glob("*/children"):
                waiting += map(int, children.read_text().split())

    def used(self) -> float:
        """Seconds of processor time, with that of what it started."""
        fields = [Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split() for number in self._every()]
        return sum(sum(map(int, one[11:15])) for one in fields) / os.sysconf("SC_CLK_TCK")

    def peak(self) -> float:
        """The most megabytes that were resident at a time, without those of runs that it started."""
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{self.popen.pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0


@contextmanager
def _started(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[_Process]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], env=environment, stdout=out, stderr=out, cwd=log.parent
        )
    try:
        yield _Process(process)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _ask(port: int, question: str, **variables: Any) -> dict[str, Any]:
    body = json.dumps({"query": question, "variables": variables}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
        read = json.load(answer)
    if "errors" in read:
        raise SystemExit(read["errors"])
    found: dict[str, Any] = read["data"]
    return found


def _until_there(port: int, process: _Process, log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and process.popen.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(log.read_text("utf-8")[-2_000:])


def bench_servers(report: Report, settings: Settings, folder: Path) -> None:
    """Starts them over the home of ``settings`` and reports the four figures, and what they were at first."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CC_PIPELINE_", "DAGSTER_"))}
    # an installation has no pandas, which tests alone need, and pyarrow loads where it is there
    without = folder / "without" / "pandas.py"
    without.parent.mkdir(exist_ok=True)
    without.write_text("raise ModuleNotFoundError('pandas', name='pandas')", "utf-8")
    environment = kept | {
        "CC_PIPELINE_HOME": str(settings.home),
        "CC_PIPELINE_CRAWLS": "all",
        "DAGSTER_HOME": str(settings.dagster_home),
        "DAGSTER_GRPC_TIMEOUT_SECONDS": str(int(_PATIENCE)),
        "PYTHONPATH": os.pathsep.join([str(without.parent), str(Path(__file__).resolve().parents[1])]),
    }
    ports = _free_port(), _free_port()
    loads = {"grpc_server": {"host": "127.0.0.1", "port": ports[0], "location_name": LOCATION}}
    workspace = folder / "workspace.yaml"
    workspace.write_text(json.dumps({"load_from": [loads]}), "utf-8")
    logs = {name: folder / f"{name}.log" for name in ("code", "web", "daemon")}
    served = ["dagster", "api", "grpc", "-m", "cc_pipeline.definitions", "-h", "127.0.0.1", "-p", str(ports[0])]
    with ExitStack() as stack:
        code = stack.enter_context(_started([*served, "--location-name", LOCATION], environment, logs["code"]))
        _until_there(ports[0], code, logs["code"])
        listened = ["dagster_webserver", "-h", "127.0.0.1", "-p", str(ports[1]), "-w", str(workspace)]
        # a home that grew by itself has Dagster's summaries of its partitions: the first server makes them
        with _started(listened, environment, logs["web"]) as first:
            _until_there(ports[1], first, logs["web"])
            _nodes(report, "asset_nodes_ever", ports[1], first, None)
        web = stack.enter_context(_started(listened, environment, logs["web"]))
        _until_there(ports[1], web, logs["web"])
        _nodes(report, "asset_nodes_cold", ports[1], web, _GOALS["nodes"])
        report.figure("code_server_loaded", code.peak(), unit="MB", higher_is_better=False, note="before any tick")
        _ticks(report, ports[1], code)
        _daemon(report, settings, stack, environment, workspace, logs["daemon"])
        report.figure(
            "code_server", code.peak(), goal=_GOALS["code"], unit="MB", higher_is_better=False,
            note="most that was resident, after ticks and sensors",
        )  # fmt: skip


def _nodes(report: Report, figure: str, port: int, web: _Process, goal: float | None) -> None:
    seconds, used = [], []
    for _ in range(3):
        started, before = time.perf_counter(), web.used()
        nodes = _ask(port, _NODES)["assetNodes"]
        seconds.append(time.perf_counter() - started)
        used.append(web.used() - before)
    made = max((node["partitionStats"] or {}).get("numMaterialized", 0) for node in nodes)
    report.figure(
        figure, seconds[0], goal=goal, unit="s", higher_is_better=False,
        note=f"wall time, {used[0]:.1f} s of processor; {len(nodes)} assets, {made:,} partitions made; "
        f"then {seconds[1]:.2f} and {seconds[2]:.2f} s",
    )  # fmt: skip


def _ticks(report: Report, port: int, code: _Process) -> None:
    """A tick of each schedule, cold and then again; those that are due each week ask for their one run."""
    names = [one.name for one in list_automations() if isinstance(one, dg.ScheduleDefinition)]
    for figure, goal in (("ticks_first", None), ("ticks", _GOALS["tick"])):
        before, wall, said = code.used(), time.perf_counter(), []
        for name in names:
            selector = _SELECTOR | {"scheduleName": name}
            answer = _ask(port, _TICK, selector=selector, at=time.time())["scheduleDryRun"]
            found = answer.get("evaluationResult") or {"error": answer}
            if found.get("error"):
                raise SystemExit(f"{name}: {found['error']}")
            said.append(found["skipReason"] or f"{len(found['runRequests'])} run")
        report.figure(
            figure, code.used() - before, goal=goal, unit="s", higher_is_better=False,
            note=f"processor time of the code server, {time.perf_counter() - wall:.1f} s of wall time; "
            + ", ".join(f"{name}: {words}" for name, words in zip(names, said, strict=True)),
        )  # fmt: skip


def _daemon(
    report: Report, settings: Settings, stack: ExitStack, environment: Mapping[str, str], workspace: Path, log: Path
) -> None:
    with open_instance(settings) as instance:
        set_all_automations(instance, is_enabled=True)
    daemon = stack.enter_context(_started(["dagster._daemon", "run", "-w", str(workspace)], environment, log))
    time.sleep(_DAEMON_SECONDS)
    if daemon.popen.poll() is not None:
        raise SystemExit(log.read_text("utf-8")[-2_000:])
    report.figure(
        "daemon", daemon.peak(), goal=_GOALS["daemon"], unit="MB", higher_is_better=False,
        note=f"most that was resident in {_DAEMON_SECONDS} s with everything on; {daemon.used():.1f} s of processor",
    )  # fmt: skip
