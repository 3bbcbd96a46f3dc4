"""Every verdict on the tables fails where something is broken, and says what."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from cc_pipeline.checks import asset_checks, evaluate, outputs
from cc_pipeline.checks.check import Check
from cc_pipeline.checks.scope import CheckResult, Scope
from cc_pipeline.checks.tables import missing_captures_verdict
from cc_pipeline.lake.slice import FETCH, Slice
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.checks.changed_slices import recommit
from cc_pipeline_tests.world import (
    NEW,
    Bucket,
    copy_of,
    extract,
    harvest,
    publish,
    replace_file,
    workspace_of,
)

SITE, OTHER = "example.com", "example-foo.com"
MINE, KEY = Slice(NEW, SITE), f"{NEW}|{SITE}"


@pytest.fixture(scope="module")
def sound(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace = workspace_of(bucket[0], tmp_path_factory.mktemp("sound") / "home")
    harvest(workspace)
    extract(workspace, SITE, OTHER)
    return workspace.settings.home


@pytest.fixture
def home(bucket: Bucket, sound: Path, tmp_path: Path) -> Workspace:
    return workspace_of(bucket[0], shutil.copytree(sound, tmp_path / "home"))


def test_lost_bytes_of_stored_records_are_an_error(home: Workspace) -> None:
    for look in (Scope(), Scope([MINE, Slice(NEW, OTHER)])):
        assert asset_checks.stored_files.verdict(home, look).passed
    for path in (home.settings.home / "lake" / "records" / NEW).glob("*.warc.gz"):
        path.unlink()
    count = home.lake.read("records", MINE.where).num_rows
    found = asset_checks.stored_files.verdict(home, Scope([MINE]))
    assert (found.severity, found.wrong, found.metrics["lost records"]) == ("error", (KEY,), count)
    assert f"{count:,} in {NEW} of {SITE}" in found.message
    assert len(asset_checks.stored_files.verdict(home, Scope()).wrong) == 2


def test_index_files_that_could_not_be_read_are_counted_and_what_was_located_over_them_named(
    bucket: Bucket, tmp_path: Path
) -> None:
    root = copy_of(bucket[0], tmp_path / "bucket")
    bad = sorted((root / f"cc-index/table/cc-main/warc/crawl={NEW}/subset=warc").glob("*.parquet"))[0]
    whole = bad.read_bytes()
    replace_file(bad, b"no parquet at all")
    workspace = workspace_of(root, tmp_path / "home", index="parquet", max_index_gaps=1.0)
    harvest(workspace)
    found = asset_checks.coverage.verdict(workspace, Scope())
    assert (found.passed, found.message) == (
        False,
        f"{NEW}: of 2 index files, 1 could not be read and 0 were not harvested, so lookups may miss captures",
    )
    extract(workspace, SITE)
    located = asset_checks.index_complete.verdict(workspace, Scope())
    assert (located.severity, f"{KEY}: no, 1 of 2 files could not be read" in located.message) == ("error", True)
    replace_file(bad, whole)
    harvest(workspace)
    extract(workspace, SITE)
    assert asset_checks.index_complete.verdict(workspace, Scope()).passed
    assert asset_checks.targets_found.verdict(workspace, Scope()).passed
    extract(workspace, "exmaple.com")
    absent = asset_checks.targets_found.verdict(workspace, Scope())
    assert (absent.severity, f"1 target: exmaple.com (did you mean {SITE}?)" in absent.message) == ("warn", True)


@pytest.mark.parametrize(
    ("fetched", "pending", "severity"),
    [(1000, 0, "ok"), (995, 0, "ok"), (999, 1, "warn"), (990, 10, "error"), (990, 0, "warn")],
)
def test_what_did_not_come_is_a_warning_or_an_error_by_its_share(
    home: Workspace, fetched: int, pending: int, severity: str
) -> None:
    for slice_ in (MINE, Slice(NEW, OTHER)):
        note = {"planned": 1000, "fetched": fetched, "pending": pending, "reason": "busy"}
        recommit(home.lake, FETCH, slice_, {}, note)
    found = missing_captures_verdict(home.lake)
    assert (found.severity, found.metrics["planned"]) == (severity, 2000)
    assert (f"{KEY}: {pending} of 1,000, busy" in found.message) == (pending > 0)
    assert ("20 of 2,000 are lost in the source itself" in found.message) == (fetched + pending == 990)


def test_the_published_file_is_held_against_the_lake(home: Workspace) -> None:
    assert outputs.published_verdict(home, Scope()).message == "cc.duckdb was not written yet"
    assert outputs.publication_verdict(home).severity == "error"
    publish(home)
    assert outputs.published_verdict(home, Scope()).passed
    extract(home, "example.org")
    assert outputs.published_verdict(home, Scope()).passed, "it is a few seconds behind"
    os.utime(home.settings.published_path, (0, time.time() - 3 * 86_400))
    assert outputs.published_verdict(home, Scope()).severity == "error"


def test_a_sound_home_has_an_ok_finding_for_each_check_that_looks_at_the_lake(home: Workspace) -> None:
    publish(home)
    findings = {finding.topic: finding for finding in evaluate.evaluate_checks(home)}
    checks = evaluate.find_checks()
    assert set(findings) == {f"{check.asset}: {check.name}" for check in checks if check.verdict is not None}
    assert {finding.level for finding in findings.values()} == {"ok"}


def test_a_check_that_breaks_is_a_finding(home: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(workspace: Workspace, scope: Scope) -> CheckResult:
        raise ValueError("no such column")

    check = Check(asset="records", name="odd", description="Odd.", verdict=broken)
    monkeypatch.setattr(evaluate, "find_checks", lambda: [check])
    [finding] = evaluate.evaluate_checks(home)
    assert (finding.level, finding.topic) == ("bad", "records: odd")
    assert "no such column" in finding.text
