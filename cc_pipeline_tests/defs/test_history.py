"""Old runs are deleted; the states of partitions are those of the lake before and after it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.history import trim_history
from cc_pipeline.defs.home_namespace import OWN_HOME, TABLES
from cc_pipeline.defs.instance import open_instance
from cc_pipeline.defs.recording import materialization
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline_tests.defs.graph import materialize, recorded, settings_of
from cc_pipeline_tests.world import NEW, Bucket, harvest

TARGETS = ("example.com", "example.org")
KEYS = [f"{NEW}|{target}" for target in TARGETS]


def test_partitions_of_deleted_runs_stay_recorded(bucket: Bucket, tmp_path: Path) -> None:
    settings = settings_of(bucket[0], tmp_path / "home")
    with open_workspace(settings) as workspace, open_instance(settings) as instance:
        harvest(workspace)
        workspace.register_targets([parse_target(target) for target in TARGETS])
        instance.add_dynamic_partitions("crawl", [NEW])
        instance.add_dynamic_partitions("target", [*TARGETS])
        # an earlier command recorded another version, without a run
        earlier = materialization(dg.AssetKey("captures"), KEYS[0], {}, "earlier")
        instance.report_runless_asset_event(earlier)
        for key in KEYS:
            assert materialize(instance, workspace, key).success
        selected = frozenset({dg.AssetKey("report")})
        kept = dg.DagsterRun("__ASSET_JOB", asset_selection=selected, status=dg.DagsterRunStatus.SUCCESS)
        instance.add_run(kept)
        before = {table: recorded(instance, table) for table in TABLES}
        assert trim_history(instance, workspace, OWN_HOME).runs == 0, "nothing is old yet"
        later = datetime.now(UTC) + timedelta(days=settings.history_days + 1)
        report = trim_history(instance, workspace, OWN_HOME, now=later)
        assert report.runs == 2 and report.restored >= 12
        assert [run.run_id for run in instance.get_runs()] == [kept.run_id], "the lake does not have its report"
        for table in TABLES:
            after = recorded(instance, table)
            assert sorted(after) == KEYS
            for key in KEYS:
                assert after[key].tags["dagster/data_version"] == before[table][key].tags["dagster/data_version"]
            statuses = instance.get_status_by_partition(dg.AssetKey(table), KEYS, OWN_HOME.pairs)
            assert {*statuses.values()} == {dg.AssetPartitionStatus.MATERIALIZED}
        events = settings.dagster_home / "history" / "runs"
        assert not [path for path in events.glob("*.db") if len(path.stem) == 36]
        assert trim_history(instance, workspace, OWN_HOME, now=later).restored == 0


@pytest.mark.parametrize("days", [10, 200])
def test_failed_runs_are_kept_twice_as_long(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance, days: int
) -> None:
    with open_workspace(settings_of(bucket[0], tmp_path / "home")) as workspace:
        instance.add_run(dg.DagsterRun("extract_targets", status=dg.DagsterRunStatus.FAILURE))
        now = datetime.now(UTC) + timedelta(days=days)
        assert trim_history(instance, workspace, OWN_HOME, now=now).runs == (days > 180)
