"""``run`` and ``doctor`` end with 0 only where SQL shows what the lake has."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pytest
from deltalake import DeltaTable

from cc_pipeline.defs.instance import open_instance
from cc_pipeline.lake.lake import Lake, TableSpec
from cc_pipeline.lake.snapshot import Publication
from cc_pipeline.settings import load_settings
from cc_pipeline_tests.cli.conftest import NEW, Cli, World

pytestmark = pytest.mark.xdist_group("cli homes")
OTHER = "example.org"
#: How often a run of few captures reads logs of tables.
MOST_OPENED = 22


@pytest.fixture
def home(world: World, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world.untouched, tmp_path / "home"))


@pytest.mark.process
def test_a_command_publishes_without_a_run_and_opens_each_table_a_few_times(
    cli: Cli, home: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real = Lake.open

    def noted(lake: Lake, spec: TableSpec, version: int | None = None, **kept: DeltaTable | None) -> DeltaTable | None:
        opened.append(spec.name)
        return real(lake, spec, version, **kept)

    monkeypatch.setattr(Lake, "open", noted)
    assert cli("run", "-c", NEW, OTHER, "--home", home).status == 0
    assert len(opened) <= MOST_OPENED
    instance = open_instance(load_settings({}, home=str(home)))
    try:
        assert not instance.get_runs()
        assert instance.get_latest_materialization_event(dg.AssetKey("warehouse")) is not None
    finally:
        instance.dispose()


@pytest.mark.process
def test_a_publication_that_shows_nothing_of_a_run_is_no_success(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / "cc.duckdb"
    monkeypatch.setattr("cc_pipeline.maintenance.maintain.merge_and_publish", lambda _: Publication(path, {}, {}, 0))
    path.unlink()
    said = cli("run", "-c", NEW, OTHER, "--home", home)
    assert (said.status, "does not exist" in said.told) == (1, True)
