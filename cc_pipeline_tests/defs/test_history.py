"""History has an end, and nobody who asks what is there sees that it had one."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy
import yaml
from cc_pipeline.defs.internals import read_last_evaluation
from cc_pipeline.defs.launcher import Launcher
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.event_log.schema import SqlEventLogStorageMetadata
from dagster._core.storage.runs.schema import RunStorageSqlMetadata

from cc_pipeline.checks.scope import SEEN_LABEL
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs import history
from cc_pipeline.defs.history import needed_runs, trim_run_history
from cc_pipeline.defs.instance import open_instance_in
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline_tests.defs.forgetting import DAYS, QUIET, forgotten
from cc_pipeline_tests.defs.graph import cc_pipeline, definitions, execute_listed, schedule, settings_of
from cc_pipeline_tests.postgres import Postgres, postgres_server
from cc_pipeline_tests.world import NEW, Bucket, Killed

TEXTS = ["example.com", "example.org"]


def postgres_yaml(server: Postgres) -> str:
    named = {
        "scheme": "postgresql+psycopg2", "hostname": server.host, "port": server.port,
        "db_name": server.database, "username": server.user, "password": server.password,
    }  # fmt: skip
    return yaml.safe_dump({"telemetry": {"enabled": False}, "storage": {"postgres": {"postgres_db": named}}})


def make(settings: Settings) -> None:
    """A home with everything that commands make, a run that made it again, and one that failed."""
    targets = [parse_target(text) for text in TEXTS]
    with open_workspace(settings) as workspace, Launcher(workspace) as launcher:
        launcher.list_crawls()
        launcher.harvest([NEW])
        launcher.publish()
        assert len(list(launcher.extract([NEW], targets))) == 1
        launcher.publish()
        instance = launcher.instance
        assert execute_listed(instance, workspace, [f"{NEW}|example.com"]).success
        launcher.publish()
        assert not execute_listed(instance, workspace, [f"{NEW}|unheard.example"]).success


@pytest.fixture(scope="module")
def made(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    settings = settings_of(bucket[0], tmp_path_factory.mktemp("history") / "home")
    make(settings)
    return settings


@pytest.fixture
def settings(bucket: Bucket, made: Settings, tmp_path: Path) -> Settings:
    shutil.copytree(made.home, tmp_path / "home")
    return settings_of(bucket[0], tmp_path / "home")


@contextmanager
def opened(settings: Settings) -> Iterator[dg.DagsterInstance]:
    instance = open_instance_in(settings.dagster_home)
    try:
        yield instance
    finally:
        instance.dispose()


def asked(settings: Settings) -> list[str]:
    """The jobs that the command line starts where everything was made."""
    with open_workspace(settings) as workspace, Launcher(workspace) as launcher:
        runs = launcher.harvest_changed([NEW])
        runs += launcher.extract([NEW], [parse_target(text) for text in TEXTS])
        runs += filter(None, [launcher.list_new_crawls()])
        return [run.job for run in runs]


def what_is_there(instance: dg.DagsterInstance) -> dict[str, object]:
    """All that is asked of the past: records and their places, versions, times, tags; states in the UI; checks."""
    graph = definitions().get_repository_def().asset_graph
    anew = partial(LoadingContextForTest, instance)  # one serves one event loop
    resolver = CachingStaleStatusResolver(instance, graph, anew())
    found: dict[str, object] = {}
    for key in sorted(graph.materializable_asset_keys):
        asset, partitions = key.to_user_string(), graph.get(key).partitions_def
        newest = instance.get_latest_materialization_event(key)
        if newest is None:
            continue
        record = newest.asset_materialization
        assert record is not None
        found[asset] = (newest.timestamp, record.tags, record.metadata.get("dagster/row_count"))
        keys = sorted(instance.get_materialized_partitions(key)) if partitions is not None else []
        found[f"{asset}: places"] = instance.get_latest_storage_id_by_partition(
            key, dg.DagsterEventType.ASSET_MATERIALIZATION
        )
        for one in keys or [None]:
            found[f"{asset}: {one}"] = (resolver.get_status(key, one), resolver.get_current_data_version(key, one))
        if partitions is not None:
            found[f"{asset}: states"] = instance.get_status_by_partition(key, keys, partitions)
    for check in sorted(graph.asset_check_keys, key=str):
        ended = {AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED}
        last = instance.event_log_storage.get_asset_check_execution_history(check, limit=1, status=ended)
        found[f"{check}"] = [
            (one.status, one.event and one.event.timestamp, asyncio.run(one.targets_latest_materialization(anew())))
            for one in last
        ]
        found[f"{check}: note"] = read_last_evaluation(instance, check, SEEN_LABEL)
    return found


def newest_runs(instance: dg.DagsterInstance) -> set[str]:
    """The runs of the newest records, asset by asset and partition by partition; a command publishes outside of any."""
    found: set[str] = set()
    for key in instance.get_asset_keys():
        seen: set[str | None] = set()
        for record in instance.fetch_materializations(key, limit=1_000).records:
            if record.partition_key not in seen:
                found.add(record.run_id)
            seen.add(record.partition_key)
    return found - {""}


def test_runs_go_and_nothing_else_changes(settings: Settings) -> None:
    storage = settings.dagster_home / "history" / "runs"
    with opened(settings) as instance:
        before = what_is_there(instance)
        assert any("note" in name and value for name, value in before.items())
        runs = {run.run_id for run in instance.get_runs()}
        newest = newest_runs(instance)
        gone = runs - newest
        assert gone and newest < runs
        for run_id in runs:
            # as the UI's runs leave one
            (settings.dagster_home / "storage" / run_id / "compute_logs").mkdir(parents=True)
        assert needed_runs(instance) == newest
        report = forgotten(instance)
        assert (report.runs, report.kept_runs, report.is_complete) == (len(gone), len(newest), True)
        assert instance.get_runs_count() == len(newest) + 1  # and the one that did it
        assert what_is_there(instance) == before
        for run_id in runs:
            left = (storage / f"{run_id}.db").exists(), (settings.dagster_home / "storage" / run_id).exists()
            assert left == (run_id in newest, run_id in newest)
        assert newest_runs(instance) == newest
    assert asked(settings) == []


@pytest.mark.process
def test_what_does_not_change_takes_the_same_space(settings: Settings) -> None:
    def rows() -> int:
        with sqlite3.connect(settings.dagster_home / "history" / "runs" / "index.db") as index:
            found: int = index.execute("SELECT count(*) FROM event_logs WHERE asset_key IS NOT NULL").fetchone()[0]
            return found

    with opened(settings) as instance:
        forgotten(instance)
        first, count = rows(), instance.get_runs_count()
        for days in (200, 300):
            assert forgotten(instance, days).runs == 1, "the one that deleted the others"
            assert (rows(), instance.get_runs_count()) == (first, count)
        # made again: the run that made it before has one partition less that is the newest
        assert execute_listed(instance, settings, [f"{NEW}|example.com"]).success
        assert forgotten(instance, 400).runs > 1
        assert instance.get_runs_count() <= count + 1


def test_partitions_that_are_none_any_more_keep_no_run(settings: Settings) -> None:
    with opened(settings) as instance:
        made = newest_runs(instance)
        for text in TEXTS:
            instance.delete_dynamic_partition("target", text)
        assert needed_runs(instance) < made


def test_the_newest_record_of_every_kind_of_partition_keeps_its_run() -> None:
    graph = definitions().get_repository_def().asset_graph
    with dg.DagsterInstance.ephemeral() as instance:
        for name in ("crawl", "target", "source_file"):
            instance.add_dynamic_partitions(name, [f"a {name}"])
        runs: dict[str, str] = {}
        for asset in sorted(graph.materializable_asset_keys):
            partitions = graph.get(asset).partitions_def
            keys = [None] if partitions is None else partitions.get_partition_keys(dynamic_partitions_store=instance)
            runs[asset.to_user_string()] = run_that_records(instance, asset, keys[0])
        needed = needed_runs(instance)
        assert len(runs) > 10
        assert {asset for asset, run_id in runs.items() if run_id not in needed} == set()


def run_that_records(instance: dg.DagsterInstance, asset: dg.AssetKey, partition: str | None) -> str:
    @dg.op
    def records(context: dg.OpExecutionContext) -> None:
        context.log_event(dg.AssetMaterialization(asset, partition=partition))

    @dg.job
    def recording() -> None:
        records()

    return recording.execute_in_process(instance=instance, run_config=QUIET).run_id


def move_to_postgresql(settings: Settings, server: Postgres) -> None:
    """Puts the history of a home into a database: to make the home there takes a minute of opening connections."""
    history_of = settings.dagster_home / "history"
    (settings.dagster_home / "dagster.yaml").write_text(postgres_yaml(server), "utf-8")
    with opened(settings) as instance, instance.event_log_storage.index_connection() as there:
        for file, tables in (("runs.db", RunStorageSqlMetadata), ("runs/index.db", SqlEventLogStorageMetadata)):
            with sqlalchemy.create_engine(f"sqlite:///{history_of / file}").connect() as here:
                for table in tables.sorted_tables:
                    rows = [dict(row._mapping) for row in here.execute(table.select())]
                    if rows and table.name != "secondary_indexes":
                        there.execute(table.insert(), rows)
                        sequence = f"pg_get_serial_sequence('{table.name}', 'id')"
                        there.exec_driver_sql(f"SELECT setval({sequence}, max(id)) FROM {table.name}")
    shutil.rmtree(history_of)


@pytest.mark.process
@pytest.mark.xdist_group("dagster_process")
def test_it_is_the_same_on_postgresql(settings: Settings) -> None:
    with postgres_server() as server:
        move_to_postgresql(settings, server)
        with opened(settings) as instance:
            before = what_is_there(instance)
            count, newest = instance.get_runs_count(), newest_runs(instance)
            assert count >= 5
            report = forgotten(instance)
            assert (report.runs, report.is_complete) == (count - len(newest), True)
            assert what_is_there(instance) == before
            with instance.event_log_storage.index_connection() as index:
                runs = {row[0] for row in index.exec_driver_sql("SELECT DISTINCT run_id FROM event_logs")}
                there = {run.run_id for run in instance.get_runs()}
                assert runs - there <= {""}, "nothing is left of the others"
                assert index.exec_driver_sql("SELECT count(*) FROM cc_pipeline_notes").scalar()
        assert asked(settings) == []


@pytest.mark.matrix
@pytest.mark.parametrize("step", ["delete_files", "delete_notes_of", "delete_orphaned_notes", "write_notes"])
def test_it_may_be_killed_anywhere(settings: Settings, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain: Callable[..., object] = getattr(history, step)

    def dies(*given: object, **named: object) -> object:
        plain(*given, **named)
        raise Killed

    with opened(settings) as instance:
        before = what_is_there(instance)
        with monkeypatch.context() as patch:
            patch.setattr(history, step, dies)
            with pytest.raises(Killed):
                trim_run_history(instance, DAYS, now=datetime.now(UTC) + timedelta(days=100))
        assert what_is_there(instance) == before
        assert forgotten(instance).is_complete
        assert what_is_there(instance) == before


def test_young_runs_stay_and_failed_ones_twice_as_long(settings: Settings) -> None:
    with opened(settings) as instance:
        runs, newest = {run.run_id for run in instance.get_runs()}, newest_runs(instance)
        failed = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
        assert len(failed) == 1
        assert forgotten(instance, DAYS - 1).runs == 0
        # the run of this look is no older than the others
        assert forgotten(instance, DAYS + 1).runs == len(runs - newest) - 1 + 1
        assert instance.get_run_by_id(failed[0].run_id) is not None
        assert forgotten(instance, 2 * DAYS + 1).runs == 1 + 1
        assert instance.get_run_by_id(failed[0].run_id) is None


def test_time_ends_and_the_next_one_goes_on(settings: Settings) -> None:
    with opened(settings) as instance:
        report = forgotten(instance, seconds=0)
        assert (report.runs, report.is_complete) == (0, False)
        assert tick(instance) == "asks"
        assert forgotten(instance, 0).is_complete
        assert tick(instance) == "old runs were deleted less than a day ago"
        instance.add_run(dg.DagsterRun("trim_history", status=dg.DagsterRunStatus.STARTED))
        assert tick(instance) == "another run is deleting old runs now"


def tick(instance: dg.DagsterInstance) -> str:
    said = schedule("history").evaluate_tick(
        dg.build_schedule_context(instance=instance, resources={"workspace": None})
    )
    return said.skip_message or "asks"


def test_ids_of_events_are_not_given_again(settings: Settings) -> None:
    with opened(settings) as instance:
        highest = instance.event_log_storage.get_maximum_record_id()
        assert highest is not None
        forgotten(instance)
        instance.report_runless_asset_event(dg.AssetMaterialization("crawls"))
        newest = instance.fetch_materializations(dg.AssetKey("crawls"), limit=1).records[0]
        assert newest.storage_id > highest


def test_a_command_keeps_a_home_small_where_no_schedule_does(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = iter([False, True])
    with monkeypatch.context() as patched:
        patched.setattr(history, "is_trimmed", lambda _: next(left))
        status, _, said = cc_pipeline(monkeypatch, capsys, "automation", "maintenance", "--home", str(settings.home))
    assert (status, "maintenance" in said) == (0, True), said
    with opened(settings) as instance:
        newest = [run.job_name for run in instance.get_runs(limit=3)]
        assert newest == ["trim_history", "trim_history", "maintenance"]
        assert history.is_trimmed(instance)
    empty = settings.home / "none"
    status, said, _ = cc_pipeline(monkeypatch, capsys, "automation", "maintenance", "--home", str(empty))
    assert (status, "no home yet" in said, empty.exists()) == (0, True, False)
