"""The Dagster instance of a home: its folder and its dagster.yaml."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import dagster as dg
from sqlalchemy.exc import DBAPIError

from cc_pipeline.atomic import write_whole
from cc_pipeline.defs.home_namespace import LOCATION
from cc_pipeline.defs.instance_config import read_config
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.locks import locked
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.claim import claim_home

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
# a run whose code server is being started stays in the queue, for ten minutes at most
run_queue: {max_user_code_failure_retries: 60, user_code_failure_retry_delay: 10}
run_monitoring:
  enabled: true
  poll_interval_seconds: 30
  # a run over a range writes what it plans before it starts: six events a partition
  start_timeout_seconds: 1800
  # ends a run whose machine was switched off; what it recorded stays
  max_runtime_seconds: 43200
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
#: before the code server: its assets "no longer exist". The next ones let a tick take ten minutes instead of one:
#: ``backfill_missing`` may assess 100,000 partitions on a busy machine, and ``new_crawls`` waits for a source that
#: refuses. The last one writes what a run plans in batches, where the storage can (PostgreSQL).
DAEMON_VARIABLES: Final[Mapping[str, str]] = {
    "DAGSTER_BACKFILL_RETRY_DEFINITION_CHANGED_ERROR": "1",
    "DAGSTER_SCHEDULE_GRPC_TIMEOUT_SECONDS": "600",
    "DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS": "600",
    "DAGSTER_EVENT_BATCH_SIZE": "1000",
}


#: Connections that keep SQLite's file of all assets' events open, by its path.
_log_connections: Final[dict[str, sqlite3.Connection]] = {}


def keep_log_open(instance: dg.DagsterInstance) -> None:
    """Keeps SQLite's file of all assets' events open in this process: Dagster opens it for each event, and whenever its
    last connection is closed, SQLite writes its log back and flushes the disk. One process is enough for all."""
    path = Path(instance.root_directory) / "history" / "runs" / "index.db"
    if path.is_file() and str(path) not in _log_connections:
        connection = sqlite3.connect(path, check_same_thread=False)
        # the first query opens the log
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        _log_connections[str(path)] = connection


def prepare_files(settings: Settings, folder: Path) -> list[Path]:
    """Writes ``folder/.env`` and the instance's ``dagster.yaml`` if they are missing; returns the written paths.

    Dagster's own commands read ``.env``, so that a plain ``dagster dev`` shows the same state as ``make dev``. The home
    is not claimed for a source yet; the first run does that.
    """
    settings.dagster_home.mkdir(parents=True, exist_ok=True)
    config = settings.dagster_home / "dagster.yaml"
    waits = "\n".join(f"{name}=${{{name}:-{value}}}" for name, value in DAEMON_VARIABLES.items())
    files = ((config, DAGSTER_YAML), (folder / ".env", DOTENV.format(home=settings.home, waits=waits)))
    missing = [(path, text) for path, text in files if not path.exists()]
    for path, text in missing:
        write_whole(path, text)
    return [path for path, _ in missing]


def prepare_instance(settings: Settings) -> None:
    """Makes the instance's folder, with our ``dagster.yaml`` if there is none. Raises as :func:`read_config` does."""
    claim_home(settings)
    config = settings.dagster_home / "dagster.yaml"
    if not config.exists():
        write_whole(config, DAGSTER_YAML)
    read_config(settings.dagster_home)


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


def open_instance(settings: Settings) -> dg.DagsterInstance:
    """Opens the persistent instance of the home.

    Raises ``EnvironmentFault`` if its ``dagster.yaml`` names a variable that is not set, a database that does not
    answer, or foreign code. Errors of SQLite and of the disk are raised as they are.
    """
    prepare_instance(settings)
    try:
        # Dagster creates its files at the first opening, and two processes at once would disturb each other
        with locked(settings.dagster_home / _OPENING):
            instance = dg.DagsterInstance.from_config(str(settings.dagster_home))
        keep_log_open(instance)
        return instance
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
