"""What is used of Dagster behind its public interface is still there; a failure here names what an upgrade moved."""

from pathlib import Path

import dagster as dg
import pytest

from cc_pipeline.definitions import defs
from cc_pipeline.defs import internals
from cc_pipeline.defs.internals import attach_metadata, definitions_in, end_run, instance_in

_KEYS = ["a", "b"]
_MOVED = "an upgrade of Dagster moved this; see cc_pipeline/defs/internals.py"


def test_metadata_of_a_partition_goes_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(_KEYS), backfill_policy=dg.BackfillPolicy.single_run())
    def table(context: dg.AssetExecutionContext) -> None:
        for key in context.partition_keys:
            attach_metadata(context, {"rows": dg.MetadataValue.text(key)}, "table", key)

    def slow(*_: object, **__: object) -> None:
        pytest.fail(f"_step_execution_context._metadata_accumulator.with_additional_asset_metadata: {_MOVED}")

    monkeypatch.setattr(dg.AssetExecutionContext, "add_asset_metadata", slow)
    result = dg.materialize(
        [table],
        tags={"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "b"},
        instance=dg.DagsterInstance.ephemeral(),
    )
    found = {
        event.step_materialization_data.materialization.partition: event.step_materialization_data.materialization
        for event in result.get_asset_materialization_events()
    }
    rows = {key: one.metadata.get("rows") for key, one in found.items()}
    assert rows == {key: dg.MetadataValue.text(key) for key in _KEYS}, f"metadata is not attached: {_MOVED}"


def test_a_command_loads_the_same_jobs_as_the_ui() -> None:
    assert hasattr(dg, "ComponentTree"), f"ComponentTree: {_MOVED}"
    ours = definitions_in(Path(internals.__file__).parent).get_repository_def()
    shown = defs().get_repository_def()
    jobs = {job.name: job.get_job_snapshot_id() for job in ours.get_all_jobs()}
    assert jobs == {job.name: job.get_job_snapshot_id() for job in shown.get_all_jobs()}
    assert ours.asset_graph.get_all_asset_keys() == shown.asset_graph.get_all_asset_keys()


def test_an_instance_opens_from_its_folder_and_the_environment_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    assert hasattr(dg.DagsterInstance, "from_config"), f"DagsterInstance.from_config: {_MOVED}"
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n", "utf-8")
    instance = instance_in(tmp_path)
    try:
        assert instance.is_persistent
        assert Path(instance.root_directory) == tmp_path, f"DagsterInstance.from_config: {_MOVED}"
    finally:
        instance.dispose()


def test_a_run_whose_process_is_gone_can_be_ended() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        for owner, name in (
            (instance, "report_run_failed"),
            (instance.event_log_storage, "free_concurrency_slots_for_run"),
        ):
            assert hasattr(owner, name), f"{name}: {_MOVED}"
        run = instance.add_run(dg.DagsterRun(job_name="any", status=dg.DagsterRunStatus.STARTED))
        end_run(instance, run, "its process was killed")
        ended = instance.get_run_by_id(run.run_id)
        assert ended is not None
        assert ended.status is dg.DagsterRunStatus.FAILURE, f"report_run_failed: {_MOVED}"


#: Names that Dagster does not mark public, and where they are used.
_UNMARKED = [
    (dg.DagsterInstance, "get_runs", "instance.py, schedules.py"),
    (dg.DagsterInstance, "get_materialized_partitions", "schedules.py"),
    (dg.DagsterInstance, "dispose", "launch.py"),
    (dg.Definitions, "resolve_job_def", "launch.py"),
]


@pytest.mark.parametrize(("owner", "name", "used_in"), _UNMARKED, ids=[name for _, name, _ in _UNMARKED])
def test_names_that_are_not_marked_public_are_there(owner: type, name: str, used_in: str) -> None:
    assert callable(getattr(owner, name, None)), f"{owner.__name__}.{name} is gone; it is used in defs/{used_in}"


def test_no_other_file_reaches_behind_the_public_interface() -> None:
    folder = Path(__file__).resolve().parents[2] / "cc_pipeline"
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text("utf-8")
        assert "dagster._" not in text, f"{path} imports a private module of Dagster"
        assert path.name == "internals.py" or "_step_execution_context" not in text
