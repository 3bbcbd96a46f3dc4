"""The graph as people use it: the command line in this process, and runs over keys made in the UI."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import dagster as dg
import pytest

from cc_pipeline.cli.app import main
from cc_pipeline.cli.output import console, console_err
from cc_pipeline.definitions import defs
from cc_pipeline.defs.home_namespace import OWN_HOME, TABLES, WORKSPACE
from cc_pipeline.defs.partitions import group_by_crawl
from cc_pipeline.defs.recording import read_failure
from cc_pipeline.defs.sensors import read_listed_keys
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
    return read_listed_keys(dg.DagsterRun(EXTRACT, run_config=dict(run_config)), OWN_HOME)


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
                resources={WORKSPACE: SimpleNamespace(workspace=workspace)},
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
    return execute(instance, of, EXTRACT, tags=tags, extract_listed={"partitions": group_by_crawl(keys), **config})


def materialize(
    instance: dg.DagsterInstance,
    of: Settings | Workspace,
    first: str,
    last: str | None = None,
    *,
    assets: Iterable[str] = TABLES,
    added: Iterable[dg.AssetsDefinition] = (),
    run_config: Mapping[str, Any] | None = None,
) -> dg.ExecuteInProcessResult:
    """A run of selected assets over a partition, or a range of them, as "Materialize selected" launches it. ``added``
    are assets of somebody else, which are selected too."""
    given = {*assets}
    own = [one for one in definitions().assets or () if isinstance(one, dg.AssetsDefinition)]
    makers = [one for one in own if given & {key.path[-1] for key in one.keys}]
    keys = [dg.AssetKey(name) for name in given] + [key for one in added for key in one.keys]
    ends = {} if last is None else {
        "dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last,
    }  # fmt: skip
    with nullcontext(of) if isinstance(of, Workspace) else open_workspace(of) as workspace:
        return dg.materialize(
            [*makers, *added],
            selection=dg.AssetSelection.assets(*keys),
            instance=instance,
            partition_key=None if last is not None else first,
            tags=ends,
            resources={WORKSPACE: SimpleNamespace(workspace=workspace)},
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}, **(run_config or {})},
            raise_on_error=False,
        )


def recorded(instance: dg.DagsterInstance, asset: str) -> dict[str, dg.AssetMaterialization]:
    """The newest record of each partition."""
    records = instance.fetch_materializations(dg.AssetRecordsFilter(dg.AssetKey(asset)), limit=1_000, ascending=True)
    found = [record.asset_materialization for record in records.records]
    return {str(one.partition): one for one in found if one is not None}


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    """What the step that failed raised."""
    return read_failure([event for event in result.all_events if event.is_step_failure])[0]


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
