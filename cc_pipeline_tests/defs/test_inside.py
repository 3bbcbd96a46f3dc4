"""Homes inside somebody's own Dagster project: names, settings, own assets, and that nothing of others is touched."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cc_pipeline.automation import watch_list
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.dagster import build_defs, names
from cc_pipeline.defs.build import build_namespace
from cc_pipeline.defs.home_namespace import HomeNamespace
from cc_pipeline.errors import UserInputError
from cc_pipeline_tests.world import NEW, Bucket, harvest, workspace_of

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def names_of(of: dg.Definitions) -> set[str]:
    """Every name that has to be the only one of its kind in a code location."""
    repository = of.get_repository_def()
    graph = repository.asset_graph
    found = {f"asset {key.to_user_string()}" for key in graph.get_all_asset_keys()}
    found |= {f"op {one.node_def.name}" for one in graph.assets_defs if one.is_executable}
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        found |= {f"pool {pool}" for pool in node.pools or ()} | {f"group {node.group_name}"}
        for one in (node.partitions_def, *getattr(node.partitions_def, "secondary_dimension", ())):
            found |= {f"partitions {one.name}"} if isinstance(one, dg.DynamicPartitionsDefinition) else set()
    found |= {f"job {name}" for name in repository.job_names if not name.startswith("__")}
    found |= {f"ticks {one.name}" for one in (*repository.sensor_defs, *repository.schedule_defs)}
    return found | {f"resource {key}" for key in of.resources or ()}


def test_homes_share_no_name_and_clash_with_nothing_of_others(tmp_path: Path) -> None:
    @dg.asset
    def own() -> None: ...

    homes = [
        build_defs(home=tmp_path / "a", key_prefix="books"),
        build_defs(home=tmp_path / "b", key_prefix=["team", "news"], group="news"),
        build_defs(home=tmp_path / "c"),
    ]
    every = [names_of(one) for one in homes]
    assert not every[0] & every[1] and not every[0] & every[2] and not every[1] & every[2]
    assert len({len(found) for found in every[::2]}) == 1
    others = dg.Definitions(assets=[own], resources={"workspace": object()}, executor=dg.multiprocess_executor)
    merged = dg.Definitions.merge(*homes, others)
    dg.Definitions.validate_loadable(merged)
    assert merged.executor is dg.multiprocess_executor
    graph = merged.get_repository_def().asset_graph
    assert {graph.get(key).group_name for key in graph.get_all_asset_keys() if key.path[0] == "team"} == {"news"}
    text = graph.get(dg.AssetKey(["books", "page_text"]))
    assert dg.AssetKey(["books", "records"]) in text.parent_keys
    lineage = text.metadata["dagster/column_lineage"].deps_by_column["url"]
    assert lineage[0].asset_key == dg.AssetKey(["books", "records"])


def test_conditions_of_others_are_left_to_the_sensor_of_dagster(tmp_path: Path) -> None:
    @dg.asset(automation_condition=dg.AutomationCondition.eager())
    def own() -> None: ...

    merged = dg.Definitions.merge(build_defs(home=tmp_path, automation=True), dg.Definitions(assets=[own]))
    repository = merged.get_repository_def()
    sensors = {
        one.name: one.asset_selection.resolve(repository.asset_graph)
        for one in repository.sensor_defs
        if isinstance(one, dg.AutomationConditionSensorDefinition)
    }
    crawls = dg.AssetKey("crawls")
    assert own.key in sensors["default_automation_condition_sensor"] and crawls in sensors["conditions"]
    assert crawls not in sensors["default_automation_condition_sensor"] and own.key not in sensors["conditions"]


def test_settings_come_per_home_in_the_words_of_their_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC_PIPELINE_HOME", str(tmp_path / "another"))
    monkeypatch.setenv("CC_PIPELINE_SOURCE", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("CC_PIPELINE_SUBSETS", "warc")
    own = {"crawls": ["2024-22", "2018-05"], "Subsets": "robotstxt", "markdown": True, "rate": 3}
    places = {"home": tmp_path / "one", "source": None}
    settings = build_namespace(("one",), "", [], places, own).load_settings()
    assert (settings.home, settings.source) == (tmp_path / "one", "https://data.commoncrawl.org")
    assert (settings.crawls, settings.subsets) == (("2024-22", "2018-05"), ("robotstxt",))
    assert (settings.markdown, settings.rate) == (True, 3)
    assert build_namespace((), "", [], {}, {}).load_settings().home == tmp_path / "another"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"key_prefix": "no-dash"}, "'no-dash' cannot be a prefix"),
        ({"group": "two words"}, "'two words' cannot be a prefix or group"),
        ({"settings": {"crawl": "newest"}}, "did you mean crawls"),
        ({"settings": {"index": "telepathy"}}, "CC_PIPELINE_INDEX"),
        ({"targets": ["bad host!"]}, "bad host!"),
    ],
)
def test_what_cannot_be_used_is_said_where_it_is_written(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match=re.escape(said)):
        build_defs(home=tmp_path, **given)


def test_runs_of_others_are_not_ours() -> None:
    books, other = HomeNamespace(("books",), is_only_home=False), HomeNamespace(is_only_home=False)
    for at, job in ((books, "books_extract_targets"), (other, "extract_targets")):
        assert at.owns(dg.DagsterRun(job))
        own = frozenset({at.key("page_text")})
        assert at.owns(dg.DagsterRun("__ASSET_JOB", asset_selection=own))
    theirs = dg.DagsterRun("__ASSET_JOB", asset_selection=frozenset({dg.AssetKey(["news", "page_text"])}))
    assert not books.owns(theirs)


@pytest.mark.process
def test_a_host_typed_into_the_dialog_fails_with_advice_that_works_there(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """Sensors are off, and nothing but the dialog and the home's own list is used."""
    home, books = tmp_path / "cc_home", names("books")
    workspace = workspace_of(bucket[0], home)
    harvest(workspace)
    defs = build_defs(home=home, key_prefix="books")
    job = defs.resolve_implicit_global_asset_job_def()

    def launch(target: str) -> dg.ExecuteInProcessResult:
        instance.add_dynamic_partitions(books.qualify("target"), [target])
        return job.execute_in_process(
            instance=instance, run_config=QUIET, partition_key=f"{NEW}|{target}",
            asset_selection=[books.key("captures")], raise_on_error=False,
        )  # fmt: skip

    instance.add_dynamic_partitions(books.qualify("crawl"), [NEW])
    page = "url:http://www.example.com/"
    for text in ("host:www.example.com", page):
        [failure] = [event.step_failure_data for event in launch(text).all_events if event.is_step_failure]
        reason = failure.user_failure_data.description or ""
        [key] = re.findall(r"its key is '([^']+)'", reason)
        if text == page:
            assert f"cc-pipeline targets add {page} --home" in reason
            watch_list.add(workspace.settings.watch_list_path, [parse_target(page)])
        assert launch(key).success
        assert [target.definition for target in workspace.targets([key]).values()] == [text]
