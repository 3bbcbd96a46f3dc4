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
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.loader import LoadingContextForTest
from dagster._core.scheduler.instigation import InstigatorType, TickData, TickStatus
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.compute_log_manager import ComputeIOType
from dagster._core.storage.event_log.schema import SqlEventLogStorageMetadata
from dagster._core.storage.runs.schema import RunStorageSqlMetadata

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs import internals_history, launch
from cc_pipeline.defs.automation import history
from cc_pipeline.defs.automation.flight import EXTRACTED
from cc_pipeline.defs.automation.history import Forgotten, forget, shortened
from cc_pipeline.defs.internals import (
    OpenBackfill,
    instance_in,
    last_evaluation,
    note,
    noted,
    origin_of,
    recorded_versions,
    switch,
)
from cc_pipeline.defs.internals_history import pointers
from cc_pipeline.defs.launch import Launcher
from cc_pipeline.defs.run_notes import keys_tags, note_tried, note_worker
from cc_pipeline.errors import UserInputError
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline_tests.defs.graph import cc_pipeline, definitions, execute, settings_of
from cc_pipeline_tests.motoserver import CREDENTIALS, client_of, moto_server
from cc_pipeline_tests.postgres import Postgres, postgres_server
from cc_pipeline_tests.world import NEW, Bucket, Killed

TEXTS = ["example.com", "example.org"]
DAYS = 30
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


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
        again = keys_tags(instance, [f"{NEW}|example.com"])
        assert execute(instance, workspace, "extract_domain", tags=again).success
        launcher.publish()
        bad = keys_tags(instance, [f"{NEW}|unheard.example"])
        assert not execute(instance, workspace, "extract_domain", tags=bad).success


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
    instance = instance_in(settings.dagster_home)
    try:
        yield instance
    finally:
        instance.dispose()


def forgotten(instance: dg.DagsterInstance, days_later: float = 100, **options: float) -> Forgotten:
    """What :func:`forget` says in a run, so many days from now."""
    said: list[Forgotten] = []

    @dg.op
    def forgets(context: dg.OpExecutionContext) -> None:
        said.append(forget(context.instance, DAYS, now=datetime.now(UTC) + timedelta(days=days_later), **options))

    @dg.job
    def forgetting() -> None:
        forgets()

    forgetting.execute_in_process(instance=instance, run_config=QUIET)
    return said[0]


def asked(settings: Settings) -> list[str]:
    """The jobs that the command line starts where everything was made."""
    with open_workspace(settings) as workspace, Launcher(workspace) as launcher:
        runs = launcher.harvest_what_is_new([NEW])
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
        found[f"{asset}: versions"] = recorded_versions(instance, asset, keys)
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
        found[f"{check}: note"] = last_evaluation(instance, check, "looked at")
    return found


def test_runs_go_and_nothing_else_changes(settings: Settings) -> None:
    storage = settings.dagster_home / "history" / "runs"
    with opened(settings) as instance:
        before = what_is_there(instance)
        assert any("note" in name and value for name, value in before.items())
        runs = [run.run_id for run in instance.get_runs()]
        logs = settings.dagster_home / "storage" / runs[0] / "compute_logs"
        logs.mkdir(parents=True)  # as the UI's runs leave one
        report = forgotten(instance)
        assert report.done
        assert report.runs == len(runs)
        assert instance.get_runs_count() == 1  # the one that did it
        assert what_is_there(instance) == before
        assert not any((storage / f"{run_id}.db").exists() for run_id in runs)
        assert not logs.exists()
        for asset in EXTRACTED:
            # all but the two partitions' records is gone
            records = instance.fetch_materializations(dg.AssetKey(asset), limit=100).records
            assert sorted(str(one.partition_key) for one in records) == [f"{NEW}|{text}" for text in TEXTS]
    assert asked(settings) == []


