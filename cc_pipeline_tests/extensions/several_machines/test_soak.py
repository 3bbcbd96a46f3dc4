"""The soak runs: its short form takes two days."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline_tests.benchmarks.test_short_forms import run_short_form
from cc_pipeline_tests.extensions.several_machines.soak.clock import missing
from cc_pipeline_tests.postgres import programs

SOAK = "cc_pipeline_tests.extensions.several_machines.soak"


@pytest.mark.process
def test_a_short_soak_writes_its_figures(tmp_path: Path) -> None:
    if missing() or programs() is None:
        pytest.skip(missing() or "no PostgreSQL here")
    run_short_form(SOAK, "soak", tmp_path)
