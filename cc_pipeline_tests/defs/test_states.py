"""The state of each partition in Dagster equals the lake, however it was launched, whatever failed, and after its run
was deleted."""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

import cc_pipeline.extraction.run as stages
from cc_pipeline.checks import outputs
from cc_pipeline.checks.scope import CheckResult
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.history import trim_history
from cc_pipeline.defs.home_namespace import OWN_HOME, TABLES
from cc_pipeline.defs.instance import open_instance
from cc_pipeline.defs.lake_records import read_partitions, report_unrecorded, restore_records
from cc_pipeline.defs.recording import FAILED, PartitionsFailed, materialization
from cc_pipeline.defs.stage_runner import StageRunner
from cc_pipeline.errors import CcPipelineError, EnvironmentFault, PlaceFault
from cc_pipeline.lake.slice import StageReport
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.workspace import Workspace, open_workspace
from cc_pipeline_tests.defs.graph import execute_listed, failure_of, materialize, recorded, settings_of
from cc_pipeline_tests.world import NEW, OLD, Bucket, harvest, workspace_of

CRAWLS = (OLD, NEW)
TARGETS = ("example.co.uk", "example.com", "example.org")
KEYS = [f"{crawl}|{target}" for crawl in CRAWLS for target in TARGETS]
BAD = f"{NEW}|example.com"


