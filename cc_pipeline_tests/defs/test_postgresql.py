"""Dagster's state in PostgreSQL: few connections, and a restart of the server in the middle of a run."""

import re
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


def server_options(server: Postgres) -> dict[str, Any]:
    return {
        "host": server.host, "port": server.port, "user": server.user,
        "password": server.password, "dbname": server.database,
    }  # fmt: skip


def count_connections(server: Postgres) -> int:
    asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with create_engine("postgresql+psycopg2://", connect_args=server_options(server)).connect() as connection:
        return int(connection.execute(text(asked)).scalar_one())


class Clock:
    """The clock of those who wait for the server, which is started at ``start_at`` seconds."""

    def __init__(self, server: Postgres, start_at: float) -> None:
        self._server, self._start_at, self.now = server, start_at, 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now - seconds < self._start_at <= self.now:
            self._server.start()


def test_a_run_ends_well_though_the_server_restarts_within_it(
    server: Postgres, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    # longer than Dagster alone tries to connect: 6 seconds, 12 with its jitter
    clock = Clock(server, start_at=20)
    monkeypatch.setattr(postgresql, "time", clock)

    @dg.op
    def record(context: dg.OpExecutionContext) -> None:
        for number in range(100):
            context.log_event(dg.AssetMaterialization("numbers", metadata={"number": number}))
            if number == 50:
                server.stop()

    @dg.job
    def recording() -> None:
        record()

    result = recording.execute_in_process(instance=instance)
    assert result.success and clock.now >= 20
    assert len(instance.fetch_materializations(dg.AssetKey("numbers"), limit=100).records) == 100
    # three engines of this process, each with a connection that is kept
    assert 1 <= count_connections(server) <= 3


def test_a_server_that_was_never_there_or_stays_away_is_not_waited_for(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(server, start_at=postgresql.RESTART_SECONDS + 60)
    monkeypatch.setattr(postgresql, "time", clock)
    options = server_options(server)
    wrong = create_engine("postgresql+psycopg2://?plugin=cc_pipeline", connect_args=options | {"password": "wrong"})
    with pytest.raises(OperationalError):
        wrong.connect()
    assert clock.now == 0
    engine = create_engine("postgresql+psycopg2://?plugin=cc_pipeline", connect_args=options)
    engine.connect().close()
    server.stop()
    try:
        with pytest.raises(OperationalError):
            engine.connect()
        assert clock.now == postgresql.RESTART_SECONDS
    finally:
        server.start()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
