"""``run`` and ``doctor`` end with 0 only where SQL shows what the lake has."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from cc_pipeline.defs.instance import open_instance_in
from cc_pipeline.defs.launcher import Launcher
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.lake import Lake, TableSpec
from cc_pipeline.lake.repeats import PER_CAPTURE
from cc_pipeline.lake.slice import Slice
from cc_pipeline.lake.snapshot import Publication
from cc_pipeline_tests.cli.conftest import NEW, Cli, World
from cc_pipeline_tests.world import workspace_of

pytestmark = pytest.mark.xdist_group("cli homes")
SITE, OTHER = "example.com", "example.org"
#: How often a run of few captures reads logs of tables, and looks whether they have newer entries: in all, and from the
#: publication on.
MOST_OPENED, MOST_OPENED_AFTER_RUNS = 25, 2
MOST_LOOKED, MOST_LOOKED_AFTER_RUNS = 130, 30


@pytest.fixture
def home(world: World, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world.untouched, tmp_path / "home"))


def shown(home: Path, domain: str) -> int:
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        found = connection.execute("SELECT count(*) FROM page_metadata WHERE domain = ?", [domain]).fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.process
def test_a_slice_with_repeats_is_named_by_run_and_doctor_and_repaired(cli: Cli, world: World, home: Path) -> None:
    run = ("run", "-c", NEW, SITE, "--home", home)
    # its damaged record is good by now
    assert cli("run", "--refetch", "-c", NEW, SITE, "--home", home).status == 0
    truth = len(world.truth.captures_of(NEW, subset="warc", domain=SITE))
    assert (cli(*run).status, shown(home, SITE)) == (0, truth)
    assert cli("doctor", "--home", home).status == 0
    lake, mine = workspace_of(world.bucket, home).lake, Slice(NEW, SITE)
    for table in PER_CAPTURE:
        rows = lake.read(table, mine.where)
        lake.commit(table, pa.concat_tables([rows, rows]), [mine.where], {})
    said = cli(*run)
    assert said.status == 1
    assert f"{NEW}|{SITE}" in said.told
    assert "doctor --repair" in said.told
    assert "fetched and stored" not in said.shown
    assert shown(home, SITE) == 0
    doctor = cli("doctor", "--home", home)
    assert doctor.status == 1
    assert f"has captures of {NEW}|{SITE} more than once" in doctor.shown
    repaired = cli("doctor", "--repair", "--home", home)
    assert repaired.status == 0, repaired.out + repaired.err
    assert f"the tables of {NEW}|{SITE} did not match" in repaired.shown
    assert shown(home, SITE) == truth
    again = cli(*run)
    assert (again.status, "same" in again.out, f"all {truth} captures are fetched and stored" in again.shown) == (
        0,
        True,
        True,
    )


@pytest.mark.process
def test_after_a_failed_publication_nothing_ends_well_until_the_next(
    cli: Cli, home: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ("run", "-c", NEW, OTHER, "--home", home)
    with monkeypatch.context() as patch:

        def fail(*_: object, **__: object) -> None:
            raise EnvironmentFault("could not build it", "Check the disk.")

        patch.setattr("cc_pipeline.maintenance.maintain.publish_warehouse", fail)
        assert cli(*run).status == 1
    said = cli("doctor", "--home", home)
    assert said.status == 1
    assert "is out of date: tables changed since it was written" in said.shown
    assert (cli(*run).status, shown(home, OTHER)) == (0, len(world.truth.captures_of(NEW, subset="warc", domain=OTHER)))
    # nothing is to be made, and the file is damaged in its place
    path = home / "cc.duckdb"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert cli("doctor", "--home", home).status == 1
    assert cli(*run).status == 0
    assert cli("doctor", "--home", home).status == 0
    # a publication that shows nothing of it is no success
    with monkeypatch.context() as patch:
        patch.setattr("cc_pipeline.maintenance.maintain.merge_and_publish", _publish_nothing(home))
        path.unlink()
        refused = cli(*run)
    assert refused.status == 1
    assert "does not exist" in refused.told


@pytest.mark.process
def test_a_command_publishes_without_a_run_and_opens_each_table_a_few_times(
    cli: Cli, home: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    looked: list[str] = []
    after_runs: list[tuple[int, int]] = []
    real, look, publish = Lake.open, Lake._get_newest, Launcher.publish_changes

    def noted(lake: Lake, spec: TableSpec, version: int | None = None, **kept: DeltaTable | None) -> DeltaTable | None:
        opened.append(spec.name)
        return real(lake, spec, version, **kept)

    def looking(lake: Lake, spec: TableSpec) -> DeltaTable | None:
        looked.append(spec.name)
        return look(lake, spec)

    def publishing(launcher: Launcher) -> Publication | None:
        after_runs.append((len(opened), len(looked)))
        return publish(launcher)

    monkeypatch.setattr(Lake, "open", noted)
    monkeypatch.setattr(Lake, "_get_newest", looking)
    monkeypatch.setattr(Launcher, "publish_changes", publishing)
    assert cli("run", "-c", NEW, OTHER, "--home", home).status == 0
    opened_before, looked_before = after_runs[0]
    assert len(opened) <= MOST_OPENED
    assert len(opened) - opened_before <= MOST_OPENED_AFTER_RUNS
    assert len(looked) <= MOST_LOOKED
    assert len(looked) - looked_before <= MOST_LOOKED_AFTER_RUNS
    instance = open_instance_in(home / "dagster")
    try:
        assert "publish" not in {run.job_name for run in instance.get_runs()}
        assert instance.get_latest_materialization_event(dg.AssetKey("warehouse")) is not None
    finally:
        instance.dispose()


def _publish_nothing(home: Path) -> object:
    return lambda workspace: Publication(home / "cc.duckdb", {}, {}, 0)
