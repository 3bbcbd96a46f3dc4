"""Whatever is killed and started again in the middle of a backfill and a schedule: each partition is made once, the
states of runs are true, and nothing is asked for, or waits, for ever. docs/dagster.md has the table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from cc_pipeline_tests.defs.restarts import CELLS, DOCS, outcome_on, read_table, table

# no ``matrix``: of that the first cell would be in the first gear, and it takes minutes
pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]
_STORAGES = [
    pytest.param("SQLite", marks=pytest.mark.xdist_group("restarts SQLite")),
    pytest.param("PostgreSQL", marks=pytest.mark.xdist_group("restarts PostgreSQL")),
]


@pytest.mark.parametrize("storage", _STORAGES)
def test_any_restart_leaves_each_partition_made_once(storage: str, tmp_path: Path) -> None:
    found = outcome_on(storage, tmp_path)
    assert found.wrongs == ()
    page = {kind: told for (on, kind), told in read_table(DOCS.read_text("utf-8")).items() if on == storage}
    # how often a run is tried again depends on how fast the machine starts processes; how it ends does not
    assert _ends(found.told) == _ends(page), "python -m cc_pipeline_tests.defs.restarts writes the table anew"


def _ends(told: Mapping[str, tuple[str, str]]) -> dict[str, list[str]]:
    return {kind: [states.rpartition(", then ")[2] for states in each] for kind, each in told.items()}


@pytest.mark.smoke
def test_the_table_reads_back() -> None:
    page = DOCS.read_text("utf-8")
    told = read_table(page)
    assert {(storage, kind) for storage, kinds in CELLS.items() for kind in kinds} == set(told)
    by_storage = {on: {kind: ended for (one, kind), ended in told.items() if one == on} for on in CELLS}
    assert "\n".join(table(by_storage)) in page
