"""Upkeep leaves every published row and every named file where it is."""

from __future__ import annotations

import os
import time
from pathlib import Path

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.defs.launch import Launcher
from cc_pipeline.minicrawl.truth import MiniCrawlTruth
from cc_pipeline.upkeep.upkeep import keep_up
from cc_pipeline_tests.defs.published import published_rows
from cc_pipeline_tests.world import workspace_of


def test_upkeep_merges_and_sweeps_and_changes_no_row(bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path) -> None:
    workspace = workspace_of(bucket[0], tmp_path)
    with Launcher(workspace) as launcher:
        launcher.list_crawls()
        launcher.harvest(["CC-MAIN-2024-22"])
        for domain in bucket[1].domains("CC-MAIN-2024-22")[:3]:
            list(launcher.extract(["CC-MAIN-2024-22"], [parse_target(domain)]))
        launcher.publish()
    before = published_rows(tmp_path)
    orphan = tmp_path / "lake" / "records" / "CC-MAIN-2024-22" / "nobody-names-this.warc.gz"
    orphan.write_bytes(b"left by a run that was killed before its commit")
    old = time.time() - 400 * 86_400
    os.utime(orphan, (old, old))
    report = keep_up(workspace, max_files=1)
    assert sum(report.merged.values()) > 0
    assert orphan.exists(), "nobody knows since when it is not needed"
    # a week later
    for note in (orphan.parent / "superseded").iterdir():
        note.rename(note.with_name(f"20240101T000000.000000Z-{note.name[23:]}"))
    for note in (orphan.parent / "superseded").iterdir():
        os.utime(note, (old, old))
    report = keep_up(workspace)
    assert report.deleted["stored records"] == 1
    assert not orphan.exists()
    assert published_rows(tmp_path) == before
