"""Homes inside somebody's own Dagster project: names, settings, own assets, and that nothing of others is touched."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cc_pipeline.dagster import build_defs
from cc_pipeline.defs.automation.flight import flight
from cc_pipeline.defs.automation.watched import refuse_watched
from cc_pipeline.defs.declared.build import definitions, everything, placement
from cc_pipeline.defs.dynamic_keys import delete_keys
from cc_pipeline.defs.partitions import KEYS_TAG
from cc_pipeline.defs.placement import JOBS, OURS, Placement
from cc_pipeline.errors import UserInputError
from cc_pipeline_tests.world import NEW

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "dagster.md").read_text("utf-8")
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def snippets() -> list[str]:
    """The boxes of the page that are Python."""
    return re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


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


def test_what_there_is_has_no_prefix_of_its_own_and_the_whole_instance_is_left_alone() -> None:
    ours, inside = names_of(everything()), names_of(definitions(Placement(alone=False)))
    assert ours - inside == {"job trim_history", "ticks history", "resource workspace"} | {
        name for name in ours if name.startswith("op forget")
    }
    assert inside - ours == {"resource cc_pipeline_workspace"}
    assert {f"job {name}" for name in JOBS} == {name for name in inside if name.startswith("job ")}


def test_settings_come_per_home_in_the_words_of_their_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC_PIPELINE_HOME", str(tmp_path / "another"))
    monkeypatch.setenv("CC_PIPELINE_SOURCE", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("CC_PIPELINE_SUBSETS", "warc")
    own = {"crawls": ["2024-22", "2018-05"], "Subsets": "robotstxt", "markdown": True, "rate": 3}
    places = {"home": tmp_path / "one", "source": None}
    settings = placement(("one",), "", False, [], places, own).load_settings()
    assert (settings.home, settings.source) == (tmp_path / "one", "https://data.commoncrawl.org")
    assert (settings.crawls, settings.subsets) == (("2024-22", "2018-05"), ("robotstxt",))
    assert (settings.markdown, settings.rate) == (True, 3)
    assert placement((), "", False, [], {}, {}).load_settings().home == tmp_path / "another"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"key_prefix": "no-dash"}, "'no-dash' can be no prefix"),
        ({"group": "two words"}, "'two words' can be no prefix or group"),
        ({"settings": {"crawl": "newest"}}, "did you mean crawls"),
        ({"settings": {"via": "telepathy"}}, "CC_PIPELINE_VIA"),
        ({"targets": ["bad host!"]}, "bad host!"),
    ],
)
def test_what_cannot_be_used_is_said_where_it_is_written(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match=re.escape(said)):
        build_defs(home=tmp_path, **given)


def test_targets_of_the_code_location_are_not_purged_under_it() -> None:
    at = Placement(("books",), alone=False, targets=("prefix:https://example.com/a/", "example.org"))
    refuse_watched(at, "example.net")
    with pytest.raises(UserInputError, match=r"watches 'example\.org'"):
        refuse_watched(at, "example.org")


def test_runs_and_records_of_others_are_not_ours(instance: dg.DagsterInstance) -> None:
    books, other = Placement(("books",), alone=False), Placement(alone=False)
    tags = {KEYS_TAG: f'{{"{NEW}": ["example.com"]}}'}
    instance.add_run(dg.DagsterRun("books_extract_domain", tags=tags, status=dg.DagsterRunStatus.STARTED))
    selected = frozenset({dg.AssetKey(["news", "page_text"])})
    theirs = dg.DagsterRun("__ASSET_JOB", status=dg.DagsterRunStatus.STARTED, tags=tags, asset_selection=selected)
    instance.add_run(theirs)
    assert flight(instance, books).pairs == {(NEW, "example.com")}
    assert not flight(instance, other).is_any and not flight(instance, OURS).is_any
    assert not books.owns(theirs)
    for at in (books, other):
        instance.add_dynamic_partitions(at.of("domain"), ["example.com"])
        instance.add_dynamic_partitions(at.of("crawl"), [NEW])
        made = dg.AssetMaterialization(at.key("records"), partition=f"{NEW}|example.com")
        instance.report_runless_asset_event(made)
    delete_keys(instance, other, domains=["example.com"])
    assert instance.get_materialized_partitions(books.key("records")) == {f"{NEW}|example.com"}
    assert instance.get_materialized_partitions(other.key("records")) == set()
    assert list(books.domains(instance)) == ["example.com"]
