"""The main job over a mini crawl: right, repeatable, and unharmed by maintenance and kills."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.launcher import Launcher
from cc_pipeline.maintenance.maintain import run_maintenance
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline_tests.defs.published import published_rows, query
from cc_pipeline_tests.world import ARC, NEW, OLD, Bucket, extract, publish, workspace_of


def run(bucket: Bucket, home: Path, crawls: list[str], targets: list[str]) -> None:
    with (
        open_workspace(load_settings({}, source=str(bucket[0]), home=str(home))) as workspace,
        Launcher(workspace) as launcher,
    ):
        launcher.list_crawls()
        launcher.harvest(crawls)
        list(launcher.extract(crawls, [parse_target(text) for text in targets]))
        launcher.publish()


@pytest.fixture(scope="module")
def whole(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("whole")
    run(bucket, home, [NEW, OLD, ARC], list(bucket[1].domains()))
    return home


def test_a_run_starts_no_run_for_an_index_that_is_there(bucket: Bucket, whole: Path) -> None:
    with (
        open_workspace(load_settings({}, source=str(bucket[0]), home=str(whole))) as workspace,
        Launcher(workspace) as launcher,
    ):
        before = launcher.instance.get_runs_count()
        assert launcher.list_new_crawls() is None
        assert launcher.harvest_changed([NEW, OLD, ARC]) == []
        assert launcher.instance.get_runs_count() == before


def test_every_capture_of_the_truth_is_found_once(bucket: Bucket, whole: Path) -> None:
    truth = Counter(
        (c.crawl, c.url, c.warc_filename, c.warc_record_offset, c.warc_record_length)
        for c in bucket[1].captures
        if c.subset == "warc"
    )
    key = "crawl, url, warc_filename, warc_record_offset, warc_record_length"
    assert Counter(query(whole, f"SELECT {key} FROM captures")) == truth


def test_every_record_is_fetched_and_has_one_metadata_row(whole: Path) -> None:
    assert query(whole, "SELECT DISTINCT outcome, reason FROM ledger") == [("fetched", None)]
    counts = query(whole, "SELECT (SELECT count(*) FROM captures), (SELECT count(*) FROM page_metadata)")[0]
    assert counts[0] == counts[1] > 0


def test_payloads_and_titles_are_those_generated(bucket: Bucket, whole: Path) -> None:
    # a 404 may have a title, but only 2xx pages have content
    titles = {
        (c.warc_filename, c.warc_record_offset): c.title
        for c in bucket[1].captures
        if c.title and c.fetch_status == 200
    }
    rows = query(whole, "SELECT warc_filename, warc_record_offset, content.title FROM page_metadata")
    found = {(file, offset): title for file, offset, title in rows if (file, offset) in titles}
    wanted = {key: title for key, title in titles.items() if key in {(file, offset) for file, offset, _ in rows}}
    assert found == wanted
    assert len(found) > 20
    digests = {(c.warc_filename, c.warc_record_offset): c.payload_digest for c in bucket[1].captures}
    for file, offset, digest in query(
        whole, "SELECT warc_filename, warc_record_offset, content_digest FROM captures WHERE content_digest IS NOT NULL"
    ):
        assert digest == digests[file, offset]


def test_a_second_run_gives_the_same_rows_and_fetches_nothing(bucket: Bucket, whole: Path) -> None:
    before = published_rows(whole)
    stored = sorted((whole / "lake" / "records").rglob("*"))
    run(bucket, whole, [NEW, OLD, ARC], list(bucket[1].domains()))
    assert published_rows(whole) == before
    assert sorted((whole / "lake" / "records").rglob("*")) == stored


@pytest.mark.process
def test_maintenance_merges_and_sweeps_and_changes_no_row(bucket: Bucket, whole: Path) -> None:
    workspace = workspace_of(bucket[0], whole)
    # another file of each table
    extract(workspace, "host:www.example.com")
    publish(workspace)
    before = published_rows(whole)
    orphan = whole / "lake" / "records" / NEW / "nobody-names-this.warc.gz"
    orphan.write_bytes(b"left by a run that was killed before its commit")
    old = time.time() - 400 * 86_400
    os.utime(orphan, (old, old))
    report = run_maintenance(workspace, max_files=1)
    assert sum(report.merged.values()) > 0
    assert orphan.exists(), "nobody knows since when it is not needed"
    # a week later
    for note in (orphan.parent / "superseded").iterdir():
        os.utime(note.rename(note.with_name(f"20240101T000000.000000Z-{note.name[23:]}")), (old, old))
    assert run_maintenance(workspace).deleted["stored records"] == 1
    assert not orphan.exists()
    assert published_rows(whole) == before


@pytest.mark.process
def test_a_run_killed_at_every_commit_ends_with_the_same_tables(bucket: Bucket, tmp_path: Path) -> None:
    targets = ["example.com", "host:www.example.com"]
    run(bucket, tmp_path / "quiet", [NEW], targets)
    arguments = [str(bucket[0]), str(tmp_path / "killed"), NEW, ",".join(targets)]
    done = subprocess.run(
        [sys.executable, "-m", "cc_pipeline_tests.defs.killed_runs", *arguments],
        capture_output=True, text=True, check=False, timeout=1400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) >= 8, "a kill at each of many commits, not one run that came through"
    assert published_rows(tmp_path / "killed") == published_rows(tmp_path / "quiet")
