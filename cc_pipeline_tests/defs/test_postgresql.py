"""Dagster's state in PostgreSQL: few connections, and a restart of the server in the middle of a run."""

import gc
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from cc_pipeline.defs import postgresql
from cc_pipeline.defs.instance import DAGSTER_YAML
from cc_pipeline_tests.postgres import Postgres, postgres_server

pytestmark = pytest.mark.process

PAGE = Path(__file__).parents[2] / "docs" / "deployment.md"
#: Longer than Dagster alone tries to connect: 6 seconds, 12 with its jitter.
_AWAY_SECONDS = 20.0


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres_server() as running:
        yield running


@pytest.fixture
def instance(server: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """With the lines of the page in its ``dagster.yaml``."""
    [storage] = re.findall(r"```yaml\n(storage:\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "dagster.yaml").write_text(DAGSTER_YAML + storage, "utf-8")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    with dg.DagsterInstance.from_config(str(tmp_path)) as opened:
        yield opened


def count_connections(server: Postgres) -> int:
    import psycopg2  # noqa: PLC0415 -- few tests need it

    with psycopg2.connect(**dict(server_options(server))) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        [(count,)] = cursor.fetchall()
    return int(count)


def server_options(server: Postgres) -> dict[str, Any]:
    return {
        "host": server.host, "port": server.port, "user": server.user,
        "password": server.password, "dbname": server.database,
    }  # fmt: skip


def test_a_run_ends_well_though_the_server_restarts_within_it(server: Postgres, instance: dg.DagsterInstance) -> None:
    recorded = 400

    @dg.op
    def record(context: dg.OpExecutionContext) -> None:
        for number in range(recorded):
            context.log_event(dg.AssetMaterialization("numbers", metadata={"number": number}))
            if number == 50:
                restarting.start()
            time.sleep(0.005)

    @dg.job
    def recording() -> None:
        record()

    def restart() -> None:
        server.stop()
        time.sleep(_AWAY_SECONDS)
        server.start()

    restarting = threading.Thread(target=restart)
    result = recording.execute_in_process(instance=instance)
    restarting.join()
    assert result.success
    assert len(instance.fetch_materializations(dg.AssetKey("numbers"), limit=recorded).records) == recorded
    # three engines of this process, each with a connection that is kept
    assert 1 <= count_connections(server) <= 3


def test_instances_that_come_and_go_leave_few_connections(server: Postgres, instance: dg.DagsterInstance) -> None:
    reference = instance.get_ref()
    gc.collect()
    gc.disable()  # engines are in cycles: nothing but the collector would take them away
    try:
        for _ in range(6):
            with dg.DagsterInstance.from_ref(reference) as opened:
                opened.get_runs(limit=1)
        instance.get_runs(limit=1)
        # those of the last two instances, and of the one that is used again
        assert count_connections(server) <= 9
    finally:
        gc.enable()


def test_a_server_that_stays_away_is_given_up(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql, "RESTART_SECONDS", 1.0)
    monkeypatch.setattr(postgresql, "_TRY_AGAIN_SECONDS", 0.1)
    options = server_options(server)
    engine = create_engine("postgresql+psycopg2://?plugin=cc_pipeline", connect_args=options)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
    server.stop()
    try:
        with pytest.raises(OperationalError):
            engine.connect()
    finally:
        server.start()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
