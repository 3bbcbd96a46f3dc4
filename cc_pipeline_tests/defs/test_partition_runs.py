"""Runs over partitions: each is recorded when it is done, with its own figures, and fails by itself."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import dagster as dg
import pytest
from cc_pipeline.defs.declared.collected_parts import listed_ops
from cc_pipeline.defs.launcher import Launcher, RunFailed
from cc_pipeline.defs.partitions_in_flight import find_unresolved_failures
from cc_pipeline.defs.run_failures import FailedPartition, read_failed_partitions

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.definitions import defs
from cc_pipeline.defs import partition_runs as slices
from cc_pipeline.defs.home_namespace import OWN_HOME, WORKSPACE
from cc_pipeline.defs.partitions import config_of, partition_key, range_tags
from cc_pipeline.defs.recording import Described, summarize_failures
from cc_pipeline.errors import PlaceFault
from cc_pipeline.extraction import run as extract
from cc_pipeline.extraction.engine import LocalEngine
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.run import TABLES
from cc_pipeline.lake.slice import StageReport
from cc_pipeline.transport.faults import FaultKind, range_fault
from cc_pipeline.workspace.workspace import Workspace, open_workspace
from cc_pipeline_tests.defs.graph import (
    EXTRACT,
    definitions,
    execute,
    execute_listed,
    failure_of,
    recorded,
    settings_of,
)
from cc_pipeline_tests.world import NEW, OLD, Bucket, harvest, workspace_of

BAD = "two words.com"
#: Scattered, of two crawls, out of order, and one of them means nothing.
KEYS = [f"{NEW}|example.org", f"{OLD}|example.com", f"{NEW}|{BAD}", f"{NEW}|example.com", f"{OLD}|example.co.uk"]
GOOD = [key for key in KEYS if BAD not in key]


@pytest.fixture(scope="module")
def harvested(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose two crawls are harvested; to be copied."""
    home = tmp_path_factory.mktemp("harvested") / "home"
    workspace = workspace_of(bucket[0], home)
    for crawl in (NEW, OLD):
        harvest(workspace, crawl)
    return home


@pytest.fixture
def home(harvested: Path, tmp_path: Path) -> Path:
    return shutil.copytree(harvested, tmp_path / "home")


@pytest.fixture
def instance(bucket: Bucket, instance: dg.DagsterInstance) -> dg.DagsterInstance:
    instance.add_dynamic_partitions("crawl", [OLD, NEW])
    instance.add_dynamic_partitions("target", [*bucket[1].domains(), BAD])
    return instance


def status(instance: dg.DagsterInstance, asset: str, key: str) -> str | None:
    found = instance.get_status_by_partition(dg.AssetKey(asset), [key], OWN_HOME.pairs) or {}
    shown = found[key]
    return None if shown is None else shown.value


