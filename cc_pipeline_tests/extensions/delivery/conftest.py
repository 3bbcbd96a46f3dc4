"""A small shop of records, and the kinds of places that they are delivered to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from cc_pipeline_tests.cli.conftest import cli, rich, world
from cc_pipeline_tests.extensions.delivery.delivered import Place, Shop, bucket_place, folder_place, shop_at

__all__ = ["cli", "rich", "world"]

PLACES: dict[str, Callable[[Path], AbstractContextManager[Place]]] = {"folder": folder_place, "s3": bucket_place}


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with shop_at(tmp_path) as opened:
        yield opened


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path, credentials: None) -> Iterator[Place]:
    with PLACES[request.param](tmp_path) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Place]:
    with folder_place(tmp_path) as opened:
        yield opened
