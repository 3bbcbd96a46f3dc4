"""The Dagster instance of a home: its folder, its dagster.yaml, and the cleanup after killed processes."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import dagster as dg
import yaml
from sqlalchemy.exc import DBAPIError

from cc_pipeline import processes
from cc_pipeline.atomic import write_whole, written_whole
from cc_pipeline.defs.declared.collected_parts import owns
from cc_pipeline.defs.home_namespace import OWN_HOME, HomeNamespace
from cc_pipeline.defs.instance_config import read_config
from cc_pipeline.defs.internals import LOCATION, NO_OUTPUT, end_run, is_executing, open_backfill_ids
from cc_pipeline.defs.open_sqlite_files import keep_open
from cc_pipeline.defs.partitions import PROCESS_TAG, partition_key
from cc_pipeline.defs.partitions_in_flight import find_extracted_assets, find_orphaned_runs, is_silent
from cc_pipeline.defs.run_notes import read_workers, run_partitions
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.locks import locked
from cc_pipeline.settings import Settings
from cc_pipeline.stores.opening import is_loopback
from cc_pipeline.workspace.claim import claim_home

#: Host and port of a code server.
Server: TypeAlias = tuple[str, int]

#: The tag in which Dagster's launcher stores the code server of a run.
SERVER_TAG = ".dagster/grpc_info"
_CONNECT_SECONDS = 2.0

_BACKFILL_TAG = "dagster/backfill"
_RUNNING = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]

DAGSTER_YAML = """\
# Written once by cc-pipeline; yours to change. State is in SQLite files beside this file.
telemetry: {enabled: false}
nux: {enabled: false}
concurrency:
  runs:
    max_concurrent_runs: 2
    # a long backfill leaves a place for what a person launches
    tag_concurrency_limits: [{key: cc_pipeline/kind, value: backfill, limit: 1}]
  pools: {default_limit: 1, granularity: op}
run_launcher: {module: cc_pipeline.defs.run_launcher, class: WatchingRunLauncher}
# a run whose code server is being started stays in the queue, for ten minutes at most
run_queue: {max_user_code_failure_retries: 60, user_code_failure_retry_delay: 10}
run_monitoring:
  enabled: true
  poll_interval_seconds: 30
  # a run over a range writes what it plans before it starts: six events a partition
  start_timeout_seconds: 1800
  free_slots_after_run_end_seconds: 60
run_retries: {enabled: true, max_retries: 2, retry_on_asset_or_op_failure: false}
retention:
  sensor: {purge_after_days: {skipped: 7, failure: 30, success: 90}}
  schedule: {purge_after_days: 90}
sensors: {use_threads: true, num_workers: 4}
schedules: {use_threads: true, num_workers: 2}
"""

#: The lock that commands hold while they open the instance.
_OPENING: Final = "open.lock"
#: The configuration with which commands open the instance.
_COMMANDS_YAML: Final = "commands.yaml"

#: In Dagster this file takes precedence over the environment, so it refers to the environment first. The instance is
#: always that of the home: another one would show the runs of another home.
DOTENV = """\
# Written once by cc-pipeline; yours to change. What you export wins; Dagster's state is that of the home.
CC_PIPELINE_HOME=${{CC_PIPELINE_HOME:-{home}}}
DAGSTER_HOME=${{CC_PIPELINE_HOME}}/dagster
# a backfill waits for a code server that is being started; a tick may take ten minutes
{waits}
# what lies in the current folder is data
PYTHONSAFEPATH=1
"""
#: Environment variables of Dagster's daemon and UI. Without the first one, a backfill fails if the daemon is started
#: before the code server: its assets "no longer exist". The others let a tick take ten minutes instead of one:
#: ``backfill_missing`` may assess 100,000 partitions on a busy machine, and ``new_crawls`` waits for a source that
#: refuses, since its next tick is six hours later.
DAEMON_VARIABLES: Final[Mapping[str, str]] = {
    "DAGSTER_BACKFILL_RETRY_DEFINITION_CHANGED_ERROR": "1",
    "DAGSTER_SCHEDULE_GRPC_TIMEOUT_SECONDS": "600",
    "DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS": "600",
}


def prepare_files(settings: Settings, folder: Path) -> list[Path]:
    """Writes ``folder/.env`` and the instance's ``dagster.yaml`` if they are missing; returns the written paths.

    Dagster's own commands read ``.env``, so that a plain ``dagster dev`` shows the same state as ``make dev``. The home
    is not claimed for a source yet; the first run does that.
    """
    settings.dagster_home.mkdir(parents=True, exist_ok=True)
    config = settings.dagster_home / "dagster.yaml"
    files = ((config, DAGSTER_YAML), (folder / ".env", _dotenv(settings.home)))
    missing = [(path, text) for path, text in files if not path.exists()]
    for path, text in missing:
        write_whole(path, text)
    return [path for path, _ in missing]


def _dotenv(home: object) -> str:
    """Returns the text of a ``.env`` for ``home``. The environment takes precedence over it."""
    waits = "\n".join(f"{name}=${{{name}:-{value}}}" for name, value in DAEMON_VARIABLES.items())
    return DOTENV.format(home=home, waits=waits)


def prepare_instance(settings: Settings) -> None:
    """Makes the instance's folder, with our ``dagster.yaml`` if there is none."""
    claim_home(settings)
    config = settings.dagster_home / "dagster.yaml"
    if not config.exists():
        write_whole(config, DAGSTER_YAML)


