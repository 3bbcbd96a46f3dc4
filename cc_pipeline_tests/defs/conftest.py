"""What most tests of Dagster's side start from."""

from __future__ import annotations

import os
from collections.abc import Iterator

import dagster as dg
import pytest

from cc_pipeline.transport.ranges import RetryPolicy


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """One that forgets."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of this machine counts."""
    for name in [name for name in os.environ if name.startswith("CC_PIPELINE_")]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def tries_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many attempts as ever, with no time between them."""
    monkeypatch.setattr(RetryPolicy, "next_wait", lambda *asked: 0.0)
