"""A run of the UI publishes by itself, with automation off: at its end, and while it goes on."""

from __future__ import annotations

import os
import time
from pathlib import Path

import dagster as dg
import duckdb
import pytest
from cc_pipeline.defs.checks.check_runs import left_failed_result
from cc_pipeline.defs.checks.steps import LEFT_FAILED
from cc_pipeline.defs.partitions_in_flight import MADE_TAG, find_in_flight

import cc_pipeline.defs.publication as publication
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.instance import PROCESS_TAG, is_command_run
from cc_pipeline.processes import this_process
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.defs.graph import definitions, execute_listed, listed_run
from cc_pipeline_tests.world import NEW, Bucket, harvest, workspace_of

SITES = ("example.com", "example.org", "no-such.example")


@pytest.fixture
def instance(instance: dg.DagsterInstance) -> dg.DagsterInstance:
    instance.add_dynamic_partitions("crawl", [NEW])
    instance.add_dynamic_partitions("target", list(SITES))
    return instance


@pytest.fixture
def workspace(bucket: Bucket, tmp_path: Path) -> Workspace:
    made = workspace_of(bucket[0], tmp_path)
    harvest(made)
    made.register_targets([parse_target(site) for site in SITES])
    return made


def run(instance: dg.DagsterInstance, workspace: Workspace, *sites: str, **tags: str) -> None:
    """As the UI runs it: in a process of Dagster's."""
    assert execute_listed(instance, workspace, [f"{NEW}|{site}" for site in sites], tags).success


def published(workspace: Workspace) -> set[str]:
    if not workspace.settings.published_path.exists():
        return set()
    with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
        return {row[0] for row in connection.execute("SELECT DISTINCT target FROM capture_targets").fetchall()}


def publications(instance: dg.DagsterInstance) -> int:
    return len(instance.fetch_materializations(dg.AssetKey("warehouse"), limit=10).records)


@pytest.mark.process
def test_a_run_publishes_at_its_end_unless_others_go_on_or_a_command_does_it(
    workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    run(instance, workspace, "example.com")
    assert published(workspace) == {"example.com"}
    assert publications(instance) == 1, "the UI shows it"
    # nothing is new: nothing is published
    run(instance, workspace, "example.com")
    assert publications(instance) == 1
    other = instance.add_run(listed_run([f"{NEW}|no-such.example"], tables=["page_text"]))
    run(instance, workspace, "example.org")
    assert published(workspace) == {"example.com"}, "another run goes on, and the file is young"
    an_hour_ago = time.time() - 3600
    os.utime(workspace.settings.published_path, (an_hour_ago, an_hour_ago))
    run(instance, workspace, "no-such.example", **{PROCESS_TAG: this_process()})
    assert published(workspace) == {"example.com"}, "the command line publishes by itself"
    run(instance, workspace, "example.org")
    assert published(workspace) == {"example.com", "example.org"}, "long enough behind"
    instance.report_run_failed(other)
    # one that repeats another has the tags of that one, and goes on all the same
    tags = {PROCESS_TAG: this_process(), MADE_TAG: other.run_id}
    repeated = dg.DagsterRun(
        "extract_domain",
        tags={"dagster/partition": f"{NEW}|no-such.example"} | tags,
        status=dg.DagsterRunStatus.STARTED,
        root_run_id=other.run_id,
        parent_run_id=other.run_id,
    )
    assert not is_command_run(instance.add_run(repeated)), "so it publishes by itself"
    assert find_in_flight(instance, exclude_made=True).is_busy


@pytest.mark.process
def test_a_long_run_publishes_while_it_goes_on(
    workspace: Workspace, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publication, "_CHECK_INTERVAL", 0.0)
    seen: list[int] = []
    monkeypatch.setattr(publication.RunPublisher, "publish_at_end", lambda *_: seen.append(publications(instance)))
    run(instance, workspace, "example.com", "example.org")
    assert seen == [1], "there was no file, so the first partition was published; then it was young"


@pytest.mark.process
def test_a_publication_is_of_all_it_shows_also_of_what_was_recorded_after_it(
    workspace: Workspace, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publication, "_CHECK_INTERVAL", 0.0)
    run(instance, workspace, "example.com", "example.org")
    assert published(workspace) == {"example.com", "example.org"}
    newest = instance.get_latest_materialization_event(dg.AssetKey("warehouse"))
    assert newest is not None
    assert newest.asset_materialization is not None
    noted = newest.asset_materialization.tags or {}
    for asset in ("captures", "page_metadata"):
        [last] = instance.fetch_materializations(dg.AssetKey(asset), limit=1).records
        assert noted[f"dagster/input_event_pointer/{asset}"] == str(last.storage_id), "so the UI calls it in sync"
    keys = [spec.key for one in definitions().asset_checks or () for spec in one.check_specs]
    ours = [key for key in keys if key.asset_key.to_user_string() == "warehouse"]
    checked = instance.event_log_storage.get_latest_asset_check_execution_by_key(ours)
    assert {key.name: found.status.value for key, found in checked.items()} == {key.name: "SUCCEEDED" for key in ours}
    assert all(found.event is not None and found.event.timestamp >= newest.timestamp for found in checked.values())


def test_of_runs_that_end_together_the_last_publishes(workspace: Workspace, instance: dg.DagsterInstance) -> None:
    run(instance, workspace, "example.com")
    other = instance.add_run(listed_run([f"{NEW}|no-such.example"]))
    # it has made its partitions and saw this one go on, and is still at its checks
    instance.add_run_tags(other.run_id, {MADE_TAG: other.run_id})
    run(instance, workspace, "example.org")
    assert published(workspace) == {"example.com", "example.org"}
    said = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS]))
    assert all(one.tags[MADE_TAG] == one.run_id for one in said), "so the other one would have seen it as well"
    assert find_in_flight(instance).pairs == {(NEW, "no-such.example")}, "nobody asks for it before it has ended"


@pytest.mark.process
def test_a_publication_counts_what_failed_in_the_run_that_publishes(
    workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    bad = "two words.com"
    instance.add_dynamic_partitions("target", [bad])
    assert not execute_listed(instance, workspace, [f"{NEW}|example.com", f"{NEW}|{bad}"]).success
    key = dg.AssetCheckKey(dg.AssetKey("warehouse"), LEFT_FAILED)
    [found] = instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).values()
    assert found.status.value == "FAILED"
    told = found.event.dagster_event.asset_check_evaluation_data.metadata["partitions"]
    later = left_failed_result(instance).metadata
    assert later["failed partitions"].value == 1
    for table in (told, later["partitions"]):
        assert isinstance(table, dg.TableMetadataValue)
        [row] = table.records
        assert row.data["partition"] == f"{NEW}|{bad}" and "it has a space" in str(row.data["why"])