def test_what_does_not_change_takes_the_same_space(settings: Settings) -> None:
    def rows() -> dict[str, int]:
        with sqlite3.connect(settings.dagster_home / "history" / "runs" / "index.db") as index:
            tables = ("asset_event_tags", "asset_check_executions")
            kept = {table: index.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}
            own = "SELECT count(*), sum(length(event)) FROM event_logs WHERE run_id = ''"
            return kept | dict(zip(("events", "bytes"), index.execute(own).fetchone(), strict=True))

    with opened(settings) as instance:
        forgotten(instance)
        first = rows()
        for days in (200, 300):
            assert forgotten(instance, days).kept == 0
            assert rows() == first
        # made again: what stood there before goes
        assert execute(instance, settings, "extract_domain", tags=keys_tags(instance, [f"{NEW}|example.com"])).success
        assert forgotten(instance, 400).kept == len(EXTRACTED)
        assert rows()["events"] == first["events"]


def test_a_picture_that_went_with_its_run_is_drawn_by_the_next_harvest(settings: Settings) -> None:
    def pictures(instance: dg.DagsterInstance) -> set[str]:
        [newest] = instance.fetch_materializations(dg.AssetKey("row_groups"), limit=1).records
        assert newest.asset_materialization is not None
        return {"key ranges"} & {*newest.asset_materialization.metadata}

    with opened(settings) as instance:
        assert pictures(instance)
        forgotten(instance)
        assert not pictures(instance)
        assert execute(instance, settings, "harvest_crawl", key=NEW).success
        assert pictures(instance)


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
def test_it_is_the_same_on_postgresql(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internals_history, "_WORTH_IT", 0)
    with postgres_server() as server:
        move_to_postgresql(settings, server)
        with opened(settings) as instance:
            before = what_is_there(instance)
            count = instance.get_runs_count()
            assert count > 5
            report = forgotten(instance)
            assert (report.runs, report.done, report.freed > 0) == (count, True, True)
            assert what_is_there(instance) == before
            assert forgotten(instance, 200).kept == 0
            with instance.event_log_storage.index_connection() as index:
                own = "SELECT count(*) FROM event_logs WHERE run_id <> '' AND dagster_event_type LIKE 'ASSET%%'"
                assert index.exec_driver_sql(own).scalar() == 0
        assert asked(settings) == []


