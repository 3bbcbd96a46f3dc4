"""The frozen homes, each made once for all tests of a worker."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from cc_pipeline_tests.oracles.homes import HOMES

#: By the name of a home: the folder that it lies in, and the digest of its source.
MakeHome = Callable[[str], tuple[Path, str]]


@pytest.fixture(scope="session")
def make_home(tmp_path_factory: pytest.TempPathFactory) -> MakeHome:
    """Makes a home where it is asked for the first time. Nobody may change it."""

    @cache
    def make(name: str) -> tuple[Path, str]:
        folder = tmp_path_factory.mktemp(name)
        return folder, HOMES[name](folder)

    return make
