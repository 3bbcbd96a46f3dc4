"""What is in flight and what was left failed, whoever asked: runs with every kind of tags, and backfills of the UI."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from cc_pipeline.defs.checks.check_runs import left_failed_result
from cc_pipeline.defs.internals import find_origin, open_backfills
from cc_pipeline.defs.partitions_in_flight import (
    ORPHAN_AGE,
    UNFINISHED,
    ActivePartitions,
    find_extracted_assets,
    find_in_flight,
    find_orphaned_runs,
    find_unresolved_failures,
    read_ended_runs,
)
from cc_pipeline.defs.run_notes import note_tried
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.remote_origin import RemotePartitionSetOrigin

from cc_pipeline.definitions import defs
from cc_pipeline.defs.partitions import KIND_TAG, range_tags
from cc_pipeline_tests.defs.graph import began, began_listed, listed_run

CRAWLS, DOMAINS = ["A", "B"], ["w", "x", "y", "z"]
FAILURE, STARTED = dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.STARTED
_MOVED = "an upgrade of Dagster moved this; see cc_pipeline/defs/internals.py"


@pytest.fixture
def instance(instance: dg.DagsterInstance) -> dg.DagsterInstance:
    instance.add_dynamic_partitions("crawl", CRAWLS)
    instance.add_dynamic_partitions("target", DOMAINS)
    return instance


def add(
    instance: dg.DagsterInstance,
    tags: dict[str, str],
    job: str = "extract_domain",
    assets: set[str] | None = None,
    status: dg.DagsterRunStatus = STARTED,
) -> dg.DagsterRun:
    selection = frozenset(map(dg.AssetKey, assets)) if assets is not None else None
    return instance.add_run(dg.DagsterRun(job_name=job, tags=tags, status=status, asset_selection=selection))


def recorded(instance: dg.DagsterInstance, *keys: str, asset: str = "page_metadata") -> None:
    for key in keys:
        instance.report_runless_asset_event(dg.AssetMaterialization(asset, partition=key))


@pytest.mark.parametrize(
    ("tags", "pairs"),
    [
        ({"dagster/partition": "A|w"}, {("A", "w")}),
        (range_tags("A|x", "B|y"), {(crawl, domain) for crawl in "AB" for domain in "xy"}),
        ({}, set()),
    ],
)
def test_a_run_is_in_flight_until_it_ends_however_it_names_its_partitions(
    instance: dg.DagsterInstance, tags: dict[str, str], pairs: set[tuple[str, str]]
) -> None:
    run = add(instance, tags)
    assert find_in_flight(instance).pairs == pairs
    instance.report_run_failed(run)
    assert find_in_flight(instance).pairs == set()


def test_a_run_over_a_list_is_in_flight_until_it_ends(instance: dg.DagsterInstance) -> None:
    run = instance.add_run(listed_run(["B|z", "A|x"]))
    assert find_in_flight(instance).pairs == {("B", "z"), ("A", "x")}
    instance.report_run_failed(run)
    assert find_in_flight(instance).pairs == set()
    instance.add_run(dg.DagsterRun("extract_targets", status=STARTED, run_config={"ops": {"extract_listed": {}}}))
    assert find_in_flight(instance).pairs == set(), "it names none"


def test_every_state_before_the_end_counts(instance: dg.DagsterInstance) -> None:
    # a run made by hand cannot be queued without an origin
    some = [status for status in UNFINISHED if status is not dg.DagsterRunStatus.QUEUED]
    assert len(UNFINISHED) == len(some) + 1
    for number, (status, domain) in enumerate(zip(some, DOMAINS, strict=True), 1):
        add(instance, {"dagster/partition": f"A|{domain}", KIND_TAG: "repair"}, status=status)
        found = find_in_flight(instance)
        assert (len(found.pairs), found.runs) == (number, {"repair": number})


@pytest.mark.parametrize(
    ("job", "assets", "counts"),
    [
        ("extract_domain", None, True),
        ("extract_domain", set(), True),
        ("__ASSET_JOB", {"captures", "records"}, True),
        ("__ASSET_JOB", {"source_metadata"}, False),
        ("harvest_crawl", None, False),
        ("publish", None, False),
    ],
)
def test_only_runs_that_make_our_assets_count(
    instance: dg.DagsterInstance, job: str, assets: set[str] | None, counts: bool
) -> None:
    add(instance, {"dagster/partition": "A|w"}, job, assets)
    assert find_in_flight(instance).pairs == ({("A", "w")} if counts else set())


def backfill_of(instance: dg.DagsterInstance, keys: list[str] | None, **changed: Any) -> PartitionBackfill:
    return PartitionBackfill.from_asset_partitions(
        asset_graph=defs().get_repository_def().asset_graph,
        backfill_id=changed.pop("backfill_id", "one"),
        tags={},
        backfill_timestamp=time.time(),
        asset_selection=[dg.AssetKey(name) for name in changed.pop("assets", ("captures", "records"))],
        partition_names=keys,
        dynamic_partitions_store=instance,
        all_partitions=keys is None,
        title=None,
        description=None,
        run_config=None,
    )


def test_a_backfill_of_the_ui_is_in_flight_before_its_runs_are_there(instance: dg.DagsterInstance) -> None:
    instance.add_backfill(backfill_of(instance, ["A|x", "B|z"]))
    assert find_in_flight(instance).pairs == {("A", "x"), ("B", "z")}
    instance.add_backfill(backfill_of(instance, None, backfill_id="two", assets=("source_metadata",)))
    assert find_in_flight(instance).pairs == {("A", "x"), ("B", "z")}, (
        "files that are read whole are not in the way of an extraction"
    )


def test_what_a_backfill_has_made_or_failed_is_not_in_flight(instance: dg.DagsterInstance) -> None:
    made = backfill_of(instance, ["A|w", "A|x", "A|y"])
    data = made.asset_backfill_data
    assert data is not None
    assert hasattr(data, "materialized_subset"), f"AssetBackfillData: {_MOVED}"
    part = {one: backfill_of(instance, [one]).asset_backfill_data for one in ("A|w", "A|x")}
    data = data._replace(
        materialized_subset=part["A|w"].target_subset, failed_and_downstream_subset=part["A|x"].target_subset
    )
    instance.add_backfill(made.with_asset_backfill_data(data, instance, defs().get_repository_def().asset_graph))
    assert find_in_flight(instance).pairs == {("A", "y")}
    [one] = open_backfills(instance)
    assert one.remaining == {"captures": {"A|y"}, "records": {"A|y"}}, f"open_backfills: {_MOVED}"
    # what was made since the daemon looked is not in flight either
    looked = made.with_asset_backfill_data(
        data._replace(latest_storage_id=0), instance, defs().get_repository_def().asset_graph
    )
    instance.update_backfill(looked)
    recorded(instance, "A|y", asset="captures")
    assert find_in_flight(instance).pairs == {("A", "y")}, "its records are to come"
    recorded(instance, "A|y", asset="records")
    assert find_in_flight(instance).pairs == set()
    instance.update_backfill(made.with_status(BulkActionStatus.COMPLETED_FAILED))
    assert find_in_flight(instance).pairs == set()


def job_backfill_of(keys: list[str]) -> PartitionBackfill:
    return PartitionBackfill(
        backfill_id="one",
        status=BulkActionStatus.REQUESTED,
        from_failure=False,
        tags={},
        backfill_timestamp=time.time(),
        partition_set_origin=RemotePartitionSetOrigin(
            repository_origin=find_origin("none").repository_origin, partition_set_name="extract_domain_partition_set"
        ),
        partition_names=keys,
    )


def test_a_jobs_backfill_is_in_flight_but_for_what_its_ended_runs_were_for(instance: dg.DagsterInstance) -> None:
    instance.add_backfill(job_backfill_of(["A|w", "A|x", "B|w", "B|x"]))
    assert find_in_flight(instance).pairs == {(crawl, domain) for crawl in "AB" for domain in "wx"}
    # each of its runs has the dimensions of the first partition of all
    first = {"dagster/partition/crawl": "A", "dagster/partition/target": "w", "dagster/backfill": "one"}
    instance.report_run_failed(add(instance, {**range_tags("B|w", "B|x"), **first}))
    assert find_in_flight(instance).pairs == {("A", "w"), ("A", "x")}


def test_a_failed_run_counts_for_what_was_not_recorded_since_it_began(instance: dg.DagsterInstance) -> None:
    recorded(instance, "A|w")
    run = began_listed(instance, ["A|w", "A|x", "A|y"])
    recorded(instance, "A|x")
    instance.report_run_failed(run)
    found = find_unresolved_failures(instance)
    assert set(found) == {("A", "w"), ("A", "y")}, "made before is not made by this run"
    assert (found["A", "y"].times, found["A", "y"].run_id) == (1, run.run_id)
    # whoever makes it settles it
    recorded(instance, "A|y")
    assert set(find_unresolved_failures(instance)) == {("A", "w")}


def test_failures_in_a_row_are_counted_whoever_asked(instance: dg.DagsterInstance) -> None:
    key = {"dagster/partition": "A|w"}
    runs = []
    for job, assets in (("extract_domain", ()), ("__ASSET_JOB", {"page_metadata", "page_text"})):
        runs.append(began(instance, key, job=job, assets=assets))
        instance.report_run_failed(runs[-1])
    began_only = began(instance, key)
    instance.report_run_canceled(began_only)
    one = find_unresolved_failures(instance)["A", "w"]
    assert (one.times, one.run_id) == (2, runs[-1].run_id)
    assert one.since <= one.last
    recorded(instance, "A|w")
    instance.report_run_failed(began(instance, key))
    assert find_unresolved_failures(instance)["A", "w"].times == 1, "what came through in between starts the count anew"


def test_what_is_no_partition_is_not_left_failed(instance: dg.DagsterInstance) -> None:
    instance.report_run_failed(began_listed(instance, ["A|w", "A|mistyped", "C|x", "A|y"]))
    instance.delete_dynamic_partition("target", "y")
    assert set(find_unresolved_failures(instance)) == {("A", "w")}


def test_a_standing_check_tells_of_what_was_left_failed(instance: dg.DagsterInstance) -> None:
    assert left_failed_result(instance).passed
    for times in range(4):
        instance.report_run_failed(began(instance, {"dagster/partition": "A|w"}))
        found = left_failed_result(instance)
        assert not found.passed
        assert found.severity is (dg.AssetCheckSeverity.WARN if times < 3 else dg.AssetCheckSeverity.ERROR)
    recorded(instance, "A|w")
    assert left_failed_result(instance).passed


def test_a_run_that_only_fetched_is_judged_by_its_records(instance: dg.DagsterInstance) -> None:
    run = began_listed(instance, ["A|w", "A|x"], tables=["captures", "records"])
    recorded(instance, "A|w", asset="records")
    instance.report_run_failed(run)
    assert set(find_unresolved_failures(instance)) == {("A", "x")}


def test_the_pace_is_that_of_runs_that_fetched_and_parsed(instance: dg.DagsterInstance) -> None:
    whole = [began_listed(instance, ["A|w", "B|x"]), began(instance, range_tags("A|w", "A|y"))]
    parts = [
        began_listed(instance, ["A|w"], tables=["captures", "records"]),
        began_listed(instance, ["A|w"], tables=["page_metadata", "page_text", "page_links", "feed_items"]),
        began(instance, {"dagster/partition": "A|w"}, assets=["page_text"]),
    ]
    for run in (*whole, *parts):
        instance.report_dagster_event(dg.DagsterEvent("PIPELINE_SUCCESS", run.job_name), run.run_id)
    assert sorted(count for _, count in read_ended_runs(instance)) == [2, 3]


def test_a_run_that_never_began_fails_none_of_its_partitions(instance: dg.DagsterInstance) -> None:
    recorded(instance, "A|w")
    for times in (1, 2):
        run = instance.add_run(listed_run(["A|w", "A|x"], status=dg.DagsterRunStatus.STARTING))
        instance.report_run_failed(run)
        found = find_unresolved_failures(instance)
        assert {pair: (one.times, one.unreached) for pair, one in found.items()} == {
            ("A", "w"): (0, times),
            ("A", "x"): (0, times),
        }


def test_only_what_a_run_had_in_hand_failed(instance: dg.DagsterInstance) -> None:
    keys = ["A|w", "A|x", "A|y"]
    first = began_listed(instance, keys)
    note_tried(instance, first.run_id, ["A|w", "A|x"])
    recorded(instance, "A|w")
    instance.report_run_failed(first)
    told = {pair: (one.times, one.unreached) for pair, one in find_unresolved_failures(instance).items()}
    assert told == {("A", "x"): (1, 0), ("A", "y"): (0, 1)}
    # one that repeats it tries something else
    again = began_listed(instance, keys[1:])
    note_tried(instance, again.run_id, ["A|y"])
    instance.report_run_failed(again)
    told = {pair: (one.times, one.unreached) for pair, one in find_unresolved_failures(instance).items()}
    assert told == {("A", "x"): (1, 1), ("A", "y"): (1, 0)}, "a run that tried it at last starts the count anew"


def test_failures_are_forgotten_after_a_while_and_other_jobs_have_none(instance: dg.DagsterInstance) -> None:
    instance.report_run_failed(began(instance, {"dagster/partition": "A|w"}))
    instance.report_run_failed(began(instance, {"dagster/partition": "A|x"}, job="harvest_crawl"))
    assert set(find_unresolved_failures(instance)) == {("A", "w")}
    assert find_unresolved_failures(instance, now=datetime.now(UTC) + timedelta(days=8)) == {}


def test_what_a_run_makes_is_in_the_order_of_what_is_made_last() -> None:
    selection = frozenset(map(dg.AssetKey, ("captures", "page_text", "records", "warehouse")))
    assert find_extracted_assets(dg.DagsterRun("__ASSET_JOB", asset_selection=selection)) == (
        "page_text",
        "records",
        "captures",
    )


def test_a_run_that_nobody_queued_is_in_flight_for_a_while_only(instance: dg.DagsterInstance) -> None:
    run = listed_run(["A|x"], status=dg.DagsterRunStatus.NOT_STARTED)
    instance.run_storage.add_historical_run(run, datetime.now(UTC) - ORPHAN_AGE)
    assert find_in_flight(instance) == ActivePartitions(frozenset(), {})
    # one that writes what it plans goes on, however long that takes
    instance.report_engine_event("planned", run)
    assert find_in_flight(instance).pairs == {("A", "x")}
    young = instance.add_run(listed_run(["A|y"], status=dg.DagsterRunStatus.NOT_STARTED))
    assert find_in_flight(instance).pairs == {("A", "x"), ("A", "y")}
    assert find_orphaned_runs(instance) == []
    assert young.status is dg.DagsterRunStatus.NOT_STARTED
