"""A command starts no run for what is there: only what a stage would make, or Dagster has not recorded, is run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
from cc_pipeline.defs.declared.collected_parts import listed_ops
from cc_pipeline.defs.launcher import Launcher, RunFailed
from cc_pipeline.defs.run_notes import note_tried
from dagster._core.events import AssetMaterializationPlannedData

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs import launcher as launch
from cc_pipeline.defs.partitions import config_of
from cc_pipeline.extraction import run as extract
from cc_pipeline.lake.slice import PARSE, Slice, StageReport
from cc_pipeline.lake.slices import invalidate_slices
from cc_pipeline.settings import Settings, load_settings
from cc_pipeline.workspace.workspace import Workspace, open_workspace
from cc_pipeline_tests.defs.graph import EXTRACT, began, began_listed, listed, settings_of
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import NEW, Bucket, harvest, workspace_of

TEXTS = ["example.com", "example.org", "set:pair = example.co.uk, example-foo.com"]
KEYS = [f"{NEW}|example.com", f"{NEW}|example.org", f"{NEW}|set-pair"]


@pytest.fixture(scope="module")
def made(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with three targets, made by a command."""
    home = tmp_path_factory.mktemp("unchanged") / "home"
    workspace = workspace_of(bucket[0], home)
    harvest(workspace, NEW)
    assert asked(settings_of(bucket[0], home)) == KEYS
    return home


@pytest.fixture
def settings(bucket: Bucket, made: Path, tmp_path: Path) -> Settings:
    shutil.copytree(made, tmp_path / "home")
    return settings_of(bucket[0], tmp_path / "home")


@contextmanager
def launching(settings: Settings) -> Iterator[tuple[Workspace, Launcher]]:
    with open_workspace(settings) as workspace, Launcher(workspace) as launcher:
        yield workspace, launcher


def asked(
    settings: Settings, before: Callable[[Workspace, Launcher], object] = lambda *_: None, *, one: bool = False
) -> list[str]:
    """The partitions of the runs that a command starts for the targets, or for the first of them."""
    with launching(settings) as (workspace, launcher):
        before(workspace, launcher)
        before_that = launcher.instance.get_runs_count()
        runs = list(launcher.extract([NEW], [parse_target(text) for text in TEXTS[: 1 if one else None]]))
        assert launcher.instance.get_runs_count() == before_that + len(runs)
        stored = [launcher.instance.get_run_by_id(run.run_id) for run in runs]
        return [key for run in stored if run is not None for key in listed(run.run_config)]


def test_nothing_is_started_when_nothing_changed_and_what_changed_is_run_alone(settings: Settings) -> None:
    def forgets(workspace: Workspace, _: Launcher) -> None:
        invalidate_slices(workspace.lake, PARSE, [Slice(NEW, "example.org")])

    assert asked(settings) == []
    assert asked(settings, forgets) == [f"{NEW}|example.org"]
    assert asked(settings) == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{__name__}.TEXTS", [*TEXTS[:2], "set:pair = example.co.uk"])
        assert asked(settings) == [f"{NEW}|set-pair"]


