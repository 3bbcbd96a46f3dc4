"""What goes with old runs, what stays of them, and what is left alone: small instances, a question each."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml
from cc_pipeline.defs.notes import list_note_names, read_notes, write_notes
from cc_pipeline.defs.run_notes import note_tried, note_worker
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest

from cc_pipeline.defs import history
from cc_pipeline.defs.instance import open_instance_in
from cc_pipeline.errors import UserInputError
from cc_pipeline.settings import load_settings
from cc_pipeline_tests.defs.forgetting import forgotten
from cc_pipeline_tests.motoserver import CREDENTIALS, client_of, moto_server


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n", "utf-8")
    with open_instance_in(tmp_path) as instance:
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


@pytest.mark.process
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
    for days in (100, 200):
        assert forgotten(instance, days).is_complete
        assert status(instance) == "FRESH"
        assert records(instance) == 2  # the newest, and that which below was made of
    dg.materialize([below, table, above], selection=[below], partition_key="a", instance=instance)
    assert forgotten(instance, 300).runs
    assert records(instance) == 1
    assert status(instance) == "FRESH"


def test_notes_of_runs_that_are_gone_go(empty: dg.DagsterInstance) -> None:
    instance = empty
    old = instance.add_run(dg.DagsterRun("any", status=dg.DagsterRunStatus.SUCCESS))
    young = instance.add_run(dg.DagsterRun("any", status=dg.DagsterRunStatus.STARTED))
    write_notes(instance, {"another": "stays"})
    for run in (old, young):
        note_tried(instance, run.run_id, [])
        note_worker(instance, run.run_id)

    def names() -> list[str]:
        return [name.rpartition("/")[0] or name for name in sorted(list_note_names(instance, ""))]

    tried, worker = "cc_pipeline/tried", "cc_pipeline/worker"
    assert names() == ["another", tried, tried, worker, worker]
    forgotten(instance)
    assert names() == ["another", "cc_pipeline", tried, worker], "and where it notes what it did"
    assert read_notes(instance, [f"{tried}/{young.run_id}"])


def test_what_ticks_logged_goes(empty: dg.DagsterInstance, tmp_path: Path) -> None:
    folder = tmp_path / "storage" / "__repository__" / "history"
    folder.mkdir(parents=True)
    now = time.time()
    for age in (100, 20, 1):
        (folder / f"{age}.err").write_text("said")
        os.utime(folder / f"{age}.err", (now - age * 86_400,) * 2)
    forgotten(empty, 0)
    assert [path.name for path in folder.iterdir()] == ["1.err"]
    forgotten(empty, 5)
    assert list(folder.iterdir()) == []


def test_what_runs_said_goes_from_s3_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with moto_server("logs") as endpoint:
        config = {"bucket": "logs", "prefix": "here", "endpoint_url": endpoint, "region": "us-east-1"}
        manager = {"module": "dagster_aws.s3.compute_log_manager", "class": "S3ComputeLogManager", "config": config}
        chosen = {"telemetry": {"enabled": False}, "compute_logs": manager}
        (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(chosen), "utf-8")
        with open_instance_in(tmp_path) as instance:
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


def test_a_week_of_failures_has_to_be_kept() -> None:
    assert load_settings({"CC_PIPELINE_HISTORY_DAYS": "8"}, source="/nowhere").history_days == 8
    with pytest.raises(UserInputError, match="HISTORY_DAYS must be 8 or more"):
        load_settings({"CC_PIPELINE_HISTORY_DAYS": "7"}, source="/nowhere")
