"""From a query over the index to pages: half of the places of a crawl with odd keys, wrong rows among them, the run
killed and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, MiniCrawlSpec
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import NEW, Bucket, workspace_of

pytestmark = [pytest.mark.xdist_group("given way"), pytest.mark.process]
OLD = "CC-MAIN-2015-35"
REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND = str(Path(sys.executable).with_name("cc-pipeline"))
PATIENCE_SECONDS = 120.0


@pytest.fixture(scope="module")
def half_old(tmp_path_factory: pytest.TempPathFactory) -> Bucket:
    root = tmp_path_factory.mktemp("given") / "bucket"
    shape = {"segments": 1, "files_per_segment": 4, "parts": 2}
    crawls = (CrawlSpec(NEW, **shape), CrawlSpec(OLD, **shape, old_names=True))
    return root, ensure(root, MiniCrawlSpec(pages=60, sites=8, crawls=crawls))


def start(home: Path, source: str, *words: str) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CC_PIPELINE_", "DAGSTER_"))}
    told = {"CC_PIPELINE_HOME": str(home), "CC_PIPELINE_SOURCE": source, "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.Popen(
        [COMMAND, *words], env=kept | told | {"PYTHONPATH": str(REPOSITORY)}, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def queried(bucket: Path, out: Path, columns: str) -> int:
    """Rows of the index as a person's query has them: as JSON lines."""
    tables = [
        f"SELECT *, '{crawl}' AS dump FROM read_parquet('{bucket}/cc-index/table/cc-main/warc/crawl={crawl}/*/*', "
        "hive_partitioning=false, union_by_name=true)"
        for crawl in (NEW, OLD)
    ]
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT {columns} FROM ({' UNION ALL BY NAME '.join(tables)})) TO '{out}'")
    return len(out.read_text().splitlines())


def place_of(row: Mapping[str, object]) -> tuple[object, ...]:
    return row["crawl"], row["warc_filename"], row["warc_record_offset"]


def journaled(home: Path) -> list[str]:
    """Lines of the journals of records that are stored and in no table yet."""
    return [line for path in home.rglob("*.rows.jsonl") for line in path.read_text().splitlines()]


def test_a_query_of_places_is_killed_and_goes_on(half_old: Bucket, tmp_path: Path) -> None:
    bucket, truth = half_old
    home, rows = tmp_path / "home", tmp_path / "athena.json"
    length = "if(warc_record_offset % 3 = 0, NULL, warc_record_length) AS warc_record_length"
    known = {(one.crawl, one.warc_filename, one.warc_record_offset) for one in truth.captures}
    count = queried(bucket, rows, f"url, fetch_time, warc_filename, warc_record_offset, {length}")
    lines = rows.read_text().splitlines()
    assert sum('"common-crawl/crawl-data/' in line for line in lines) * 2 > count * 0.8
    [first] = [json.loads(line) for line in lines[:1]]
    off = {**first, "warc_record_offset": first["warc_record_offset"] + 5}
    gone = {**first, "warc_filename": first["warc_filename"].replace("-00000.", "-09999.")}
    bad = [{**first, "warc_record_offset": -1}, {"warc_filename": "nonsense", "warc_record_offset": 1}]
    rows.write_text("\n".join([*lines, *map(json.dumps, [off, gone, *bad])]) + "\n")
    # one of its files never answers: the run is killed there
    stall = Rule("stall", key="*/warc/*-00003.warc.gz", times=None)
    with FaultServer(bucket, rules=(stall,)) as server:
        added = start(home, server.url, "files", "captures", str(rows))
        out, err = added.communicate(timeout=PATIENCE_SECONDS)
        assert (added.returncode, f"{count + 2:,} captures in 2 crawls" in out) == (3, True), (out, err)
        assert f"row {count + 3}" in err and "-1 is negative" in err and f"row {count + 4}" in err, err
        assert not [hit for hit in server.hits if "cc-index" in hit.key]
        words = ("run", "-c", NEW, "-c", OLD, "captures:athena")
        process = start(home, server.url, *words)
        came = {place[1:] for place in known if place[0] == NEW and "-00003." not in str(place[1])}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(journaled(home)) < len(came):
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        had = {(hit.key, hit.range) for hit in server.hits if "/warc/" in hit.key and hit.fault is None}
        seen = len(server.hits)
        server.set_rules(())
        again = start(home, server.url, *words)
        _, err = again.communicate(timeout=PATIENCE_SECONDS)
        assert again.returncode == 0, err
        assert had and not {(hit.key, hit.range) for hit in server.hits[seen:]} & had
        workspace = workspace_of(server.url, home)
        records = workspace.lake.read("records").to_pylist()
        assert {place_of(row): row["reason"] for row in records if row["outcome"] != "fetched"} == {
            (NEW, off["warc_filename"], off["warc_record_offset"]): "not_gzip",
            (NEW, gone["warc_filename"], gone["warc_record_offset"]): "not_found",
        }
        assert {place_of(row) for row in records if row["outcome"] == "fetched"} == known
        assert {place_of(row) for row in workspace.lake.read("page_metadata").to_pylist()} >= known
