"""Parsing again after a new parser: what it costs, and that a killed one goes on without reading a page twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cc_pipeline import progress
from cc_pipeline.extraction import parsed_pages
from cc_pipeline.extraction.parse import parse_records
from cc_pipeline.lake.slice import PAGE_TABLES, PARSE, Slice
from cc_pipeline.lake.slices import invalidate_slices
from cc_pipeline.records.reading import read_members
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import NEW, Bucket, extract, harvested, workspace_of

SITES = ("example.com", "example-foo.com")
#: Pages of a batch and of a stretch, and after how many the parse is killed.
BATCH, STRETCH, KILLED = 2, 6, 27


def pages_of(workspace: Workspace) -> dict[str, list[dict[str, object]]]:
    return {table: sorted(workspace.lake.read(table).to_pylist(), key=repr) for table in PAGE_TABLES}


def parse(source: str, home: Path, log: Path, killed: int = 0) -> None:
    """Parses all again, writes down each record that is read, and ends by a signal after so many pages."""
    patched = pytest.MonkeyPatch()

    def read(rows: Iterator[Any], *asked: Any) -> Iterator[Any]:
        with log.open("a") as reads:
            for row, found in read_members(rows, *asked):
                print(json.dumps([row["target"], row["warc_filename"], row["warc_record_offset"]]), file=reads)
                yield row, found

    def told(stage: str, done: int, total: int | None, detail: str) -> None:
        if killed and done >= killed:
            os.kill(os.getpid(), signal.SIGKILL)

    with patched.context() as patch, progress.progress_to(told):
        patch.setattr(parsed_pages, "read_members", read)
        patch.setattr(parsed_pages, "BATCH_ROWS", BATCH)
        patch.setattr(parsed_pages, "CHUNK_PAGES", STRETCH)
        parse_records(workspace_of(source, home), NEW, SITES)


@pytest.mark.process
def test_a_killed_parse_goes_on_and_reads_no_page_of_a_whole_stretch_again(bucket: Bucket, tmp_path: Path) -> None:
    home, log = tmp_path / "home", tmp_path / "reads"
    workspace = harvested(bucket[0], home)
    extract(workspace, *SITES)
    expected = pages_of(workspace)
    every = len(expected["page_metadata"])
    assert every > KILLED + STRETCH
    invalidate_slices(workspace.lake, PARSE, [Slice(NEW, site) for site in SITES])
    runner = multiprocessing.get_context("spawn").Process(target=parse, args=(str(bucket[0]), home, log, KILLED))
    runner.start()
    runner.join()
    assert runner.exitcode == -signal.SIGKILL
    log.unlink()
    parse(str(bucket[0]), home, log)
    assert pages_of(workspace) == expected
    reads = Counter(log.read_text("utf-8").splitlines())
    assert set(reads.values()) == {1}
    assert len(reads) == every - KILLED // STRETCH * STRETCH
    # nothing of it is left, and nothing is to be done
    assert not [path for path in (home / "cache" / "parsing").iterdir() if path.is_dir()]
    log.unlink()
    parse(str(bucket[0]), home, log)
    assert not log.exists()
