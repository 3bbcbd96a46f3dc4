"""What every asset, sensor and schedule of the code location promises."""

from __future__ import annotations

from collections.abc import Iterable

import dagster as dg
import pytest

from cc_pipeline.definitions import defs
from cc_pipeline.defs.home_namespace import OWN_HOME


@pytest.fixture(scope="module")
def definitions() -> dg.Definitions:
    return defs()


def specs(definitions: dg.Definitions) -> Iterable[dg.AssetSpec]:
    return definitions.resolve_all_asset_specs()


def test_definitions_are_loadable(definitions: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(definitions)


def test_checks_over_partitions_are_partitioned(definitions: dg.Definitions) -> None:
    made = [asset for asset in definitions.assets or () if isinstance(asset, dg.AssetsDefinition)]
    by_name = {spec.name: spec for asset in made for spec in asset.check_specs}
    assert by_name["ledger_balances"].partitions_def == OWN_HOME.pairs and by_name["ledger_balances"].blocking
    assert by_name["coverage"].partitions_def == OWN_HOME.crawl
    assert by_name["rows_as_in_the_lake"].partitions_def is None


def test_materialize_all_leaves_out_what_costs(definitions: dg.Definitions) -> None:
    costly = {spec.key for spec in specs(definitions) if spec.tags.get("asked") == "on-request"}
    assert costly >= {*map(dg.AssetKey, ("built_index", "repaired_statistics"))}
    everything = dg.AssetSelection.all().materializable().resolve(definitions.resolve_asset_graph())
    assert dg.AssetKey("captures") in everything and not costly & everything
    jobs = [*definitions.resolve_all_job_defs(), definitions.resolve_implicit_global_asset_job_def()]
    for job in jobs:
        assert not costly & job.asset_layer.executable_asset_keys, job.name


def test_sensors_and_schedules_ship_stopped(definitions: dg.Definitions) -> None:
    repository = definitions.get_repository_def()
    assert {sensor.name for sensor in repository.sensor_defs} >= {"new_crawls", "watch_list"}
    assert all(sensor.default_status == dg.DefaultSensorStatus.STOPPED for sensor in repository.sensor_defs)
    assert {schedule.name for schedule in repository.schedule_defs} >= {"weekly_maintenance"}
    assert all(schedule.default_status == dg.DefaultScheduleStatus.STOPPED for schedule in repository.schedule_defs)
