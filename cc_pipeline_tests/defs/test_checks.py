"""Asset checks run in a job, report what is so, and never stop anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from cc_pipeline.defs.checks.steps import LEFT_FAILED, check_steps

from cc_pipeline.checks import conservation, outputs
from cc_pipeline.checks import scope as scopes
from cc_pipeline.checks.check import Check
from cc_pipeline.checks.evaluate import find_checks
from cc_pipeline.checks.scope import CheckResult
from cc_pipeline.defs.checks import check_runs
from cc_pipeline.defs.home_namespace import OWN_HOME, WORKSPACE
from cc_pipeline.defs.partitions import CHECK_SCOPE_TAG, EVERYTHING
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.slice import FETCH, Slice
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.checks.changed_slices import recommit, without_the_first
from cc_pipeline_tests.defs.graph import definitions
from cc_pipeline_tests.world import ARC, NEW, OLD, Bucket, extract, harvest, workspace_of

DECLARED: list[Check] = find_checks()
CHECKS = check_steps(OWN_HOME, DECLARED)
NAMES = sorted(spec.key.to_user_string() for check in CHECKS for spec in check.check_specs)


@pytest.fixture(scope="module")
def sound(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A home in which all is well."""
    workspace = workspace_of(bucket[0], tmp_path_factory.mktemp("sound"))
    for crawl in (NEW, OLD, ARC):
        harvest(workspace, crawl)
    extract(workspace, "example.com", "example-foo.com")
    extract(workspace, "example.com", crawl=ARC)
    return workspace


def all_results(
    workspace: Workspace, instance: dg.DagsterInstance, *chosen: str, tags: dict[str, str] | None = None
) -> dict[str, dg.AssetCheckEvaluation]:
    """Runs the ``chosen`` checks (default: all) in one job, as the UI does, and reads what the instance kept."""
    keys = [spec.key for check in CHECKS for spec in check.check_specs if not chosen or spec.name in chosen]
    job = dg.define_asset_job("checks", selection=dg.AssetSelection.checks(*keys))
    resolved = dg.Definitions(
        assets=list(definitions().assets or ()), asset_checks=CHECKS, jobs=[job], resources={WORKSPACE: workspace}
    ).resolve_job_def("checks")
    ran = resolved.execute_in_process(
        instance=instance, run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}, tags=tags
    )
    assert ran.success, "a check that finds something is no failure of its run"
    found = {one.asset_check_key.to_user_string(): one for one in ran.get_asset_check_evaluations()}
    assert sorted(found) == sorted(key.to_user_string() for key in keys)
    return found


def results(
    workspace: Workspace, instance: dg.DagsterInstance, partition: str | None = None
) -> dict[str, dg.AssetCheckEvaluation]:
    """The same by the names of checks, of those whose name is theirs alone; as in a run over a partition."""
    found = all_results(workspace, instance, tags={} if partition is None else {"dagster/partition": partition})
    names = Counter(key.rpartition(":")[2] for key in found)
    return {key.rpartition(":")[2]: one for key, one in found.items() if names[key.rpartition(":")[2]] == 1}