def test_the_disk_gets_its_space_back(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    index = settings.dagster_home / "history" / "runs" / "index.db"
    with opened(settings) as instance:
        for worth, smaller in ((1 << 30, False), (0, True)):
            monkeypatch.setattr(internals_history, "_WORTH_IT", worth)
            before = index.stat().st_size
            report = forgotten(instance)
            assert (report.freed > 0, index.stat().st_size < before) == (smaller, smaller)


#: Where it may be killed, and after how many calls.
_STEPS = {"take_out_what_counts": 0, "delete_run": 2, "delete_superseded": 0, "delete_strays": 0, "note": 0}


@pytest.mark.parametrize(
    ("step", "calls"),
    [
        pytest.param(*one, marks=[] if one[0] == "delete_run" else pytest.mark.matrix, id=one[0])
        for one in _STEPS.items()
    ],
)
def test_it_may_be_killed_anywhere(settings: Settings, step: str, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plain: Callable[..., object] = getattr(history, step)
    made: list[object] = []

    def dies(*given: object, **named: object) -> object:
        done = plain(*given, **named)
        made.append(done)
        if len(made) > calls:
            raise Killed
        return done

    with opened(settings) as instance:
        before = what_is_there(instance)
        with monkeypatch.context() as patch:
            patch.setattr(history, step, dies)
            with pytest.raises(Killed):
                forget(instance, DAYS, now=datetime.now(UTC) + timedelta(days=100))
        assert what_is_there(instance) == before
        assert forgotten(instance).done
        assert what_is_there(instance) == before


def test_a_kill_between_the_rows_of_a_run_loses_nothing(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(settings) as instance:
        before = what_is_there(instance)
        with monkeypatch.context() as patch:
            patch.setattr(type(instance.run_storage), "delete_run", lambda *_: (_ for _ in ()).throw(Killed()))
            with pytest.raises(Killed):
                forget(instance, DAYS, now=datetime.now(UTC) + timedelta(days=100))
        assert what_is_there(instance) == before
        assert forgotten(instance).done
        assert instance.get_runs_count() == 1


def test_young_runs_stay_and_failed_ones_twice_as_long(settings: Settings) -> None:
    with opened(settings) as instance:
        count = instance.get_runs_count()
        failed = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
        assert len(failed) == 1
        assert forgotten(instance, DAYS - 1).runs == 0
        # the run of this look is no older than the others
        assert forgotten(instance, DAYS + 1).runs == count - 1 + 1
        assert instance.get_run_by_id(failed[0].run_id) is not None
        assert forgotten(instance, 2 * DAYS + 1).runs == 1 + 1
        assert instance.get_run_by_id(failed[0].run_id) is None


def test_time_ends_and_the_next_one_goes_on(settings: Settings) -> None:
    with opened(settings) as instance:
        report = forgotten(instance, seconds=0)
        assert (report.runs, report.done) == (0, False)
        assert tick(instance) == "asks"
        assert forgotten(instance, 0).done
        assert tick(instance) == "old runs were deleted less than a day ago"
        instance.add_run(dg.DagsterRun("trim_history", status=dg.DagsterRunStatus.STARTED))
        assert tick(instance) == "old runs are being deleted"


def tick(instance: dg.DagsterInstance) -> str:
    said = history.history.evaluate_tick(dg.build_schedule_context(instance=instance))
    return said.skip_message or "asks"


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n", "utf-8")
    with instance_in(tmp_path) as instance:
        yield instance


def test_runs_under_way_and_those_of_open_backfills_stay(
    empty: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = empty
    for status in (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.NOT_STARTED):
        instance.add_run(dg.DagsterRun("any", status=status))
    of_backfill = [
        instance.add_run(dg.DagsterRun("any", status=dg.DagsterRunStatus.SUCCESS, tags={"dagster/backfill": "open"}))
        for _ in range(12)
    ]
    instance.add_run(dg.DagsterRun("any", status=dg.DagsterRunStatus.SUCCESS))
    with monkeypatch.context() as patch:
        patch.setattr(history, "open_backfills", lambda _: [OpenBackfill("open", {})])
        assert forgotten(instance).runs == 1
    assert instance.get_runs_count() == 3 + 12 + 1
    assert forgotten(instance).runs == len(of_backfill) + 1


def test_backfills_that_ended_go(empty: dg.DagsterInstance) -> None:
    for status in (BulkActionStatus.COMPLETED_SUCCESS, BulkActionStatus.FAILED, BulkActionStatus.REQUESTED):
        asked_at = datetime.now(UTC).timestamp()
        empty.add_backfill(
            PartitionBackfill(
                status.value, status, from_failure=False, tags={"a": "b"}, backfill_timestamp=asked_at,
                partition_names=["C|a"], partition_set_origin=None, last_submitted_partition_name=None,
                reexecution_steps=None,
            )
        )  # fmt: skip
    assert forgotten(empty, DAYS - 1).backfills == 0
    assert forgotten(empty, DAYS + 1).backfills == 2
    assert [one.backfill_id for one in empty.get_backfills()] == ["REQUESTED"]


def test_what_something_was_made_of_stays_beside_a_newer_record(empty: dg.DagsterInstance) -> None:
    """Dagster compares the version of an input then and now; where the first is gone, it calls the input changed."""

    @dg.asset(code_version="1")
    def above() -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(data_version=dg.DataVersion("same"))

    parts = dg.StaticPartitionsDefinition(["a", "b"])

    @dg.asset(code_version="1", partitions_def=parts)
    def table() -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(data_version=dg.DataVersion("same"))

    @dg.asset(code_version="1", partitions_def=parts, deps=[table, above])
    def below() -> None: ...

    graph = dg.Definitions(assets=[above, table, below]).get_repository_def().asset_graph
    below_a = dg.AssetKey("below"), "a"

    def status(instance: dg.DagsterInstance) -> str:
        return CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance)).get_status(*below_a).value

    def records(instance: dg.DagsterInstance) -> int:
        return len(instance.fetch_materializations(dg.AssetKey("table"), limit=100).records)

    instance = empty
    for _ in range(2):
        dg.materialize([above], instance=instance)
        dg.materialize([table], partition_key="a", instance=instance)
    dg.materialize([below, table, above], selection=[below], partition_key="a", instance=instance)
    for _ in range(3):
        dg.materialize([table], partition_key="a", instance=instance)
        dg.materialize([above], instance=instance)
    assert status(instance) == "FRESH"
    assert set(pointers(instance)) == {'["above"]', '["table"]'}
    for days in (100, 200):
        assert forgotten(instance, days).done
        assert status(instance) == "FRESH"
        assert records(instance) == 2  # the newest, and that which below was made of
    dg.materialize([below, table, above], selection=[below], partition_key="a", instance=instance)
    assert forgotten(instance, 300).superseded
    assert records(instance) == 1
    assert status(instance) == "FRESH"


def test_a_failure_that_is_forgotten_is_shown_no_more(empty: dg.DagsterInstance) -> None:
    keys = dg.DynamicPartitionsDefinition(name="keys")

    @dg.asset(partitions_def=keys)
    def table(context: dg.AssetExecutionContext) -> None:
        if context.partition_key == "bad":
            raise dg.Failure("bad")

    instance = empty
    instance.add_dynamic_partitions("keys", ["good", "bad"])
    for key in ("good", "bad"):
        dg.materialize([table], partition_key=key, instance=instance, raise_on_error=False)

    def states() -> dict[str, str]:
        found = instance.get_status_by_partition(dg.AssetKey("table"), ["good", "bad"], keys) or {}
        return {key: state.value for key, state in found.items() if state is not None}

    assert states() == {"good": "MATERIALIZED", "bad": "FAILED"}
    forgotten(instance)
    assert states() == {"good": "MATERIALIZED"}


def test_ids_of_events_are_not_given_again(settings: Settings) -> None:
    with opened(settings) as instance:
        highest = instance.event_log_storage.get_maximum_record_id()
        assert highest is not None
        forgotten(instance)
        instance.report_runless_asset_event(dg.AssetMaterialization("crawls"))
        newest = instance.fetch_materializations(dg.AssetKey("crawls"), limit=1).records[0]
        assert newest.storage_id > highest


def test_notes_of_runs_that_are_gone_go_and_lists_that_may_be_needed_stay(empty: dg.DagsterInstance) -> None:
    instance = empty
    long = [f"C|{number}-{'x' * 60}" for number in range(20)]
    old = instance.add_run(dg.DagsterRun("any", status=dg.DagsterRunStatus.SUCCESS, tags=keys_tags(instance, long)))
    young = instance.add_run(
        dg.DagsterRun("any", status=dg.DagsterRunStatus.STARTED, tags=keys_tags(instance, long[1:]))
    )
    keys_tags(instance, long[2:])  # no run has it yet
    note(instance, {"another": "stays"})
    for run in (old, young):
        note_tried(instance, run.run_id, [])
        note_worker(instance, run.run_id)

    def names() -> list[str]:
        with instance.run_storage.connect() as connection:
            rows = connection.exec_driver_sql("SELECT key FROM kvs ORDER BY key").fetchall()
        return [row[0].rpartition("/")[0] or row[0] for row in rows]

    lists, tried, worker = "cc_pipeline/partitions", "cc_pipeline/tried", "cc_pipeline/worker"
    assert names() == ["another", *[lists] * 3, tried, tried, worker, worker]
    forgotten(instance)
    own = "cc_pipeline"  # where it notes what it did
    assert names() == ["another", own, *[lists] * 3, tried, worker]
    forgotten(instance, 100.02)
    assert names() == ["another", own, *[lists] * 3, tried, worker]
    forgotten(instance, 100.1)
    assert names() == ["another", own, lists, tried, worker]
    assert noted(instance, [f"{tried}/{young.run_id}"])


def test_ticks_go_and_what_they_logged_goes_before(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\ncompute_logs: {module: "
        "dagster._core.storage.local_compute_log_manager, class: LocalComputeLogManager, "
        f"config: {{base_dir: {tmp_path / 'logs'}}}}}\n", "utf-8")  # fmt: skip
    with instance_in(tmp_path) as instance:
        switch(instance, history.history, on=True)
        origin = origin_of("history")
        which = origin.get_id(), origin.get_selector().get_id()
        now = datetime.now(UTC)
        for age in (100, 20, 1):
            key = ["__repository__", "history", str(age)]
            with instance.compute_log_manager.open_log_stream(key, ComputeIOType.STDERR) as stream:
                assert stream is not None
                stream.write("said")
            at = (now - timedelta(days=age)).timestamp()
            instance.create_tick(
                TickData(which[0], "history", InstigatorType.SCHEDULE, TickStatus.SUCCESS, at, run_ids=[],
                         selector_id=which[1], log_key=key)
            )  # fmt: skip

        def logs() -> list[str]:
            return sorted(path.stem for path in (tmp_path / "logs" / "__repository__").rglob("*.err"))

        assert logs() == ["1", "100", "20"]
        forgotten(instance, 0)
        assert logs() == ["1"]
        assert len(instance.get_ticks(*which)) == 2
        forgotten(instance, 5)
        assert logs() == []
        assert len(instance.get_ticks(*which)) == 2


def test_a_command_keeps_a_home_small_where_no_schedule_does(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = iter([False, True])
    monkeypatch.setattr(launch, "is_trimmed", lambda _: next(left))
    status, _, said = cc_pipeline(monkeypatch, capsys, "upkeep", "--home", str(settings.home))
    assert (status, "upkeep" in said) == (0, True), said
    with opened(settings) as instance:
        newest = [run.job_name for run in instance.get_runs(limit=3)]
        assert newest == ["trim_history", "trim_history", "upkeep"]
        assert history.is_trimmed(instance)
    empty = settings.home / "none"
    status, said, _ = cc_pipeline(monkeypatch, capsys, "upkeep", "--home", str(empty))
    assert (status, "no home yet" in said, empty.exists()) == (0, True, False)


def test_what_runs_said_goes_from_s3_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with moto_server("logs") as endpoint:
        config = {"bucket": "logs", "prefix": "here", "endpoint_url": endpoint, "region": "us-east-1"}
        manager = {"module": "dagster_aws.s3.compute_log_manager", "class": "S3ComputeLogManager", "config": config}
        chosen = {"telemetry": {"enabled": False}, "compute_logs": manager}
        (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(chosen), "utf-8")
        with instance_in(tmp_path) as instance:
            old, young = (
                instance.add_run(dg.DagsterRun("any", status=status)).run_id
                for status in (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.STARTED)
            )
            for run_id in (old, young):
                file = f"here/storage/{run_id}/compute_logs/step.err"
                client_of(endpoint).put_object(Bucket="logs", Key=file, Body=b"said")
            assert forgotten(instance).runs == 1
        left = client_of(endpoint).list_objects_v2(Bucket="logs", Prefix="here/storage/").get("Contents", [])
        names = [one["Key"] for one in left]
        assert f"here/storage/{young}/compute_logs/step.err" in names
        assert not [name for name in names if old in name]


def test_metadata_that_stays_is_short() -> None:
    before: dict[str, dg.MetadataValue] = {
        "dagster/row_count": dg.MetadataValue.int(0),
        "fetched": dg.MetadataValue.int(3),
        "missing": dg.MetadataValue.int(0),
        "not here": dg.MetadataValue.text("0 %"),
        "seconds": dg.MetadataValue.float(0.5),
        "group seconds": dg.MetadataValue.float(9.5),
        "words": dg.MetadataValue.text("x" * 500),
        "preview": dg.MetadataValue.md("a table"),
        "notes": dg.MetadataValue.json(["one"]),
    }
    assert set(shortened(before)) == {"dagster/row_count", "fetched", "not here", "seconds"}


def test_a_week_of_failures_has_to_be_kept() -> None:
    assert load_settings({"CC_PIPELINE_HISTORY_DAYS": "8"}, source="/nowhere").history_days == 8
    with pytest.raises(UserInputError, match="HISTORY_DAYS must be 8 or more"):
        load_settings({"CC_PIPELINE_HISTORY_DAYS": "7"}, source="/nowhere")
