"""A mini crawl for the tests of every room above the index."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import TEST
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline.transport import host_state, rate_limiter
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline.workspace import workspace as workspaces
from cc_pipeline_tests.closing import close_all
from cc_pipeline_tests.sharing import make_once, mark_first_cells, share_out

if TYPE_CHECKING:
    from cc_pipeline_tests.weedserver import S3Server

# how long an example takes says something of the machine and nothing of what is tested
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None, print_blob=True)
settings.load_profile("local")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Says which tests stay in the first gear, which go to one worker together, and which are begun first."""
    mark_first_cells(items)
    if hasattr(config, "workerinput"):
        share_out(items)


@pytest.fixture(scope="session")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MiniCrawlTruth]:
    """The bucket's root and the truth about it."""
    root = make_once(tmp_path_factory, "minicrawl", lambda folder: ensure(folder / "bucket", TEST)) / "bucket"
    return root, ensure(root, TEST)


@pytest.fixture(scope="module")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server with the bucket ``lake``, which keeps conditional puts; skips where its package is not installed."""
    from cc_pipeline_tests.weedserver import weed_server  # noqa: PLC0415 -- few tests need it

    with weed_server(tmp_path_factory.mktemp("weed"), "lake") as running:
        yield running


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a mock of S3 with the bucket ``lake``, and in the environment what lets one in."""
    from cc_pipeline_tests.motoserver import CREDENTIALS, moto_server  # noqa: PLC0415 -- loads for seconds

    for name, text in CREDENTIALS.items():
        monkeypatch.setenv(name, text)
    with moto_server("lake") as address:
        yield address


@pytest.fixture(scope="session", autouse=True)
def users_state_is_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the budget that the user's own homes share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def dagster_opens_databases_quickly() -> Iterator[None]:
    """Dagster reads all its migrations, and makes an engine, whenever it opens a database: most of what a small run
    costs. Here, where a test has loaded Dagster, both are kept."""
    with pytest.MonkeyPatch.context() as patch:
        if "dagster._core.storage.sql" in sys.modules:
            from alembic.script import ScriptDirectory  # noqa: PLC0415 -- Dagster has loaded it
            from dagster._core.storage.event_log.sqlite import sqlite_event_log  # noqa: PLC0415

            patch.setattr(ScriptDirectory, "from_config", cache(ScriptDirectory.from_config))
            patch.setattr(sqlite_event_log, "create_engine", _keeping(sqlite_event_log.create_engine))
        yield


def _keeping(create_engine: Callable[..., Any]) -> Callable[..., Any]:
    """``create_engine`` as Dagster calls it for its files: without a pool, with the same options each time."""
    engines: dict[str, Any] = {}

    def kept(address: str, **options: Any) -> Any:
        if address not in engines:
            engines[address] = create_engine(address, **options)
        return engines[address]

    return kept


@pytest.fixture(autouse=True)
def waits_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that refuses is probed soon, and not waited for long; one that fails is asked as often, and soon."""
    monkeypatch.setattr(host_state, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(rate_limiter, "WAIT", 0.25)
    monkeypatch.setattr(workspaces, "RetryPolicy", partial(RetryPolicy, base=0.01, longest=0.05))
    monkeypatch.setattr(workspaces, "_LIST_RETRY", replace(workspaces._LIST_RETRY, base=0.01, longest=0.05))


@pytest.fixture(autouse=True)
def processes_find_the_tests() -> Iterator[None]:
    """A command that ran in this process isolates its children; processes that a later test starts import the tests."""
    os.environ.pop("PYTHONSAFEPATH", None)
    yield
    os.environ.pop("PYTHONSAFEPATH", None)


@pytest.fixture(autouse=True)
def workspaces_are_closed() -> Iterator[None]:
    """No connection of a test's workspace outlives the test."""
    yield
    close_all()
