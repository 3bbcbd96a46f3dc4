"""A backfill by Dagster's own webserver and daemon, over three partitions of the six tables: one that fails, one whose
run is cancelled, a daemon that is stopped, and the re-execution from failure. After each the state of every partition
in Dagster is that of the lake."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest

from cc_pipeline.defs.home_namespace import OWN_HOME, TABLES
from cc_pipeline.defs.instance import DAEMON_VARIABLES, open_instance, prepare_files
from cc_pipeline.defs.stage_runner import StageRunner
from cc_pipeline.lake.slice import VERSION
from cc_pipeline.lake.slices import SLICES_SCHEMA, current_rows, parse_rows
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline_tests.defs.test_dagster_process import (
    BIN,
    PATIENCE_SECONDS,
    Server,
    environment,
    serving,
    wait_for_answer,
)
from cc_pipeline_tests.ports import free_port
from cc_pipeline_tests.world import NEW, OLD, Bucket

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("dagster_process"), pytest.mark.timeout(900)]

GOOD, BAD, HELD = KEYS = [f"{OLD}|example.com", f"{OLD}|example.org", f"{NEW}|example.com"]
LOCATION = Path(__file__).parent / "bad_location.py"


@dataclass(frozen=True, slots=True)
class Home:
    """A harvested home with three partitions. Those that the files ``bad`` and ``held`` name fail, and wait."""

    folder: Path
    settings: Settings
    env: dict[str, str]
    instance: dg.DagsterInstance
    bad: Path
    held: Path

    def runs(self, status: dg.DagsterRunStatus) -> list[dg.DagsterRun]:
        """The runs in a state."""
        return [*self.instance.get_runs(dg.RunsFilter(statuses=[status]))]

    def shown(self, asset: str) -> dict[str, str]:
        """What Dagster shows of each partition; nothing for one that was never asked for."""
        statuses = self.instance.get_status_by_partition(dg.AssetKey(asset), KEYS, OWN_HOME.pairs) or {}
        return {key: "" if status is None else status.value for key, status in statuses.items()}

    def made(self, asset: str) -> set[str]:
        """The partitions that Dagster shows as made."""
        return {key for key, status in self.shown(asset).items() if status == "MATERIALIZED"}

    def assert_states_equal_the_lake(self) -> None:
        """Each partition is shown as made if the lake has it, with its rows and the version of its data."""
        with open_workspace(self.settings) as workspace:
            for table in TABLES:
                stored: dict[str, tuple[int, str]] = {}
                columns = [name for name in SLICES_SCHEMA.names if name != "details"]
                for row in parse_rows(current_rows(workspace.lake, columns=columns)):
                    if row.slice_.target and table in row.tables:
                        key = f"{row.slice_.crawl}|{row.slice_.partition.target}"
                        stored[key] = row.tables[table].rows, str(row.metrics[VERSION + table])
                assert self.made(table) == {*stored}, (table, self.shown(table), stored)
                for key, (rows, version) in stored.items():
                    record = self.instance.fetch_materializations(
                        dg.AssetRecordsFilter(dg.AssetKey(table), asset_partitions=[key]), limit=1
                    ).records[0]
                    made = record.asset_materialization
                    assert made is not None
                    assert made.metadata["dagster/partition_row_count"].value == rows, (table, key)
                    assert (made.tags or {})["dagster/data_version"] == version, (table, key)


@pytest.fixture(scope="module")
def home(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    folder = tmp_path_factory.mktemp("backfills")
    bad, held = folder / "bad", folder / "held"
    bad.write_text(BAD, "utf-8")
    held.write_text(HELD, "utf-8")
    settings = load_settings({}, source=str(bucket[0]), home=str(folder / "home"))
    prepare_files(settings, folder)
    env = environment(bucket[0], folder) | DAEMON_VARIABLES | {
        "BAD_PARTITIONS": str(bad), "HELD_PARTITIONS": str(held), "DAGSTER_HOME": str(settings.dagster_home),
        "CC_PIPELINE_HOME": str(settings.home),
    }  # fmt: skip
    with open_workspace(settings) as workspace, StageRunner(workspace) as runner:
        runner.harvest([OLD, NEW])
    with open_instance(settings) as instance:
        instance.add_dynamic_partitions("target", sorted({key.partition("|")[2] for key in KEYS}))
        yield Home(folder, settings, env, instance, bad, held)


@pytest.fixture(scope="module")
def webserver(home: Home) -> Iterator[Server]:
    port = free_port()
    command = [str(BIN / "dagster-webserver"), "-f", str(LOCATION), "-h", "127.0.0.1", "-p", str(port)]
    with serving(command, home.folder, home.env, port, killed=True) as server:
        server.wait_until_loaded()
        yield server


@contextmanager
def daemon(home: Home) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon with a code server of its own, as ``dagster-daemon run`` starts it. Stopped by SIGTERM at the end."""
    with (home.folder / "daemon.log").open("ab") as log:
        process = subprocess.Popen(
            [BIN / "dagster-daemon", "run", "-f", LOCATION], cwd=home.folder, env=home.env, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
        process.terminate()
        process.wait(PATIENCE_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_every_state_equals_the_lake(home: Home, webserver: Server) -> None:
    with daemon(home):
        backfill = webserver.backfill(TABLES, KEYS)
        wait_for_answer(home.held.with_suffix(".waits").exists, "no run waits")
        # it is stopped while a run goes on
    with daemon(home):
        wait_for_answer(lambda: home.runs(dg.DagsterRunStatus.FAILURE), "no run failed")
        [waiting] = home.runs(dg.DagsterRunStatus.STARTED)
        webserver.terminate(waiting.run_id)
        assert webserver.wait_for(waiting.run_id) == "CANCELED"
        assert "FAIL" in webserver.wait_for_backfill(backfill)
        home.assert_states_equal_the_lake()
        assert home.made("page_text") == {GOOD}
        assert {home.shown(table)[BAD] for table in TABLES} == {"FAILED"}

        for file in (home.bad, home.held):
            file.write_text("", "utf-8")
        again = webserver.retry_backfill(backfill)
        assert webserver.wait_for_backfill(again) == "COMPLETED_SUCCESS"
        home.assert_states_equal_the_lake()
        assert home.made("page_text") == {*KEYS}