def test_one_bad_partition_of_several_crawls_fails_alone(
    bucket: Bucket, home: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(bucket[0], home)
    result = execute_listed(instance, settings, KEYS)
    assert not result.success
    for table in TABLES:
        found = recorded(instance, table)
        assert sorted(found) == sorted(GOOD)
        for key, one in found.items():
            crawl, slug = key.split("|")
            assert isinstance(one.partition, dg.MultiPartitionKey)
            assert one.metadata["dagster/partition_row_count"].value == rows(
                settings_of(bucket[0], home), table, crawl, slug
            )
            assert one.tags is not None
            assert one.tags["dagster/data_version"], "from content"
            of_rows = (dg.TableMetadataValue, dg.UrlMetadataValue, dg.PathMetadataValue)
            assert not [name for name, value in one.metadata.items() if isinstance(value, of_rows)], "counts only"
        assert {status(instance, table, key) for key in GOOD} == {"MATERIALIZED"}
        assert status(instance, table, f"{NEW}|{BAD}") is None, "Dagster knows of it by its observation only"
    figures = {key: one.metadata for key, one in recorded(instance, "records").items()}
    for key in GOOD:
        crawl, slug = key.split("|")
        planned = len(bucket[1].captures_of(crawl, subset="warc", domain=slug))
        assert figures[key]["fetched"].value == figures[key]["dagster/partition_row_count"].value == planned
        others = {"requests", "bytes read", "seconds", "rows written", "missing", "not here"}
        assert others.isdisjoint(figures[key]), "an event has no zeros and no costs of a group"
    costs = [entry.user_message for entry in instance.all_logs(result.run_id) if "requests" in entry.user_message]
    assert any(message.startswith("captures of ") for message in costs), costs
    [failure] = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    assert failure.user_failure_data is not None
    [named] = read_failed_partitions(failure.user_failure_data.metadata)
    assert (named.partition, named.error_class) == (f"{NEW}|{BAD}", "UserInputError")
    assert "1 of 5 partitions failed" in (failure.user_failure_data.description or "")
    assert "a space" in named.reason
    assert find_unresolved_failures(instance).keys() == {(NEW, BAD)}
    good_neighbours_were_checked(instance, result)
    says_why_it_failed(instance, result.run_id)
    # once more: what was made costs a look, and says so again
    again = execute_listed(instance, settings, KEYS)
    assert not again.success
    assert {one.metadata["rows written"].value for one in recorded(instance, "records").values()} == {0}
    assert find_unresolved_failures(instance).keys() == {(NEW, BAD)}


def test_a_source_that_refuses_all_is_no_failure_of_those_that_met_it_first(
    bucket: Bucket, home: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(workspace: Workspace, crawl: str, slugs: Sequence[str], **how: object) -> StageReport:
        raise range_fault(FaultKind.THROTTLED, f"cc-index/{slugs[0]}.parquet", 0, 10, "status 503", 6)

    monkeypatch.setattr(extract, "locate_captures", refuses)
    assert not execute_listed(instance, settings_of(bucket[0], home), GOOD).success
    found = find_unresolved_failures(instance)
    assert {partition_key(*pair): one.times for pair, one in found.items()} == dict.fromkeys(GOOD, 0)


def good_neighbours_were_checked(instance: dg.DagsterInstance, result: dg.ExecuteInProcessResult) -> None:
    """Every check that the run was to make, of what it made; the one about failures says that there was one."""
    keys = {spec.key for one in definitions().asset_checks or () for spec in one.check_specs}
    ours = {key for key in keys if key.asset_key.to_user_string() in TABLES}
    found = {one.asset_check_key: one for one in result.get_asset_check_evaluations()}
    assert found.keys() == ours
    wrong = {key.name: one.description or "" for key, one in found.items() if not one.passed}
    assert wrong.keys() == {"no_failed_partitions"}
    assert f"1 partition failed and has not succeeded since: {NEW}|{BAD}" in wrong["no_failed_partitions"]
    assert "it has a space" in wrong["no_failed_partitions"], "the reason stands there before the run has ended"
    scopes = {key.name: one.metadata["scope"].value for key, one in found.items()}
    assert scopes["ledger_balances"] == scopes["texts_are_there"] == "4 partitions of this run"
    shown = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(ours))
    assert {one.run_id for one in shown.values()} == {result.run_id}
    assert {one.status.value for key, one in shown.items() if key.name not in wrong} == {"SUCCEEDED"}


def says_why_it_failed(instance: dg.DagsterInstance, run_id: str) -> None:
    """On the page of the partition, in each of its tables, and of no other."""
    for table in TABLES:
        told = instance.fetch_observations(dg.AssetKey(table), limit=10).records
        [one] = [record.asset_observation for record in told]
        assert one is not None
        assert one.partition == f"{NEW}|{BAD}"
        assert "a space" in str(one.metadata["failed because"].value)
        assert one.metadata["run"] == dg.MetadataValue.dagster_run(run_id)


def rows(settings: object, table: str, crawl: str = "", slug: str = "") -> int:
    where = {"crawl": crawl, "target": slug} if crawl else {}
    with open_workspace(settings) as workspace:
        return workspace.lake.read(table, where, ["target"]).num_rows


def test_the_same_rows_have_the_same_version_and_a_single_partition_has_its_own_costs(
    bucket: Bucket, home: Path, instance: dg.DagsterInstance
) -> None:
    settings = settings_of(bucket[0], home)
    assert execute(instance, settings, "extract_domain", key=GOOD[0]).success
    before = recorded(instance, "records")[GOOD[0]]
    assert before.metadata["requests"].value > 0
    assert execute(instance, settings, "extract_domain", tags=range_tags(GOOD[0], GOOD[0])).success
    again = recorded(instance, "records")[GOOD[0]]
    assert again.metadata["rows written"].value == 0
    assert again.metadata["dagster/partition_row_count"] == before.metadata["dagster/partition_row_count"]
    assert (again.tags or {})["dagster/data_version"] == (before.tags or {})["dagster/data_version"]


def test_a_range_records_the_good_and_shows_the_bad_as_failed(
    bucket: Bucket, home: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(workspace: Workspace, crawl: str, slugs: Sequence[str], **how: object) -> StageReport:
        if "example.org" in slugs:
            raise RuntimeError("a bug")
        return fetch_captures(workspace, crawl, slugs, **how)

    monkeypatch.setattr(extract, "fetch_captures", broken)
    every = list(instance.get_dynamic_partitions("target"))
    domains = every[every.index("example.org") - 1 :][:3]
    tags = range_tags(f"{NEW}|{domains[0]}", f"{NEW}|{domains[-1]}")
    result = execute(instance, settings_of(bucket[0], home), "extract_domain", tags=tags)
    assert not result.success
    assert "a bug" in failure_of(result)
    assert sorted(recorded(instance, "captures")) == sorted(f"{NEW}|{domain}" for domain in domains)
    good = {f"{NEW}|{domain}" for domain in domains if domain != "example.org"}
    assert set(recorded(instance, "page_text")) == set(recorded(instance, "records")) == good
    assert status(instance, "captures", f"{NEW}|example.org") == "MATERIALIZED"
    assert {status(instance, table, f"{NEW}|example.org") for table in ("records", "page_links")} == {"FAILED"}


@pytest.mark.process
def test_some_of_the_tables(bucket: Bucket, home: Path, instance: dg.DagsterInstance) -> None:
    records = {"captures", "records"}
    for made in (records, set(TABLES) - records):
        result = execute_listed(instance, settings_of(bucket[0], home), GOOD, tables=sorted(made))
        assert result.success
        assert {event.asset_key.to_user_string() for event in result.get_asset_materialization_events()} == made
        assert all(set(recorded(instance, table)) == set(GOOD) for table in made)


@pytest.mark.parametrize(
    ("config", "said_so"),
    [
        ({"partitions": {}}, "the run names no partition Name some"),
        ({"partitions": {NEW: ["example.net"]}}, "'example.net' is no target .* cc-pipeline targets add"),
        ({"partitions": {"CC-MAIN-1999-01": ["example.com"]}}, "'CC-MAIN-1999-01' is no crawl .* cc-pipeline crawls"),
        ({"partitions": {NEW: ["example.com"]}, "tables": ["record"]}, "did you mean records"),
    ],
)
def test_a_list_that_names_nothing_says_what_to_write(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance, config: dict[str, object], said_so: str
) -> None:
    result = execute(instance, settings_of(bucket[0], tmp_path), EXTRACT, **{listed_ops()[EXTRACT]: config})
    assert not result.success
    assert re.search(said_so, failure_of(result).replace("\n", " "))
    assert not (tmp_path / "lake" / "tables").exists(), "before anything was done"


def test_a_run_without_a_partition_says_what_to_choose(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    result = execute(instance, settings_of(bucket[0], tmp_path), "extract_domain")
    assert "the run names no partition" in failure_of(result)


def test_what_stands_behind_a_step_is_refused_in_its_run(
    bucket: Bucket, home: Path, instance: dg.DagsterInstance
) -> None:
    """Dagster would skip it, and the run would end green."""

    @dg.asset(partitions_def=OWN_HOME.pairs, deps=["page_text"])
    def counted() -> None:
        """An asset of a user."""

    def run(*assets: str) -> dg.ExecuteInProcessResult:
        some = dg.define_asset_job("some", dg.AssetSelection.assets(*assets))
        job = dg.Definitions.merge(definitions(), dg.Definitions([counted], jobs=[some])).resolve_job_def("some")
        with open_workspace(settings_of(bucket[0], home)) as workspace:
            return job.execute_in_process(
                instance=instance, partition_key=GOOD[0], resources={WORKSPACE: workspace}, raise_on_error=False
            )

    refused = run(*TABLES, "counted")
    assert not refused.success
    assert "Dagster would skip counted in this run" in failure_of(refused)
    assert "Launch these assets in another run" in failure_of(refused)
    assert run(*TABLES).success
    assert run("counted").success
    assert {status(instance, asset, GOOD[0]) for asset in (*TABLES, "counted")} == {"MATERIALIZED"}


def test_a_command_takes_scattered_targets_of_several_crawls_in_one_run(bucket: Bucket, home: Path) -> None:
    settings = settings_of(bucket[0], home)
    targets = [parse_target(text) for text in ("example.org", "example.com")]
    with open_workspace(settings) as workspace, Launcher(workspace) as launcher:
        launcher.add_targets([parse_target(domain) for domain in bucket[1].domains()])
        [run] = launcher.extract([OLD, NEW], targets)
        stored = launcher.instance.get_run_by_id(run.run_id)
        assert stored is not None
        # the UI lists it with the location's runs
        ours = dg.RunsFilter(tags={".dagster/repository": "__repository__@cc_pipeline", "dagster/max_retries": "0"})
        assert run.run_id in {one.run_id for one in launcher.instance.get_runs(ours)}
        assert len(recorded(launcher.instance, "page_metadata")) == 4


@pytest.mark.process
def test_records_of_a_home_whose_dagster_knows_no_crawl_are_parsed(bucket: Bucket, home: Path) -> None:
    settings, target = settings_of(bucket[0], home), parse_target("example.org")
    with open_workspace(settings) as workspace, Launcher(workspace) as launcher:
        list(launcher.fetch(NEW, [target]))
    shutil.rmtree(settings.dagster_home)
    with open_workspace(settings) as workspace, Launcher(workspace) as launcher:
        launcher.add_targets([target])
        [run] = launcher.parse(NEW, [target.slug])
        assert run.partitions == f"{NEW}|example.org"
        assert list(recorded(launcher.instance, "page_text")) == [f"{NEW}|example.org"]


@pytest.mark.process
def test_a_command_makes_all_it_can_and_then_says_what_failed(
    bucket: Bucket, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    domains = sorted(bucket[1].domains())[:4]

    def broken(workspace: Workspace, crawl: str, slugs: Sequence[str], **how: object) -> StageReport:
        if domains[0] in slugs:
            raise RuntimeError("a bug")
        return fetch_captures(workspace, crawl, slugs, **how)

    monkeypatch.setattr(extract, "fetch_captures", broken)
    settings = settings_of(bucket[0], home)
    with open_workspace(settings) as workspace:
        small = Workspace(replace(settings, partitions_per_run=3))
        try:
            with Launcher(small) as launcher:
                before = launcher.instance.get_runs_count()
                with pytest.raises(RunFailed) as failed:
                    list(launcher.extract([NEW], [parse_target(domain) for domain in domains]))
                assert launcher.instance.get_runs_count() - before == 2
                assert set(recorded(launcher.instance, "records")) == {f"{NEW}|{domain}" for domain in domains[1:]}
        finally:
            small.close()
        assert [one.partition for one in failed.value.failed] == [f"{NEW}|{domains[0]}"]
        assert failed.value.error_class == "RuntimeError"
        assert not failed.value.is_incomplete
        assert workspace.lake.read("page_metadata", {"crawl": NEW, "target": domains[-1]}).num_rows


def test_a_full_disk_ends_the_run_and_no_other_is_begun(
    bucket: Bucket, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(workspace: Workspace, crawl: str, slugs: Sequence[str], **how: object) -> StageReport:
        raise PlaceFault("the disk is full", "Free some space")

    monkeypatch.setattr(extract, "fetch_captures", full)
    workspace = Workspace(replace(settings_of(bucket[0], home), partitions_per_run=2))
    with open_workspace(workspace.settings) as opened, Launcher(opened) as launcher:
        before = launcher.instance.get_runs_count()
        with pytest.raises(RunFailed, match="the disk is full") as failed:
            list(launcher.extract([NEW], [parse_target(domain) for domain in bucket[1].domains()]))
        assert launcher.instance.get_runs_count() - before == 1
        assert failed.value.failed == ()
        assert len(recorded(launcher.instance, "captures")) == 2, "they were located"
        assert {one.times for one in find_unresolved_failures(launcher.instance).values()} == {0}, (
            "it is the fault of none of them"
        )


@pytest.mark.matrix
@pytest.mark.parametrize("ends", [PlaceFault("the disk is full", "Free some space"), KeyboardInterrupt(), None])
def test_only_what_was_tried_counts_as_failed_when_a_run_ends_early(
    bucket: Bucket, home: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, ends: BaseException
) -> None:
    """Groups of two: of the first one fails by itself, the second ends the run, and there is a third. ``None`` stands
    for a bug, and for a process that is killed: nobody can tell which of those in hand was the reason."""
    domains = sorted(bucket[1].domains())[:5]

    def broken(workspace: Workspace, crawl: str, slugs: Sequence[str], **how: object) -> StageReport:
        if domains[0] in slugs:
            raise RuntimeError("its own")
        if domains[2] in slugs and ends is not None:
            raise ends
        return fetch_captures(workspace, crawl, slugs, **how)

    monkeypatch.setattr(extract, "fetch_captures", broken)
    monkeypatch.setattr(extract, "extract", partial(extract.extract, engine=LocalEngine(partitions=2)))
    if ends is None:
        described = slices._Descriptions.describe

        def buggy(self: slices._Descriptions, made: extract.PartitionResult, table: str) -> Described:
            if made.slug == domains[2]:
                raise RuntimeError("a bug")
            return described(self, made, table)

        monkeypatch.setattr(slices._Descriptions, "describe", buggy)
    keys = [f"{NEW}|{domain}" for domain in domains]
    with suppress(KeyboardInterrupt):
        assert not execute_listed(instance, settings_of(bucket[0], home), keys).success
    found = find_unresolved_failures(instance)
    told = {
        domain: (found[NEW, domain].times, found[NEW, domain].unreached) for domain in domains if domain != domains[1]
    }
    in_hand = (1, 0) if ends is None else (0, 1)
    assert told == {domains[0]: (1, 0), domains[2]: in_hand, domains[3]: in_hand, domains[4]: (0, 1)}
    assert (NEW, domains[1]) not in found


def test_settings_that_cannot_be_used_are_no_partitions_fault(
    bucket: Bucket, home: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC_PIPELINE_RATE", "many")
    job = defs().resolve_job_def(EXTRACT)
    asked = config_of(listed_ops()[EXTRACT], GOOD)
    assert not job.execute_in_process(instance=instance, run_config=asked, raise_on_error=False).success
    assert {(one.times, one.unreached) for one in find_unresolved_failures(instance).values()} == {(0, 1)}


def test_a_message_names_the_first_and_counts_the_others() -> None:
    failed = [FailedPartition(f"C|t{number}", "EnvironmentFault", f"reason {number}\nadvice") for number in range(8)]
    assert summarize_failures(failed[:1], 1) == "reason 0\nadvice"
    text = summarize_failures(failed, 200)
    assert text.startswith("8 of 200 partitions failed, the others are done. C|t0: reason 0; C|t1: reason 1")
    assert text.endswith("C|t4: reason 4; and 3 more\nadvice")


def test_an_advice_names_each_partition_that_it_is_for() -> None:
    advices = {"C|a": "wait", "C|b": "log in", "C|c": "wait"}
    failed = [FailedPartition(key, "EnvironmentFault", f"refused\n{advice}") for key, advice in advices.items()]
    assert summarize_failures(failed, 3).split("\n")[1:] == ["C|a, C|c: wait", "C|b: log in"]
