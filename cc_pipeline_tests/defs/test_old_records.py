"""What goes with old runs, what stays of them, and what is left alone: small instances, a question each."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.loader import LoadingContextForTest
from dagster._core.scheduler.instigation import InstigatorType, TickData, TickStatus
from dagster._core.storage.compute_log_manager import ComputeIOType

from cc_pipeline.defs.automation import history
from cc_pipeline.defs.automation.history import shortened
from cc_pipeline.defs.internals import instance_in, note, noted, origin_of, switch
from cc_pipeline.defs.internals_history import pointers
from cc_pipeline.defs.run_notes import keys_tags, note_tried, note_worker
from cc_pipeline.errors import UserInputError
from cc_pipeline.settings import load_settings
from cc_pipeline_tests.defs.forgetting import DAYS, forgotten
from cc_pipeline_tests.defs.graph import schedule
from cc_pipeline_tests.motoserver import CREDENTIALS, client_of, moto_server


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
        patch.setattr(history, "open_backfill_ids", lambda _: {"open"})
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
        switch(instance, schedule("history"), on=True)
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
