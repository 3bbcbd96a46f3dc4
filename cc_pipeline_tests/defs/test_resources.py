"""The resource of the UI's processes: a workspace open for a run and closed after it, whatever became of the run."""

from pathlib import Path

import dagster as dg
import pytest

from cc_pipeline.defs import engines
from cc_pipeline.defs.home_namespace import OWN_HOME, WORKSPACE
from cc_pipeline.defs.partitions import ENGINE_TAG
from cc_pipeline.defs.resources import make_resource
from cc_pipeline.extension import Extension
from cc_pipeline.settings import all_settings
from cc_pipeline.workspace.workspace import Workspace


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
    source, home = str(tmp_path / "bucket"), str(tmp_path / "home")
    monkeypatch.setenv("CC_PIPELINE_SOURCE", source)
    monkeypatch.setenv("CC_PIPELINE_HOME", home)
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

    # as a run's configuration makes it
    resource = type(make_resource(OWN_HOME))(subsets=["robotstxt"])
    result = dg.materialize([first, second], resources={WORKSPACE: resource}, raise_on_error=False)
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


def test_a_run_chooses_its_engine_by_its_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    one = Extension(name="elsewhere", summary="", engines=lambda: {"elsewhere": lambda: engines.find_engine("local")})
    monkeypatch.setattr(all_settings, "extensions", lambda: (one,))

    @dg.asset(required_resource_keys={WORKSPACE})
    def any_asset(context: dg.AssetExecutionContext) -> None:
        seen.append(OWN_HOME.workspace(context).settings.engine)

    def run(tags: dict[str, str]) -> None:
        dg.materialize([any_asset], resources={WORKSPACE: make_resource(OWN_HOME)}, tags=tags)

    monkeypatch.setenv("CC_PIPELINE_SOURCE", str(tmp_path / "bucket"))
    monkeypatch.setenv("CC_PIPELINE_HOME", str(tmp_path / "home"))
    run({})
    run({ENGINE_TAG: "elsewhere"})
    monkeypatch.setenv("CC_PIPELINE_ENGINE", "elsewhere")
    run({})
    run({ENGINE_TAG: "local"})
    assert seen == ["local", "elsewhere", "elsewhere", "local"]
