"""The instance of a home is opened by several processes at once, also where none has made its files yet."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from cc_pipeline.defs.instance import open_instance
from cc_pipeline_tests.defs.graph import settings_of

_MANY = 4


def opened(begin: object, home: Path) -> int:
    """Opens the instance when all have come so far; how many runs it has."""
    begin.wait()  # type: ignore[attr-defined]
    with open_instance(settings_of(home, home)) as instance:
        return instance.get_runs_count()


@pytest.mark.process
def test_commands_open_a_new_home_at_once(tmp_path: Path) -> None:
    spawning = multiprocessing.get_context("spawn")
    with spawning.Manager() as shared, ProcessPoolExecutor(_MANY, spawning) as pool:
        begin = shared.Barrier(_MANY)
        done = [pool.submit(opened, begin, tmp_path / "home") for _ in range(_MANY)]
        assert [one.result() for one in done] == [0] * _MANY