def find_missing_keys(settings: Settings) -> list[str]:
    """Returns keys of our ``dagster.yaml`` that a person's own file lacks and restarts need (docs/dagster.md)."""
    config = read_config(settings.dagster_home)
    return [key for key in ("run_launcher", "run_queue") if key not in config]


def workspace_file(settings: Settings) -> Path:
    """Returns the workspace file that a UI of this home loads: the checkout's, or ours in the instance's folder.

    Both load the definitions under one name, by which the instance identifies sensors and schedules.
    """
    of_checkout = Path(__file__).resolve().parents[2] / "workspace.yaml"
    if of_checkout.exists():
        return of_checkout
    workspace_path = settings.dagster_home / "workspace.yaml"
    write_whole(workspace_path, _WORKSPACE)
    return workspace_path


_WORKSPACE = f"""\
load_from:
  - python_module:
      module_name: cc_pipeline.definitions
      location_name: {LOCATION}
"""


def open_instance_in(folder: Path) -> dg.DagsterInstance:
    """Opens the instance whose ``dagster.yaml`` lies in ``folder``, for the runs of a command in this process.

    A command's runs write to its terminal, so their output is not copied to files: that would take two processes per
    run. If ``dagster.yaml`` names a store for the output, that is used. Raises as :func:`read_config` does.
    """
    config = {"compute_logs": NO_OUTPUT} | read_config(folder)
    keep_open(folder)
    config_path, file = folder / "dagster.yaml", folder / _COMMANDS_YAML
    text = "# Written by cc-pipeline: dagster.yaml, for commands.\n" + yaml.safe_dump(config)
    if not file.is_file() or file.read_text("utf-8") != text:
        # a file that only its owner may read stays so
        with written_whole(
            file, mode=config_path.stat().st_mode & 0o777 if config_path.is_file() else None
        ) as temporary_path:
            temporary_path.write_text(text, "utf-8")
    return dg.DagsterInstance.from_config(str(folder), _COMMANDS_YAML)


def open_instance(settings: Settings) -> dg.DagsterInstance:
    """Opens the persistent instance of the home.

    Raises ``EnvironmentFault`` if its ``dagster.yaml`` names a variable that is not set, a database that does not
    answer, or foreign code. Errors of SQLite and of the disk are raised as they are.
    """
    prepare_instance(settings)
    try:
        # Dagster creates its files at the first opening, and two processes at once would disturb each other
        with locked(settings.dagster_home / _OPENING):
            return open_instance_in(settings.dagster_home)
    except (OSError, DBAPIError, EnvironmentFault):
        raise
    except Exception as error:  # Dagster, its storages and its loggers have different error classes
        # the text of a configuration error is the whole schema; its first mistake names the variable
        mistakes = error.errors if isinstance(error, dg.DagsterInvalidConfigError) else []
        reason = (mistakes[0].message if mistakes else str(error.__cause__ or error)).strip().partition("\n")[0]
        raise EnvironmentFault(
            f"the Dagster instance in {settings.dagster_home} cannot be opened: {reason}",
            "Check dagster.yaml in that folder: set the variables that the file names (set -a; . ./.env), and start "
            "the database that it names.",
        ) from error