def test_what_a_check_says_is_text_where_the_ui_reads_markdown(
    sound: Workspace, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise EnvironmentFault("![x](http://a.example/p.png) <img src=x>", "Look at page_text in __init__.py.")

    monkeypatch.setattr(check_runs, "see", broken)
    said = results(sound, instance)["ledger_balances"].description or ""
    assert said == (
        "the check failed with an error, so its result is not known: \\!\\[x\\](http://a.example/p.png) \\<img "
        "src=x\\>  \nLook at page_text in \\_\\_init\\_\\_.py."
    )


def test_the_advice_of_a_check_is_shown_with_its_message(
    sound: Workspace, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = CheckResult("rows_as_in_the_lake", "error", "cc.duckdb omits faulty slices", advice="Rebuild them.")
    monkeypatch.setattr(outputs, "published_verdict", lambda *_: verdict)
    said = results(sound, instance)["rows_as_in_the_lake"].description or ""
    assert said.split("\n")[-1] == "Rebuild them." and said.startswith("cc.duckdb omits faulty slices")


def test_all_is_well_in_a_sound_home(sound: Workspace, instance: dg.DagsterInstance, bucket: Bucket) -> None:
    found = results(sound, instance)
    # a mini crawl is far smaller than any that was published, and CC-MAIN-2018-05 has no statistics
    expected_to_warn = {"plausible_rows", "statistics", "sortedness", "schema_drift"}
    for name, one in found.items():
        assert one.passed or name in expected_to_warn, (name, one.description)
        assert one.severity == dg.AssetCheckSeverity.WARN, (name, one.description)
        assert one.description
    planned = sum(
        len(bucket[1].captures_of(NEW, subset="warc", domain=domain)) for domain in ("example.com", "example-foo.com")
    )
    planned += len(bucket[1].captures_of(ARC, domain="example.com"))
    assert f"each of {planned:,} planned captures" in (found["ledger_balances"].description or "")
    assert found["ledger_balances"].metadata["partitions"].value == 3
    assert "a second index has the same captures in" in (found["locators_agree"].description or "")
    assert found["locators_agree"].metadata["partitions compared"].value >= 1
    assert OLD in (found["statistics"].description or "")


def test_checks_of_a_home_with_nothing_in_it_have_nothing_to_say(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    found = results(workspace_of(bucket[0], tmp_path), instance)
    assert all(one.passed for one in found.values())
    assert found["coverage"].description == "nothing to check"


def test_checks_of_a_run_look_at_its_partitions_alone(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = workspace_of(bucket[0], tmp_path)
    for crawl in (OLD, NEW):
        harvest(workspace, crawl)
    extract(workspace, "example.com")
    extract(workspace, "example-foo.com")
    instance.add_dynamic_partitions("crawl", [OLD, NEW])
    instance.add_dynamic_partitions("target", ["example.com", "example-foo.com"])
    [other] = workspace.lake.read("records", {"target": "example-foo.com"})["stored_file"].unique().to_pylist()
    (tmp_path / "lake" / other).unlink()
    read: list[Slice] = []
    plain = conservation.read_slice_states

    def noted(workspace: Workspace, slices: Collection[Slice], *how: Any, **named: Any) -> Any:
        read.extend(slices)
        return plain(workspace, slices, *how, **named)

    with monkeypatch.context() as patch:
        patch.setattr(conservation, "read_slice_states", noted)
        mine = results(workspace, instance, f"{NEW}|example.com")
    assert {slice_.partition for slice_ in read} == {Slice(NEW, "example.com")}
    assert mine["stored_files"].passed
    assert mine["ledger_balances"].metadata["partitions (this run)"].value == 1
    lost = results(workspace, instance)["stored_files"]
    assert (lost.passed, lost.severity) == (False, dg.AssetCheckSeverity.ERROR)
    # and a harvest's look at its crawl
    crawl = results(workspace, instance, OLD)
    assert OLD in (crawl["statistics"].description or "")
    assert NEW not in (crawl["statistics"].description or "")


def texts_of(found: dg.AssetCheckEvaluation) -> dict[str, str]:
    """The metadata that the UI shows as text."""
    return {name: value.text or "" for name, value in found.metadata.items() if isinstance(value, dg.TextMetadataValue)}


@pytest.mark.process
def test_a_check_alone_looks_at_what_changed_since_and_at_what_was_wrong(
    bucket: Bucket, tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scopes, "_MARGIN", timedelta())
    workspace = workspace_of(bucket[0], tmp_path)
    harvest(workspace)
    extract(workspace, "example.com", "example-foo.com")

    def look(tags: dict[str, str] | None = None) -> dg.AssetCheckEvaluation:
        [found] = all_results(workspace, instance, "ledger_balances", tags=tags).values()
        return found

    def scope(found: dg.AssetCheckEvaluation) -> tuple[Any, Any]:
        [counted] = [label for label in found.metadata if label.startswith("partitions")]
        seen.add(counted)
        return found.metadata["scope"].value, found.metadata[counted].value

    seen: set[str] = set()

    assert scope(look()) == ("everything", 2)
    assert scope(look()) == ("0 changed partitions", 0)
    extract(workspace, "example.org")
    assert scope(look()) == ("1 changed partition", 1)
    broken = Slice(NEW, "example.com")
    records = workspace.lake.read("records", broken.where)
    recommit(workspace.lake, FETCH, broken, {"records": without_the_first})
    found = look()
    assert (found.passed, *scope(found)) == (False, "1 changed partition", 1)
    # nothing has changed since, and it is still wrong
    found = look()
    assert (found.passed, *scope(found)) == (False, "1 changed partition", 1)
    # a run over others neither mends it nor lets it be forgotten
    instance.add_dynamic_partitions("crawl", [NEW])
    instance.add_dynamic_partitions("target", ["example.com", "example-foo.com"])
    found = look({"dagster/partition": f"{NEW}|example-foo.com"})
    assert (found.passed, *scope(found)) == (False, "1 partition of this run", 1)
    assert f"not checked this time, and wrong before: {NEW}|example.com" in (found.description or "")
    assert texts_of(found)["red partitions"] == f"{NEW}|example.com"
    kinds = {type(value) for value in found.metadata.values()}
    assert kinds <= {dg.TextMetadataValue, dg.IntMetadataValue}, "a person reads them in the UI without a click"
    recommit(workspace.lake, FETCH, broken, {"records": lambda _: records})
    found = look()
    assert (found.passed, *scope(found)) == (True, "1 changed partition", 1)
    assert scope(look({CHECK_SCOPE_TAG: EVERYTHING})) == ("everything", 3)
    assert seen == {"partitions", "partitions (changes)", "partitions (this run)"}, "a plot has one scope"


def test_a_source_that_does_not_answer_is_said_and_ends_no_run(
    sound: Workspace, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: object) -> None:
        raise EnvironmentFault("the lake is away", "Look for it.")

    monkeypatch.setattr("cc_pipeline.maintenance.stored_files.find_lost_records", down)
    found = results(sound, instance)
    assert not found["stored_files"].passed
    assert "the lake is away" in (found["stored_files"].description or "")
    assert found["ledger_balances"].passed


def test_each_check_runs_alone_and_none_blocks() -> None:
    for check in CHECKS:
        # the check of runs looks at no table
        assert check.can_subset or {key.name for key in check.check_keys} == {LEFT_FAILED}
        assert all(spec.description and not spec.blocking for spec in check.check_specs)
