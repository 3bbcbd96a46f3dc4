"""The resource of the UI's processes: a workspace open for a run and closed after it, whatever became of the run."""

from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import pytest

from cc_pipeline.defs import engines
from cc_pipeline.defs.home_namespace import OWN_HOME, WORKSPACE
from cc_pipeline.defs.partitions import ENGINE_TAG
from cc_pipeline.defs.resources import HomeResource, make_resource
from cc_pipeline.extension import Extension
from cc_pipeline.settings import all_settings
from cc_pipeline.workspace.workspace import Workspace


def configured(values: Mapping[str, object]) -> HomeResource:
    """The resource as a run's configuration makes it."""
    resource = make_resource(OWN_HOME)
    return type(resource)(**values)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[Workspace]:
    """The workspaces that were closed."""
    found: list[Workspace] = []

    def close(workspace: Workspace) -> None:
        found.append(workspace)

    monkeypatch.setattr(Workspace, "close", close)
    return found


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_has_one_open_workspace_of_its_settings(
    closed: list[Workspace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setenv("CC_PIPELINE_SUBSETS", "robotstxt")
    seen: list[Workspace] = []

    @dg.asset(required_resource_keys={WORKSPACE})
    def first(context: dg.AssetExecutionContext) -> None:
        seen.append(OWN_HOME.workspace(context))

    @dg.asset(deps=[first], required_resource_keys={WORKSPACE})
    def second(context: dg.AssetExecutionContext) -> None:
        seen.append(OWN_HOME.workspace(context))
        assert not closed
        if fails:
            raise ValueError("it went wrong")

    source, home = str(tmp_path / "bucket"), str(tmp_path / "home")
    result = dg.materialize(
        [first, second],
        resources={WORKSPACE: configured({"source": source, "home": home})},
        raise_on_error=False,
    )
    assert result.success is not fails
    assert seen[0] is seen[1]
    assert closed == [seen[0]]
    settings = seen[0].settings
    assert (settings.source, str(settings.home), settings.subsets) == (source, home, ("robotstxt",))


def test_settings_that_cannot_be_used_end_the_run_naming_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC_PIPELINE_INDEX", "telepathy")

    @dg.asset(required_resource_keys={WORKSPACE})
    def any_asset(context: dg.AssetExecutionContext) -> None:
        pytest.fail("it must not run")

    with pytest.raises(Exception, match="workspace") as failed:
        dg.materialize([any_asset], resources={WORKSPACE: make_resource(OWN_HOME)})
    assert "CC_PIPELINE_INDEX" in str(failed.value.__cause__ or failed.value)


@pytest.mark.parametrize("source", ["https://u:s3cret@h.example/x", "https://h.example/x?token=s3cret"])
def test_a_source_with_credentials_is_refused_where_dagster_would_store_it(source: str, tmp_path: Path) -> None:
    @dg.asset(required_resource_keys={WORKSPACE})
    def any_asset(context: dg.AssetExecutionContext) -> None:
        pytest.fail("it must not run")

    given = {"source": source, "home": str(tmp_path)}
    with pytest.raises(Exception, match="workspace") as failed:
        dg.materialize([any_asset], resources={WORKSPACE: configured(given)})
    said = str(failed.value.__cause__ or failed.value)
    assert "CC_PIPELINE_SOURCE_PASSWORD" in said
    assert "s3cret" not in said


def test_a_run_chooses_its_engine_by_its_configuration_or_its_tag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    one = Extension(name="elsewhere", summary="", engines=lambda: {"elsewhere": lambda: engines.find_engine("local")})
    monkeypatch.setattr(all_settings, "extensions", lambda: (one,))

    @dg.asset(required_resource_keys={WORKSPACE})
    def any_asset(context: dg.AssetExecutionContext) -> None:
        seen.append(OWN_HOME.workspace(context).settings.engine)

    def run(tags: dict[str, str], **config: str) -> None:
        own = {"source": str(tmp_path / "bucket"), "home": str(tmp_path / "home"), **config}
        of_run = configured(own)
        dg.materialize([any_asset], resources={WORKSPACE: of_run}, tags=tags)

    run({})
    run({ENGINE_TAG: "elsewhere"})
    run({ENGINE_TAG: "elsewhere"}, engine="local")
    monkeypatch.setenv("CC_PIPELINE_ENGINE", "elsewhere")
    run({})
    run({ENGINE_TAG: "local"})
    assert seen == ["local", "elsewhere", "local", "elsewhere", "local"]