def end_runs_of_dead_processes(instance: dg.DagsterInstance, namespace: HomeNamespace = OWN_HOME) -> list[str]:
    """Marks runs whose process was killed as failed and frees their pool slots; returns their ids.

    These are runs of the command line, and of a code server that was killed with them. Dagster monitors neither: they
    would stay in progress for ever, keep their slots, and block all who wait for their partitions. An instance belongs
    to one machine: processes of another one cannot be seen here.
    """
    ended = []
    runs = instance.get_runs(dg.RunsFilter(statuses=[*_RUNNING, dg.DagsterRunStatus.NOT_STARTED]))
    # a run that waits for its start has no process yet, except those of a command
    started_runs = [
        run
        for run in runs
        if owns(namespace, run) and (run.status is not dg.DagsterRunStatus.NOT_STARTED or is_command_run(run))
    ]
    workers = read_workers(instance, [run.run_id for run in started_runs])
    for run in started_runs:
        if not _may_be_alive(instance, run, workers.get(run.run_id, "")):
            number = _process_mark(run).partition("-")[0]
            server_reason = "the process of the run, or its code server, was killed"
            reason = f"the process {number} of the run was killed" if is_command_run(run) else server_reason
            end_run(instance, run, reason)
            ended.append(run.run_id)
    return ended + _cancel_orphaned_runs(instance, namespace)


def _cancel_orphaned_runs(instance: dg.DagsterInstance, namespace: HomeNamespace) -> list[str]:
    """Cancels runs that nobody will ever start; returns their ids. The daemon would retry them if they were marked as
    failed."""
    orphaned_runs = [run for run in find_orphaned_runs(instance) if owns(namespace, run) and not is_command_run(run)]
    # the daemon itself continues the runs of an open backfill
    open_backfills = open_backfill_ids(instance) if any(_BACKFILL_TAG in run.tags for run in orphaned_runs) else set()
    orphaned_runs = [run for run in orphaned_runs if run.tags.get(_BACKFILL_TAG) not in open_backfills]
    for run in orphaned_runs:
        instance.report_run_canceled(run, "the run was created and never queued: its creator failed or was killed")
    return [run.run_id for run in orphaned_runs]


def end_runs_of_this_process(instance: dg.DagsterInstance) -> None:
    """Marks running runs of this process as failed and frees their pool slots.

    For a process that is asked to end: Dagster itself marks a run that it interrupts, but not between two steps.
    """
    process_tags = {PROCESS_TAG: processes.this_process()}
    for run in instance.get_runs(dg.RunsFilter(statuses=_RUNNING, tags=process_tags)):
        end_run(instance, run, "the process of the run was asked to end")


def end_runs_of_dead_servers(settings: Settings) -> list[str]:
    """Calls :func:`end_runs_of_dead_processes` for the instance of a home, at the start and the end of a UI. Otherwise
    the next UI would find running runs that nobody executes, and wait for them."""
    with open_instance(settings) as instance:
        return end_runs_of_dead_processes(instance)


def find_running_partitions(instance: dg.DagsterInstance) -> dict[str, str]:
    """Returns the partitions (crawl × target) that runs are making at this moment, with the id of the run.

    Queued runs are left out, since nobody may be there to start them, and so are runs whose process or server is dead.
    """
    runs = [run for run in instance.get_runs(dg.RunsFilter(statuses=_RUNNING)) if find_extracted_assets(run)]
    workers = read_workers(instance, [run.run_id for run in runs])
    runs = [run for run in runs if _may_be_alive(instance, run, workers.get(run.run_id, ""))]
    pairs_by_run = run_partitions(instance, runs)
    return {partition_key(*pair): run.run_id for run in runs for pair in pairs_by_run[run.run_id]}


