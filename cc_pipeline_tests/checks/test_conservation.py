"""No capture is lost or doubled between the tables without the check and ``doctor`` seeing it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cc_pipeline.checks.conservation import conservation_verdict, count_balance, find_slices_to_remake
from cc_pipeline.checks.doctor import examine
from cc_pipeline.checks.finding import Finding
from cc_pipeline.checks.scope import Scope
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.slice import FETCH, HARVEST, LOCATE, MANIFEST, PAGE_TABLES, PARSE, Slice, Stage
from cc_pipeline.lake.slices import empty_slices, invalidate_slices
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.checks.changed_slices import double_rows, lose_rows, recommit, without_the_first
from cc_pipeline_tests.world import NEW, OLD, Bucket, extract, harvest, workspace_of

SITE, OTHER = "example.com", "example.org"
MINE, KEY = Slice(NEW, SITE), f"{NEW}|{SITE}"
#: Targets whose captures overlap those of others.
HOST, WHOLE = "host:www.example.com", "suffix:com"
STAGE_OF = {"captures": LOCATE, "records": FETCH, **dict.fromkeys(PAGE_TABLES, PARSE)}


@pytest.fixture(scope="module")
def sound(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of two crawls with overlapping targets."""
    workspace = workspace_of(bucket[0], tmp_path_factory.mktemp("conserved") / "home")
    for crawl in (NEW, OLD):
        harvest(workspace, crawl)
    extract(workspace, SITE, OTHER, HOST, WHOLE)
    extract(workspace, SITE, crawl=OLD)
    return workspace.settings.home


@pytest.fixture
def home(bucket: Bucket, sound: Path, tmp_path: Path) -> Workspace:
    return workspace_of(bucket[0], shutil.copytree(sound, tmp_path / "home"))


def balance_finding(workspace: Workspace) -> Finding:
    [finding] = [one for one in examine(workspace.settings) if one.topic == "balance"]
    return finding


def broken(workspace: Workspace, wrong: tuple[str, ...] = (KEY,), severity: str = "error") -> str:
    for scope in (Scope(), Scope([MINE, Slice(NEW, OTHER)])):
        found = conservation_verdict(workspace, scope)
        assert (found.severity, found.wrong) == (severity, wrong), found
        assert all(key in found.message for key in wrong)
    assert balance_finding(workspace).level == ("bad" if severity == "error" else "note")
    return found.message


def test_a_sound_home_balances(home: Workspace) -> None:
    found = conservation_verdict(home, Scope())
    assert found.passed, found
    assert found.metrics["partitions"] == 5
    assert found.metrics["records"] == found.metrics["pages"] == home.lake.read("records").num_rows
    assert balance_finding(home).level == "ok"
    own = conservation_verdict(home, Scope([MINE])).metrics
    assert own["records"] == home.lake.read("records", MINE.where).num_rows


def test_doctor_names_partitions_whose_next_stage_a_killed_run_did_not_make(home: Workspace) -> None:
    locate_captures(home, OLD, [OTHER])
    said = balance_finding(home)
    assert (said.level, f"1 partition is located and not fetched yet ({OLD}|{OTHER})" in said.text) == ("ok", True)
    fetch_captures(home, OLD, [OTHER])
    said = balance_finding(home)
    assert (said.level, f"1 partition is fetched and not parsed yet ({OLD}|{OTHER})" in said.text) == ("ok", True)
    assert "cc-pipeline run" in said.advice
    extract(home, OTHER, crawl=OLD)
    assert balance_finding(home).level == "ok"


@pytest.mark.parametrize("table", ["records", "page_metadata"])
def test_a_row_less_in_any_table_is_an_error(home: Workspace, table: str) -> None:
    recommit(home.lake, STAGE_OF[table], MINE, {table: without_the_first})
    broken(home)


@pytest.mark.parametrize("table", STAGE_OF)
@pytest.mark.parametrize("harm", [lose_rows, double_rows])
def test_rows_that_vanish_from_a_file_or_are_there_twice_are_an_error(
    home: Workspace, table: str, harm: Callable[[Lake, str, Slice], None]
) -> None:
    harm(home.lake, table, MINE)
    assert f"{table} has another number of rows" in broken(home)
    remade = find_slices_to_remake(count_balance(home))
    later = [LOCATE, FETCH, PARSE][[LOCATE, FETCH, PARSE].index(STAGE_OF[table]) :]
    assert remade == {stage: [MINE] for stage in later}


def test_each_incomplete_stage_of_a_slice_is_made_again(home: Workspace) -> None:
    for table in ("captures", "page_text", "index_manifest", "row_groups"):
        lose_rows(home.lake, table, MINE if STAGE_OF.get(table) else Slice(NEW))
    stages = {LOCATE: [MINE], FETCH: [MINE], PARSE: [MINE], MANIFEST: [Slice(NEW)], HARVEST: [Slice(NEW)]}
    assert find_slices_to_remake(count_balance(home)) == stages


def test_what_was_located_again_is_the_next_runs_and_no_error(home: Workspace) -> None:
    recommit(home.lake, LOCATE, MINE, {"captures": without_the_first})
    assert "The next run" in broken(home, severity="warn")
    assert find_slices_to_remake(count_balance(home)) == {}


@pytest.mark.parametrize("stage", [FETCH, PARSE])
def test_slices_that_are_to_be_made_again_are_no_error(home: Workspace, stage: Stage) -> None:
    recommit(home.lake, stage, MINE, {stage.main_table: without_the_first})
    broken(home)
    invalidate_slices(home.lake, stage, [MINE])
    broken(home, severity="warn")


def test_pages_that_were_taken_away_are_to_be_parsed(home: Workspace) -> None:
    empty_slices(home.lake, PARSE, [MINE])
    assert conservation_verdict(home, Scope()).passed, "it is as if it was never parsed"
    assert KEY in balance_finding(home).text
