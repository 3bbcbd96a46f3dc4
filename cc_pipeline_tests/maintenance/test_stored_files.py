"""Reading stored records against their rows: what is lost, what is damaged, and how much was read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from cc_pipeline.checks import asset_checks
from cc_pipeline.checks.doctor import examine, verified_finding
from cc_pipeline.checks.finding import Finding
from cc_pipeline.checks.scope import Scope
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.lake.slice import FETCH, Slice
from cc_pipeline.lake.slices import commit_stage
from cc_pipeline.maintenance.stored_files import find_holders, find_lost_records, verify
from cc_pipeline.records.storage import STORED
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.extraction.stored import dangling, stored_files
from cc_pipeline_tests.world import ARC, NEW, Bucket, copy_of, extract, harvest, rehome, workspace_of


@pytest.fixture(scope="module")
def fetched(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with WARC and ARC records of overlapping targets."""
    home = tmp_path_factory.mktemp("fetched")
    workspace = workspace_of(bucket[0], home)
    for crawl in (NEW, ARC):
        harvest(workspace, crawl)
        extract(workspace, "example.com", "host:www.example.com", crawl=crawl)
    return home


@pytest.fixture
def workspace(bucket: Bucket, fetched: Path, tmp_path: Path) -> Workspace:
    root = copy_of(bucket[0], tmp_path / "bucket")
    home = Path(shutil.copytree(fetched, tmp_path / "home"))
    rehome(home, root)
    return workspace_of(root, home)


def stored_rows(workspace: Workspace, crawl: str = NEW) -> list[dict[str, object]]:
    rows = workspace.lake.read("records", {"crawl": crawl}).to_pylist()
    return [row for row in rows if row["stored_file"] is not None]


def findings(workspace: Workspace) -> list[Finding]:
    return [finding for finding in examine(workspace.settings) if finding.topic == "stored"]


def spoil(workspace: Workspace, row: dict[str, object]) -> None:
    """Changes a byte in the middle of a stored record."""
    path = workspace.settings.home / "lake" / str(row["stored_file"])
    data = bytearray(path.read_bytes())
    data[int(str(row["stored_offset"])) + int(str(row["stored_length"])) * 2 // 3] ^= 0xFF
    path.write_bytes(data)


def test_a_sound_home_has_nothing_to_say(workspace: Workspace) -> None:
    assert find_lost_records(workspace) == []
    assert [finding.level for finding in findings(workspace)] == ["ok"]
    assert asset_checks.stored_files.verdict(workspace, Scope()).severity == "ok"
    done = verify(workspace.lake, workspace.storage, None)
    assert done.read == done.stored == len(stored_rows(workspace)) + len(stored_rows(workspace, ARC))
    assert done.damaged == {}
    finding = verified_finding(done)
    assert finding.level == "ok"
    assert f"{done.read:,} of {done.stored:,}" in finding.text
    assert "(all of them)" in finding.text


def test_a_sample_says_so_and_reads_a_part(workspace: Workspace) -> None:
    done = verify(workspace.lake, workspace.storage, sample=20, seed=3)
    assert 0 < done.read < done.stored
    assert "a sample; --all reads all" in verified_finding(done).text


@pytest.mark.matrix
@pytest.mark.parametrize("crawl", [NEW, ARC])
def test_a_damaged_record_is_found_and_fetched_again(workspace: Workspace, crawl: str) -> None:
    bad = stored_rows(workspace, crawl)[3]
    spoil(workspace, bad)
    place = (bad["warc_filename"], bad["warc_record_offset"])
    done = verify(workspace.lake, workspace.storage, None)
    assert {crawl: set(places) for crawl, places in done.damaged.items()} == {crawl: {place}}
    assert find_lost_records(workspace) == []
    finding = verified_finding(done)
    assert finding.level == "bad"
    assert str(bad["warc_filename"]) in finding.text
    slugs = find_holders(workspace.lake, crawl, done.damaged[crawl])
    assert bad["target"] in slugs
    assert fetch_captures(workspace, crawl, slugs).requests == 0
    report = fetch_captures(workspace, crawl, slugs, distrusted=[*done.damaged[crawl]])
    assert report.requests == 1
    assert verify(workspace.lake, workspace.storage, None).damaged == {}


def test_another_payload_of_the_same_length_is_damage_too(workspace: Workspace) -> None:
    # sound gzip with a sound record, and not the one the row is about
    first, second = [row for row in stored_rows(workspace) if row["target"] == "example.com"][:2]
    slice_ = Slice(NEW, "example.com")
    rows = workspace.lake.read("records", slice_.where).to_pylist()
    swapped = {first["url"]: second, second["url"]: first}
    changed = [row | {name: swapped.get(row["url"], row)[name] for name in STORED} for row in rows]
    batch = pa.RecordBatch.from_pylist(changed, workspace.lake.specs["records"].schema)
    commit_stage(workspace.lake, FETCH, {slice_: {"by": "hand"}}, {"records": [batch]})
    done = verify(workspace.lake, workspace.storage, None)
    assert len(done.damaged[NEW]) >= 2


def test_lost_records_are_listed_counted_and_no_error_of_the_doctor(workspace: Workspace) -> None:
    for path in stored_files(workspace, ARC):
        path.unlink()
    [lost] = find_lost_records(workspace)
    assert (lost.crawl, lost.records) == (ARC, len(stored_rows(workspace, ARC)))
    assert set(lost.targets) == {row["target"] for row in stored_rows(workspace, ARC)}
    [finding] = findings(workspace)
    assert finding.level == "bad"
    assert f"{lost.records:,} in {ARC}" in finding.text and "doctor --repair" in str(finding.advice)
    verdict = asset_checks.stored_files.verdict(workspace, Scope())
    assert verdict.severity == "error"
    assert verdict.metrics["lost records"] == lost.records
    done = verify(workspace.lake, workspace.storage, None)
    assert done.damaged == {}, "what is lost is counted as lost"
    assert fetch_captures(workspace, ARC, sorted(lost.targets)).requests > 0
    assert dangling(workspace) == []
    assert asset_checks.stored_files.verdict(workspace, Scope()).severity == "ok"
