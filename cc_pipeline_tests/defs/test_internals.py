"""What is used of Dagster behind its public interface is still there; a failure here names what an upgrade moved."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy
from cc_pipeline.defs.declared.build import everything
from cc_pipeline.defs.internals import end_run, find_dependent_assets, read_last_evaluation
from dagster._core.launcher.base import RunLauncher

from cc_pipeline.definitions import defs
from cc_pipeline.defs import internals
from cc_pipeline.defs.instance import open_instance_in
from cc_pipeline.defs.metadata import read_texts

_MOVED = "an upgrade of Dagster moved this; see cc_pipeline/defs/internals.py"


def test_assets_behind_a_step_of_a_run_are_known() -> None:
    found: list[set[dg.AssetKey]] = []

    @dg.asset(output_required=False)
    def table(context: dg.AssetExecutionContext) -> Iterator[dg.AssetMaterialization]:
        found.append(find_dependent_assets(context))
        yield dg.AssetMaterialization("table")

    @dg.asset(deps=[table])
    def behind() -> None: ...

    @dg.asset
    def beside() -> None: ...

    every = [table, behind, beside]
    assert dg.materialize(every, selection=["table", "beside"]).success
    done = dg.materialize(every)
    assert done.success, "Dagster skips what is behind, and says nothing"
    assert not done.asset_materializations_for_node("behind")
    assert found == [set(), {dg.AssetKey("behind")}], f"JobDefinition.asset_layer: {_MOVED}"


def test_a_command_loads_the_same_jobs_as_the_ui() -> None:
    ours = everything().get_repository_def()
    shown = defs().get_repository_def()
    jobs = {job.name: job.get_job_snapshot_id() for job in ours.get_all_jobs()}
    assert jobs == {job.name: job.get_job_snapshot_id() for job in shown.get_all_jobs()}
    assert ours.asset_graph.get_all_asset_keys() == shown.asset_graph.get_all_asset_keys()


def test_an_instance_opens_from_its_folder_and_the_environment_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    chosen = tmp_path / "dagster.yaml"
    chosen.write_text("telemetry: {enabled: false}\n", "utf-8")
    # it may have the password of a database
    chosen.chmod(0o600)
    instance = open_instance_in(tmp_path)
    assert [path.name for path in tmp_path.glob("*.yaml") if path.stat().st_mode & 0o077] == []
    try:
        assert instance.is_persistent
        assert Path(instance.root_directory) == tmp_path, f"DagsterInstance.from_config: {_MOVED}"
    finally:
        instance.dispose()


@dg.op
def say() -> None:
    print("words of a step")


@dg.job
def talking() -> None:
    say()


def test_a_command_keeps_the_logs_of_its_files_and_copies_no_output(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n", "utf-8")
    instance = open_instance_in(home)
    try:
        run = talking.execute_in_process(instance=instance)
        for name in ("runs.db", "runs/index.db", f"runs/{run.run_id}.db"):
            assert (home / "history" / f"{name}-wal").is_file(), f"{name}: its log was ended: {_MOVED}"
        asked = sqlalchemy.create_engine(f"sqlite:///{home / 'history/runs.db'}")
        assert asked.connect().execute(sqlalchemy.text("PRAGMA synchronous")).scalar() == 1
        strangers = sqlalchemy.create_engine(f"sqlite:///{other}")
        assert strangers.connect().execute(sqlalchemy.text("PRAGMA synchronous")).scalar() == 2
        kinds = {event.event_type_value for event in run.all_events}
        assert "LOGS_CAPTURED" in kinds
        assert not list((home / "storage").rglob("*.out")), f"compute_logs: {_MOVED}"
    finally:
        instance.dispose()


def test_a_command_compiles_a_statement_of_its_files_once(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n", "utf-8")
    instance = open_instance_in(tmp_path)
    compiled: list[str] = []

    def note(_: object, __: object, statement: str, ___: object, context: Any, ____: object) -> None:
        if context.compiled is not None and context.cache_hit.name != "CACHE_HIT":
            compiled.append(statement)

    sqlalchemy.event.listen(sqlalchemy.Engine, "after_cursor_execute", note)
    try:
        instance.report_runless_asset_event(dg.AssetMaterialization("pages", partition="one"))
        instance.report_runless_asset_event(dg.AssetMaterialization("pages", partition="two"))
        compiled.clear()
        instance.report_runless_asset_event(dg.AssetMaterialization("pages", partition="three"))
        assert compiled == [], "see cc_pipeline/defs/open_sqlite_files.py"
        # another file has the statements of its own engine
        other = sqlalchemy.create_engine("sqlite://")
        other.connect().execute(sqlalchemy.select(sqlalchemy.literal(1)))
        assert len(compiled) == 1
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "after_cursor_execute", note)
        instance.dispose()


def test_a_place_for_output_that_a_person_chose_is_used(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text(
        "compute_logs:\n  module: dagster._core.storage.local_compute_log_manager\n"
        f"  class: LocalComputeLogManager\n  config: {{base_dir: {tmp_path / 'output'}}}\n",
        "utf-8",
    )
    instance = open_instance_in(tmp_path)
    try:
        talking.execute_in_process(instance=instance)
        assert list((tmp_path / "output").rglob("*.out")), f"compute_logs: {_MOVED}"
    finally:
        instance.dispose()


def test_a_run_whose_process_is_gone_can_be_ended(instance: dg.DagsterInstance) -> None:
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


_INTERNALS = ("internals.py",)


def test_the_file_of_private_names_stays_small() -> None:
    assert len(Path(internals.__file__).read_text("utf-8").splitlines()) <= 250


def test_no_other_file_reaches_behind_the_public_interface() -> None:
    folder = Path(__file__).resolve().parents[2] / "cc_pipeline"
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text("utf-8")
        assert path.name in _INTERNALS or "dagster._" not in text, f"{path} imports a private module of Dagster"
        assert path.name in _INTERNALS or "__source_asset_observation__" not in text


def test_the_last_evaluation_of_a_check_is_found(instance: dg.DagsterInstance) -> None:
    @dg.asset
    def table() -> None: ...

    notes: list[Mapping[str, str]] = []

    @dg.asset_check(asset=table)
    def sound(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        key = dg.AssetCheckKey(dg.AssetKey("table"), "sound")
        notes.append(read_texts(read_last_evaluation(context.instance, key, "note") or {}))
        return dg.AssetCheckResult(passed=True, metadata={"note": f"run {len(notes)}", "rows": 5})

    for _ in range(3):
        dg.materialize([table, sound], instance=instance)
    assert notes == [{}, {"note": "run 1"}, {"note": "run 2"}], f"get_asset_check_execution_history: {_MOVED}"


def test_what_a_launcher_tells_and_how_postgresql_is_opened_is_where_it_was() -> None:
    for found, status in ((True, "RUNNING"), (False, "NOT_FOUND")):
        told = internals.make_health_answer(is_alive=found)
        assert told.status.value == status, f"CheckRunHealthResult: {_MOVED}"
    assert "supports_check_run_worker_health" in vars(RunLauncher), _MOVED
    for name in ("run_storage.run_storage", "event_log.event_log", "schedule_storage.schedule_storage"):
        module = import_module(f"dagster_postgres.{name}")
        assert callable(getattr(module, "create_pg_engine", None)), f"create_pg_engine of {name}: {_MOVED}"
