"""What an extension adds to the definitions of a home, and what a broken one costs: itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from cc_pipeline import extension
from cc_pipeline.checks.check import Check
from cc_pipeline.checks.scope import CheckResult, Scope
from cc_pipeline.defs.declarations import Asset, AssetJob, HomeDefinitions, OpJob, RecordedAsset, Schedule, Step, sensor
from cc_pipeline.defs.declared import collected_parts
from cc_pipeline.defs.declared.build import definitions, everything
from cc_pipeline.defs.declared.jobs import PartitionsConfig
from cc_pipeline.defs.home_namespace import OWN_HOME, HomeNamespace
from cc_pipeline.extension import Extension
from cc_pipeline.workspace.workspace import Workspace

HERE = __name__
BOOKS = HomeNamespace(("books",), is_only_home=False, automation=True)


def made(context: dg.AssetExecutionContext, workspace: Workspace, at: HomeNamespace) -> dg.MaterializeResult[None]:
    return dg.MaterializeResult(metadata={"home": str(workspace.settings.home), "key": str(at.key("titles"))})


def add_titles(
    context: dg.OpExecutionContext, workspace: Workspace, at: HomeNamespace, config: PartitionsConfig
) -> None:
    """An op over listed partitions."""


@sensor(seconds=60, job="read_titles")
def remind(context: dg.SensorEvaluationContext, workspace: Workspace, at: HomeNamespace) -> dg.SkipReason:
    """Reminds."""
    return dg.SkipReason(f"nothing to do in {at.qualify('remind')}")


def verdict(workspace: Workspace, scope: Scope) -> CheckResult:
    return CheckResult("not_empty", "ok", "there are titles")


TITLES = Asset(
    name="titles", group="content", kinds=["json"], description="Titles.", deps=["page_text"], is_published=True
)
NOT_EMPTY = Check(asset="titles", name="not_empty", description="There are some.", step="title_checks", verdict=verdict)
SOUND = HomeDefinitions(
    steps=[Step(function=f"{HERE}.made", assets=[TITLES])],
    jobs=[
        AssetJob(name="read_titles", description="Reads titles.", assets=["titles"]),
        OpJob(
            name="titles_of_targets",
            description="Reads titles of any.",
            function=f"{HERE}.add_titles",
            config=PartitionsConfig,
            takes_partition_list=True,
        ),
    ],
    sensors=[remind],
    schedules=[Schedule(name="weekly_titles", description="Each week.", cron="0 0 * * 0", job="read_titles")],
)
Installer = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Installer]:
    """Installs these extensions, and no others, as if they were ours."""

    def forget() -> None:
        extension._find.cache_clear()
        collected_parts._collect_names.cache_clear()
        extension._BROKEN.clear()

    def installed(*values: Extension) -> None:
        monkeypatch.setattr(
            extension, "_find_own", lambda: [(one.name, "cc_pipeline", lambda one=one: one) for one in values]
        )
        forget()

    yield installed
    monkeypatch.undo()
    forget()


def titles(definitions: HomeDefinitions = SOUND) -> Extension:
    return Extension(
        name="titles", summary="Titles of pages.", definitions=lambda _: definitions, checks=lambda _: [NOT_EMPTY]
    )


def problem(name: str) -> str:
    return next(one.problem for one in extension.find_extensions() if one.name == name)


@pytest.mark.parametrize("at", [OWN_HOME, BOOKS])
def test_an_extension_adds_assets_checks_jobs_and_automation_to_a_home(at: HomeNamespace, install: Installer) -> None:
    install(titles())
    found = definitions(at)
    dg.Definitions.validate_loadable(found)
    specs = {spec.key: spec for spec in found.resolve_all_asset_specs()}
    assert (specs[at.key("built_index")].description or "").endswith(f"launch the job {at.qualify('build_index')}.")
    titles_asset, warehouse = specs[at.key("titles")], specs[at.key("warehouse")]
    assert [dep.asset_key for dep in titles_asset.deps] == [at.key("page_text")]
    assert at.key("titles") in [dep.asset_key for dep in warehouse.deps]
    assert dg.AssetCheckKey(at.key("titles"), "not_empty") in {
        key for one in found.asset_checks or () for key in one.check_keys
    }
    home = SimpleNamespace(settings=SimpleNamespace(home="a home"), lake=SimpleNamespace(hold_versions=nullcontext))
    ran = found.resolve_job_def(at.qualify("read_titles")).execute_in_process(resources={at.resource: home})
    assert (
        ran.asset_materializations_for_node(at.key("titles").to_python_identifier())[0].metadata["home"].value
        == "a home"
    )
    repository = found.get_repository_def()
    assert repository.get_sensor_def(at.qualify("remind")).job_name == at.qualify("read_titles")
    assert repository.get_schedule_def(at.qualify("weekly_titles")).default_status.value == (
        "RUNNING" if at is BOOKS else "STOPPED"
    )
    assert collected_parts.listed_ops()["titles_of_targets"] == "add_titles"
    assert collected_parts.asset_name(at, at.key("titles")) == "titles"
    assert not collected_parts.asset_name(at, at.key("other"))
    assert "titles" in {asset.name for asset in collected_parts.published_assets()}


def clash(**changed: object) -> HomeDefinitions:
    return replace(SOUND, **{"jobs": (), "sensors": (), "schedules": (), **changed})


WRONG = {
    "the core has the asset 'captures' already": clash(
        steps=[Step(function=f"{HERE}.made", assets=[replace(TITLES, name="captures"), TITLES])]
    ),
    "the core has the job 'maintenance' already": clash(
        jobs=[AssetJob(name="maintenance", description="", assets=["titles"])]
    ),
    "the core has the job 'check_everything' already": clash(
        jobs=[AssetJob(name="check_everything", description="", assets=["titles"])]
    ),
    "the core has the sensor or schedule 'backfill_missing' already": clash(
        schedules=[Schedule(name="backfill_missing", description="", cron="0 0 * * 0", job="publish")]
    ),
    "the core has the step 'extract_listed' already": clash(
        jobs=[OpJob(name="again", description="", function=f"{HERE}.extract_listed")]
    ),
    "it names the asset 'tittles'": clash(jobs=[AssetJob(name="read_titles", description="", assets=["tittles"])]),
    "have different partitions": clash(jobs=[AssetJob(name="both", description="", assets=["records", "row_groups"])]),
    "the job 'fill_tittles', which records the asset 'titles', is not there": HomeDefinitions(
        recorded=[RecordedAsset(asset=TITLES, job="fill_tittles", partitions="pairs")]
    ),
    "launches the job 'read_tittles'": clash(sensors=[replace(remind, job="read_tittles")]),
    "is not a valid asset group name": clash(
        steps=[Step(function=f"{HERE}.made", assets=[replace(TITLES, group="not a group")])]
    ),
}


@pytest.mark.parametrize("said", WRONG)
def test_an_extension_that_does_not_fit_is_named_and_costs_only_itself(said: str, install: Installer) -> None:
    subtitles = HomeDefinitions(steps=[Step(function=f"{HERE}.made", assets=[replace(TITLES, name="subtitles")])])
    install(titles(WRONG[said]), Extension(name="subtitles", summary="More.", definitions=lambda _: subtitles))
    with pytest.warns(UserWarning, match="the extension titles is left out"):
        found = everything()
    dg.Definitions.validate_loadable(found)
    names = {spec.key.path[-1] for spec in found.resolve_all_asset_specs()}
    assert "titles" not in names and {"captures", "warehouse", "subtitles"} <= names
    assert said in problem("titles")
    assert "titles" not in {one.name for one in extension.extensions()}


def test_an_extension_whose_definitions_raise_costs_only_itself(install: Installer) -> None:
    def broken(_: HomeNamespace) -> HomeDefinitions:
        raise RuntimeError("no such table")

    install(replace(titles(), definitions=broken))
    found = everything()
    dg.Definitions.validate_loadable(found)
    assert "no such table" in problem("titles")
    assert dg.AssetKey("captures") in {spec.key for spec in found.resolve_all_asset_specs()}


@pytest.mark.parametrize(
    ("handed_in", "said"),
    [
        ({"definitions": lambda _: dg.Definitions()}, "is Definitions, and no"),
        ({"definitions": lambda _: HomeDefinitions(jobs=["read_titles"])}, "definitions: AttributeError"),
        ({"checks": lambda _: None}, "checks: TypeError"),
        ({"checks": lambda _: [verdict]}, "definitions: AttributeError"),
    ],
)
@pytest.mark.filterwarnings("ignore:the extension titles is left out")
def test_an_extension_that_hands_in_something_else_costs_only_itself(
    handed_in: dict[str, Any], said: str, install: Installer
) -> None:
    install(replace(titles(), **handed_in))
    dg.Definitions.validate_loadable(everything())
    assert said in problem("titles")
