"""The graph as people use it: the command line in this process, and runs over keys made in the UI."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pytest

from cc_pipeline.cli.app import main
from cc_pipeline.cli.output import console, console_err
from cc_pipeline.definitions import defs
from cc_pipeline.defs.declared.collected_parts import listed_ops
from cc_pipeline.defs.home_namespace import WORKSPACE
from cc_pipeline.defs.partitions import PARTITIONS_FIELD, config_of, group_by_crawl, listed_keys
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline.workspace.workspace import Workspace, open_workspace
from cc_pipeline_tests.defs.published import published_rows

#: The job over any partitions.
EXTRACT: Final = "extract_targets"


def settings_of(source: Path | str, home: Path) -> Settings:
    """Settings with nothing from this machine's environment in them."""
    return load_settings({}, source=str(source), home=str(home))


def cc_pipeline(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    """Exit status, output and error output of ``cc-pipeline ARGUMENTS``, each as one line."""
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["cc-pipeline", *arguments])
        # a command sets it for all that it starts
        patch.setenv("PYTHONSAFEPATH", "1")
        for screen in (console, console_err):
            patch.setattr(screen, "_width", 10_000)
        with pytest.raises(SystemExit) as ended:
            main()
            sys.exit(0)
    said = capsys.readouterr()
    code = ended.value.code
    return (code if isinstance(code, int) else 0), " ".join(said.out.split()), " ".join(said.err.split())


def listed(run_config: Mapping[str, Any]) -> list[str]:
    """The partitions that the configuration of a run of ``extract_targets`` names."""
    return listed_keys(run_config["ops"][listed_ops()[EXTRACT]]["config"][PARTITIONS_FIELD])


def listed_run(
    keys: Iterable[str],
    tags: Mapping[str, str] | None = None,
    status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTED,
    **config: object,
) -> dg.DagsterRun:
    """A run of ``extract_targets`` over partitions, as the instance keeps it."""
    asked = config_of(listed_ops()[EXTRACT], keys, **config)
    return dg.DagsterRun(EXTRACT, run_config=asked, tags=dict(tags or {}), status=status)


@cache
def definitions() -> dg.Definitions:
    """The code location, loaded once."""
    return dg.Definitions.merge(defs(), dg.Definitions())


def execute(
    instance: dg.DagsterInstance,
    of: Settings | Workspace,
    job: str,
    *,
    key: str | None = None,
    tags: Mapping[str, str] | None = None,
    **config: object,
) -> dg.ExecuteInProcessResult:
    """A run of ``job`` as the daemon would do it, for a key nobody has checked; ``config`` is that of its op."""
    loggers = {"console": {"config": {"log_level": "CRITICAL"}}}
    with nullcontext(of) if isinstance(of, Workspace) else open_workspace(of) as workspace:
        return (
            definitions()
            .resolve_job_def(job)
            .execute_in_process(
                instance=instance,
                partition_key=key,
                tags=dict(tags or {}),
                run_config={"loggers": loggers, "ops": {op: {"config": given} for op, given in config.items()}},
                resources={WORKSPACE: workspace},
                raise_on_error=False,
            )
        )


def execute_listed(
    instance: dg.DagsterInstance,
    of: Settings | Workspace,
    keys: Iterable[str],
    tags: Mapping[str, str] | None = None,
    **config: object,
) -> dg.ExecuteInProcessResult:
    """A run of ``extract_targets`` over partitions."""
    return execute(
        instance, of, EXTRACT, tags=tags, **{listed_ops()[EXTRACT]: {PARTITIONS_FIELD: group_by_crawl(keys), **config}}
    )


def execute_asked(
    instance: dg.DagsterInstance, of: Settings | Workspace, request: dg.RunRequest
) -> dg.ExecuteInProcessResult:
    """What the schedule asked for."""
    return execute_listed(instance, of, listed(request.run_config), request.tags)


def began(
    instance: dg.DagsterInstance, tags: Mapping[str, str], job: str = "extract_domain", assets: Iterable[str] = ()
) -> dg.DagsterRun:
    """A run as a process starts it: with its events."""
    selection = frozenset(map(dg.AssetKey, assets)) or None
    return start(
        instance, dg.DagsterRun(job, tags=dict(tags), status=dg.DagsterRunStatus.STARTING, asset_selection=selection)
    )


def began_listed(
    instance: dg.DagsterInstance, keys: Iterable[str], tags: Mapping[str, str] | None = None, **config: object
) -> dg.DagsterRun:
    """The same of ``extract_targets`` over partitions."""
    return start(instance, listed_run(keys, tags, dg.DagsterRunStatus.STARTING, **config))


def start(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRun:
    """Keeps a run, and its first event."""
    started = dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, run.job_name, message="started")
    instance.report_dagster_event(started, instance.add_run(run).run_id)
    return run


def recorded(instance: dg.DagsterInstance, asset: str) -> dict[str, dg.AssetMaterialization]:
    """The newest record of each partition."""
    records = instance.fetch_materializations(dg.AssetRecordsFilter(dg.AssetKey(asset)), limit=1_000, ascending=True)
    found = [record.asset_materialization for record in records.records]
    return {str(one.partition): one for one in found if one is not None}


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    """What the step that failed raised."""
    for event in result.all_events:
        if event.is_step_failure:
            error = event.step_failure_data.error
            cause = error.cause if error is not None and error.cause is not None else error
            return cause.message.strip() if cause is not None else ""
    return ""


def everything_in(folder: Path) -> dict[str, tuple[int, int]]:
    """Every path below ``folder`` with size and time of change."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in folder.rglob("*")
        if not path.is_dir()
    }


def state_of(home: Path) -> tuple[object, ...]:
    """What earlier results are: the published rows and the stored records."""
    stored = sorted(str(path) for path in (home / "lake" / "records").rglob("*") if path.is_file())
    return published_rows(home), stored


def sensor(name: str) -> dg.SensorDefinition:
    """A sensor of the code location, to be called with a context."""
    return next(one for one in definitions().sensors or () if one.name == name)


def schedule(name: str) -> dg.ScheduleDefinition:
    """A schedule of the code location, to be called with a context."""
    found = next(one for one in definitions().schedules or () if one.name == name)
    assert isinstance(found, dg.ScheduleDefinition)
    return found


def asset(name: str, of: dg.Definitions | None = None) -> dg.AssetsDefinition:
    """What makes the asset ``name``, for a run with any resources."""
    every = [one for one in (of or definitions()).assets or () if isinstance(one, dg.AssetsDefinition)]
    return next(one for one in every if dg.AssetKey(name) in one.keys)