def may_be_alive(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether a run may still have a process; true if that cannot be known."""
    return _may_be_alive(instance, run, read_workers(instance, [run.run_id]).get(run.run_id, ""))


def _may_be_alive(instance: dg.DagsterInstance, run: dg.DagsterRun, worker: str) -> bool:
    """Whether a run may still have a process; true if that cannot be known. ``worker`` is the mark of the process that
    executes it, if it wrote one: it may outlive the server that started it."""
    if not is_command_run(run):
        is_dead = processes.has_ended(worker)
        lives = _has_server(instance, run) if is_dead is None else not is_dead
        return lives or _has_ended(instance, run)
    return processes.has_ended(_process_mark(run)) is not True


def is_command_run(run: dg.DagsterRun) -> bool:
    """Whether a run lives in the process of a command line, which publishes for all its runs."""
    # a run that somebody repeats in the UI has the tags of the first one, and a process of its own
    return bool(_process_mark(run)) and run.parent_run_id is None


def _process_mark(run: dg.DagsterRun) -> str:
    return run.tags.get(PROCESS_TAG, "")


def _has_server(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether a run without a noted process, which no command line started, may still have one; true if that cannot be
    known."""
    starting = run.status is dg.DagsterRunStatus.STARTING
    if starting and SERVER_TAG not in run.tags:
        # the daemon took it out of the queue, and may have been killed before it gave it to a server
        return not is_silent(instance, run)
    try:
        server = json.loads(run.tags.get(SERVER_TAG, ""))
        try:
            if not is_listening(server):
                return _is_of_one_machine(server) and _has_worker(instance, run)
        except OSError:
            return True  # a host that is unreachable, such as a container that is being started
        # a server has a run before the run is marked as started, and forgets it after its end
        if is_executing(server, run.run_id) or (starting and not is_silent(instance, run)):
            return True
    except Exception:  # a tag of another launcher, or a server that is too busy to answer
        return True
    return _is_of_one_machine(server) and _has_worker(instance, run)


def _has_worker(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether the process lives that a server of this machine started for a run, before it noted itself. Such a process
    continues when its server is killed."""
    for entry in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
        pid = entry.dagster_event.engine_event_data.metadata.get("pid") if entry.dagster_event is not None else None
        if isinstance(pid, dg.TextMetadataValue) and processes.is_alive_since(int(pid.value or 0), entry.timestamp):
            return True
    return False


def _has_ended(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether a run has reported its end meanwhile: then it needs no process, and nobody has to end it."""
    now = instance.get_run_by_id(run.run_id)
    return now is None or now.status not in _RUNNING


def find_silent_servers(instance: dg.DagsterInstance) -> dict[str, int]:
    """Returns the addresses of code servers that cannot be reached, though they may be alive, and how many runs each
    executes. Their runs hold their partitions until the server is back.

    Each address is asked once, for at most some seconds.
    """
    runs = Counter(
        read_server(run) for run in instance.get_runs(dg.RunsFilter(statuses=_RUNNING)) if not is_command_run(run)
    )
    silent = {}
    for server, count in runs.items():
        try:
            if server is not None:
                is_listening({"host": server[0], "port": server[1]})
        except OSError:
            assert server is not None
            silent[f"{server[0]}:{server[1]}"] = count
    return silent


def read_server(run: dg.DagsterRun) -> Server | None:
    """Returns host and port of the code server that a run was given to; ``None`` if no tag has them."""
    try:
        server = json.loads(run.tags.get(SERVER_TAG, ""))
        return str(server["host"]), int(server["port"])
    except (ValueError, KeyError, TypeError):
        return None


def _is_of_one_machine(server: Mapping[str, Any]) -> bool:
    """Whether the address of a code server is valid on its own machine only."""
    return not server.get("host") or is_loopback(server["host"])


def is_listening(server: Mapping[str, Any]) -> bool:
    """Whether a process listens at the address of a code server. Raises ``OSError`` if that cannot be known."""
    path = server.get("socket")
    family, address = (socket.AF_UNIX, path) if path else (socket.AF_INET, (server["host"], int(server["port"])))
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(_CONNECT_SECONDS)
        try:
            connection.connect(address)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
    return True


def server_listens(server: Server) -> bool:
    """Whether a process listens at the address of a code server; false if that cannot be known."""
    try:
        return is_listening({"host": server[0], "port": server[1]})
    except OSError:
        return False