def test_a_job_over_listed_partitions_is_defined_once_for_all_runs(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    defined: list[str] = []
    plain = launch.listed_job
    monkeypatch.setattr(launch, "listed_job", lambda name: defined.append(name) or plain(name))
    monkeypatch.setattr(launch, "everything", None)  # nor is anything else
    with launching(replace(settings, partitions_per_run=1)) as (_, launcher):
        assert len(list(launcher.run_listed_job(EXTRACT, [NEW], [parse_target(text) for text in TEXTS[:2]]))) == 2
    assert defined == [EXTRACT]


@pytest.mark.process
def test_another_setting_makes_all_again(settings: Settings) -> None:
    other = replace(settings, extractor="resiliparse")
    assert asked(other) == KEYS
    assert asked(other) == []


@pytest.mark.process
def test_captures_that_may_still_come_are_asked_for_again(bucket: Bucket, tmp_path: Path) -> None:
    with FaultServer(bucket[0]) as server:
        # so much may be missing that no partition counts as failed
        settings = load_settings({}, source=server.url, home=str(tmp_path / "home"), max_pending=1.0)
        with open_workspace(settings) as workspace:
            harvest(workspace, NEW)
        file = bucket[1].captures_of(NEW, subset="warc", domain="example.com")[0].warc_filename
        server.set_rules([Rule("whole_object", key=file, times=None)])
        assert asked(settings, one=True) == KEYS[:1]
        server.set_rules([])
        assert asked(settings, one=True) == KEYS[:1]
        assert asked(settings, one=True) == []


@pytest.mark.process
def test_a_lost_stored_file_heals(settings: Settings) -> None:
    def loses(workspace: Workspace, _: Launcher) -> None:
        where = {"crawl": NEW, "target": "example.org"}
        names = set(workspace.lake.read("records", where, ["stored_file"])["stored_file"].to_pylist()) - {None}
        for path in (settings.home / "lake" / "records").rglob("*"):
            if any(str(path).endswith(name) for name in names):
                path.unlink()

    # the whole crawl was fetched into one file
    assert asked(settings, loses) == KEYS
    assert asked(settings) == []


@pytest.mark.process
def test_what_is_there_and_not_recorded_is_recorded(settings: Settings) -> None:
    shutil.rmtree(settings.home / "dagster")
    assert asked(settings) == KEYS
    assert asked(settings) == []

    def killed(_: Workspace, launcher: Launcher) -> None:
        # before it recorded what it committed
        run = began_listed(launcher.instance, KEYS)
        note_tried(launcher.instance, run.run_id, [KEYS[1]])
        launcher.instance.report_run_failed(run)

    assert asked(settings, killed) == KEYS, "of the one that it did not try nobody knows"
    assert asked(settings) == []


def test_what_failed_since_it_was_made_is_recorded_again(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(workspace: Workspace, crawl: str, slugs: object, **how: object) -> StageReport:
        raise RuntimeError("a bug")

    def fails(workspace: Workspace, launcher: Launcher) -> None:
        with monkeypatch.context() as patch, pytest.raises(RunFailed):
            patch.setattr(extract, "fetch_captures", broken)
            launcher._run(EXTRACT, "", config=config_of(listed_ops()[EXTRACT], [f"{NEW}|example.org"]))

    assert asked(settings, fails) == [f"{NEW}|example.org"]
    assert asked(settings) == []


def test_what_a_run_planned_and_did_not_make_is_recorded_again_however_long_ago(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cc_pipeline.defs.partitions_in_flight.FAILURE_MEMORY", timedelta(0))

    def failed_long_ago(_: Workspace, launcher: Launcher) -> None:
        run = began(launcher.instance, {"dagster/partition": KEYS[1]}, assets=["records"])
        data = AssetMaterializationPlannedData(dg.AssetKey("records"), partition=KEYS[1])
        planned = dg.DagsterEvent.build_asset_materialization_planned_event(run.job_name, "extract", data)
        launcher.instance.report_dagster_event(planned, run.run_id)
        launcher.instance.report_run_failed(run)

    assert asked(settings, failed_long_ago) == [KEYS[1]], "Dagster shows it as failed"
    assert asked(settings) == []


@pytest.mark.process
def test_a_publication_is_made_only_where_it_would_be_another(settings: Settings) -> None:
    def published(some: Settings, before: Callable[[Workspace], object] = lambda _: None) -> bool:
        with launching(some) as (workspace, launcher):
            before(workspace)
            return launcher.publish_changes() is not None

    assert [published(settings), published(settings)] == [True, False]
    assert published(settings, lambda workspace: invalidate_slices(workspace.lake, PARSE, [Slice(NEW, "example.org")]))
    copied = replace(settings, publish="copy")
    assert [published(copied), published(copied)] == [True, False]
    settings.published_path.unlink()
    assert published(settings)
    # Dagster's database was lost
    shutil.rmtree(settings.home / "dagster")
    assert [published(settings), published(settings)] == [True, False]