@pytest.fixture(scope="module")
def harvested(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose two crawls are harvested; to be copied."""
    home = tmp_path_factory.mktemp("harvested") / "home"
    workspace = workspace_of(bucket[0], home)
    for crawl in CRAWLS:
        harvest(workspace, crawl)
    workspace.register_targets([parse_target(target) for target in TARGETS])
    return home


@pytest.fixture
def settings(bucket: Bucket, harvested: Path, tmp_path: Path) -> Settings:
    return settings_of(bucket[0], shutil.copytree(harvested, tmp_path / "home"))


@pytest.fixture
def instance(instance: dg.DagsterInstance) -> dg.DagsterInstance:
    add_keys(instance)
    return instance


def add_keys(instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions("crawl", [*CRAWLS])
    instance.add_dynamic_partitions("target", [*TARGETS])


@pytest.fixture
def bad_partitions(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The partitions that fail, until the test takes them out."""
    bad = {BAD}
    locate = stages.locate_captures

    def locate_or_fail(workspace: Workspace, crawl: str, slugs: Sequence[str], **given: object) -> StageReport:
        for slug in slugs:
            if f"{crawl}|{slug}" in bad:
                raise CcPipelineError(f"{slug} is bad in {crawl}\nMend it")
        return locate(workspace, crawl, slugs, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(stages, "locate_captures", locate_or_fail)
    yield bad


def shown(instance: dg.DagsterInstance, asset: str = "page_metadata", of: Iterable[str] = KEYS) -> dict[str, str]:
    """What Dagster shows of partitions; nothing for one that was never asked for."""
    statuses = instance.get_status_by_partition(dg.AssetKey(asset), [*of], OWN_HOME.pairs) or {}
    return {key: status.value for key, status in statuses.items() if status is not None}


def states_equal_the_lake(
    instance: dg.DagsterInstance, settings: Settings, made: Iterable[str], failed: Iterable[str] = ()
) -> None:
    expected = dict.fromkeys(made, "MATERIALIZED") | dict.fromkeys(failed, "FAILED")
    with open_workspace(settings) as workspace:
        versions = {table: {key: one[1] for key, one in of.items()} for table, of in read_partitions(workspace).items()}
        for table in TABLES:
            assert shown(instance, table) == expected, table
            for key, record in recorded(instance, table).items():
                crawl, target = key.split("|")
                rows = workspace.lake.read(table, {"crawl": crawl, "target": target}, ["target"]).num_rows
                assert record.metadata["dagster/partition_row_count"].value == rows, (table, key)
                assert record.tags["dagster/data_version"] == versions[table][key], (table, key)


COUNTED = ("ASSET_MATERIALIZATION_PLANNED", "ASSET_MATERIALIZATION", "ASSET_CHECK_EVALUATION")


@dg.asset(deps=["page_text"], partitions_def=OWN_HOME.pairs, backfill_policy=dg.BackfillPolicy.multi_run(50))
def words(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    """An asset of somebody else, behind the tables."""
    return dg.MaterializeResult(metadata={"partitions": len(context.partition_keys)})


def test_a_partition_is_made_and_recorded(settings: Settings, instance: dg.DagsterInstance) -> None:
    result = materialize(instance, settings, KEYS[1])
    assert result.success, failure_of(result)
    states_equal_the_lake(instance, settings, [KEYS[1]])
    evaluations = result.get_asset_check_evaluations()
    assert all(one.passed for one in evaluations), evaluations
    partitioned = {one.check_name for one in evaluations if one.partition == KEYS[1]}
    assert partitioned == {"ledger_balances", "stored_files", "no_failed_partitions"}
    assert {"targets_found", "index_complete"} <= {one.check_name for one in evaluations if one.partition is None}
    # the tables are published, and that is recorded outside of the run
    assert instance.get_latest_materialization_event(dg.AssetKey("warehouse")) is not None


def test_a_range_writes_at_most_twenty_events_a_partition(settings: Settings, instance: dg.DagsterInstance) -> None:
    result = materialize(instance, settings, KEYS[0], KEYS[-1])
    assert result.success, failure_of(result)
    states_equal_the_lake(instance, settings, KEYS)
    own = [
        event
        for entry in instance.all_logs(result.run_id)
        if (event := entry.dagster_event) is not None and event.event_type_value in COUNTED
    ]
    events = Counter(str(event.partition or event.asset_check_evaluation_data.partition) for event in own)
    assert {events[key] for key in KEYS} == {15}, events


def test_runs_of_a_backfill_of_a_job_make_their_range(settings: Settings, instance: dg.DagsterInstance) -> None:
    # Dagster tags all of them with the first partition of the backfill too
    crawl, target = KEYS[0].split("|")
    tags = {"dagster/partition/crawl": crawl, "dagster/partition/target": target}
    result = materialize(instance, settings, KEYS[1], KEYS[2], tags=tags)
    assert result.success, failure_of(result)
    states_equal_the_lake(instance, settings, KEYS[1:3])


def test_a_bad_partition_fails_alone_and_is_mended(
    settings: Settings, instance: dg.DagsterInstance, bad_partitions: set[str]
) -> None:
    good = [key for key in KEYS if key != BAD]
    result = materialize(instance, settings, KEYS[0], KEYS[-1])
    assert not result.success
    states_equal_the_lake(instance, settings, good, [BAD])
    [step] = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    [row] = step.user_failure_data.metadata[FAILED].records
    assert row.data["partition"] == BAD and row.data["error"] == "CcPipelineError"
    assert f"1 of 6 partitions failed, the others are done. {BAD}: example.com is bad" in failure_of(result)
    [told] = [one for one in result.get_asset_check_evaluations() if one.partition == BAD]
    assert (told.check_name, told.passed, "Mend it" in told.description) == ("no_failed_partitions", False, True)
    # as "re-execute from failure" does: the whole range again
    bad_partitions.clear()
    assert materialize(instance, settings, KEYS[0], KEYS[-1]).success
    states_equal_the_lake(instance, settings, KEYS)


@pytest.mark.parametrize("last", [None, KEYS[-1]])
def test_what_is_behind_the_tables_is_made_in_the_same_run(
    settings: Settings, instance: dg.DagsterInstance, last: str | None
) -> None:
    result = materialize(instance, settings, KEYS[0], last, added=[words])
    assert result.success, failure_of(result)
    made = KEYS if last is not None else KEYS[:1]
    states_equal_the_lake(instance, settings, made)
    assert shown(instance, "words") == dict.fromkeys(made, "MATERIALIZED")


def test_what_is_behind_a_failed_partition_is_not_made(
    settings: Settings, instance: dg.DagsterInstance, bad_partitions: set[str]
) -> None:
    assert not materialize(instance, settings, KEYS[0], KEYS[-1], added=[words]).success
    states_equal_the_lake(instance, settings, [key for key in KEYS if key != BAD], [BAD])
    assert "MATERIALIZED" not in shown(instance, "words").values()


def test_a_listed_run_takes_partitions_in_any_order(
    settings: Settings, instance: dg.DagsterInstance, bad_partitions: set[str]
) -> None:
    keys = [KEYS[5], KEYS[0], BAD, f"{NEW}|unknown.example"]
    result = execute_listed(instance, settings, keys)
    assert not result.success
    assert "2 of 4 partitions failed" in failure_of(result)
    states_equal_the_lake(instance, settings, [KEYS[5], KEYS[0]])
    bad_partitions.clear()
    assert execute_listed(instance, settings, [BAD]).success
    states_equal_the_lake(instance, settings, [KEYS[5], KEYS[0], BAD])


def test_an_error_of_all_partitions_ends_the_run_and_keeps_what_is_recorded(
    settings: Settings, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    locate = stages.locate_captures

    def fill_the_disk(workspace: Workspace, crawl: str, slugs: Sequence[str], **given: object) -> StageReport:
        if crawl == NEW:
            raise PlaceFault("the disk is full", "Free some space")
        return locate(workspace, crawl, slugs, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(stages, "locate_captures", fill_the_disk)
    result = materialize(instance, settings, KEYS[0], KEYS[-1])
    assert "the disk is full" in failure_of(result)
    states_equal_the_lake(instance, settings, KEYS[:3], KEYS[3:])


def test_a_command_reports_what_it_made_without_a_run(settings: Settings, bad_partitions: set[str]) -> None:
    targets = [parse_target(target) for target in TARGETS]
    with open_workspace(settings) as workspace, StageRunner(workspace) as runner:
        with pytest.raises(PartitionsFailed, match=f"1 of 6 partitions failed, the others are done. {NEW}"):
            runner.extract(CRAWLS, targets)
        add_keys(runner.instance)
        states_equal_the_lake(runner.instance, settings, [key for key in KEYS if key != BAD])
        bad_partitions.clear()
        assert runner.extract(CRAWLS, targets) == [BAD]
        states_equal_the_lake(runner.instance, settings, KEYS)
        assert runner.extract(CRAWLS, targets) == []
        assert not runner.instance.get_runs()


def test_a_publication_is_judged_once_and_an_error_ends_the_command(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = [CheckResult("publication", "ok", ""), CheckResult("publication", "error", "it shows nothing")]
    monkeypatch.setattr(outputs, "judge_publication", lambda *_: verdicts.pop(0))
    with open_workspace(settings) as workspace, StageRunner(workspace) as runner:
        assert runner.publish() is not None and len(verdicts) == 1
        with pytest.raises(EnvironmentFault, match="it shows nothing"):
            runner.publish()


def test_what_a_killed_command_committed_is_recorded_by_the_next(settings: Settings) -> None:
    targets = [parse_target(target) for target in TARGETS]
    with open_workspace(settings) as workspace:
        assert list(stages.extract(workspace, [tuple(key.split("|")) for key in KEYS], TABLES))
        with StageRunner(workspace) as runner:
            assert runner.extract(CRAWLS, targets) == [], "nothing is made again"
            states_equal_the_lake(runner.instance, settings, KEYS)


def test_a_lost_database_comes_back_from_the_lake(settings: Settings, instance: dg.DagsterInstance) -> None:
    assert materialize(instance, settings, KEYS[0], KEYS[-1]).success
    with dg.DagsterInstance.ephemeral() as empty, open_workspace(settings) as workspace:
        add_keys(empty)
        # six tables of six partitions, two harvests of three assets, crawls and cc.duckdb
        assert restore_records(empty, workspace, OWN_HOME) >= 36 + 6
        states_equal_the_lake(empty, settings, KEYS)
        for table in TABLES:
            before, after = recorded(instance, table), recorded(empty, table)
            versions = [{key: one.tags["dagster/data_version"] for key, one in of.items()} for of in (before, after)]
            assert versions[0] == versions[1], table
        assert restore_records(empty, workspace, OWN_HOME) == 0
        assert report_unrecorded(empty, workspace, OWN_HOME, KEYS) == 0


def test_partitions_of_deleted_runs_stay_recorded(settings: Settings) -> None:
    keys = KEYS[1:3]
    with open_workspace(settings) as workspace, open_instance(settings) as instance:
        add_keys(instance)
        # an earlier command recorded another version, without a run
        earlier = materialization(dg.AssetKey("captures"), keys[0], {}, "earlier")
        instance.report_runless_asset_event(earlier)
        for key in keys:
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
            assert sorted(after) == keys
            for key in keys:
                assert after[key].tags["dagster/data_version"] == before[table][key].tags["dagster/data_version"]
            assert shown(instance, table, keys) == dict.fromkeys(keys, "MATERIALIZED")
        events = settings.dagster_home / "history" / "runs"
        assert not [path for path in events.glob("*.db") if len(path.stem) == 36]
        assert trim_history(instance, workspace, OWN_HOME, now=later).restored == 0


@pytest.mark.parametrize("days", [10, 200])
def test_failed_runs_are_kept_twice_as_long(settings: Settings, instance: dg.DagsterInstance, days: int) -> None:
    with open_workspace(settings) as workspace:
        instance.add_run(dg.DagsterRun("extract_targets", status=dg.DagsterRunStatus.FAILURE))
        now = datetime.now(UTC) + timedelta(days=days)
        assert trim_history(instance, workspace, OWN_HOME, now=now).runs == (days > 180)
