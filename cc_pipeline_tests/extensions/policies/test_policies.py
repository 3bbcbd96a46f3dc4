"""``policies``: on request only, also for what lies below a host; and the data set."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from cc_pipeline_tests.cli.conftest import ARC, NEW, Cli
from cc_pipeline_tests.world import Bucket

pytestmark = pytest.mark.xdist_group("cli homes")

PREFIX = "prefix:https://www.example.com/"


@pytest.mark.process
def test_robots_txt_is_asked_for_on_request_only_where_a_crawl_keeps_it(
    cli: Cli, bucket: Bucket, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    said = cli("run", "-c", NEW, PREFIX, "--source", bucket[0], "--home", home)
    assert said.status == 0, said.err
    unread = cli("dataset", "--respect", "gptbot", "--out", tmp_path / "x", "--home", home)
    assert unread.status == 0 and "cc-pipeline policies" in unread.told
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM captures WHERE subset = 'robotstxt'").fetchall() == [(0,)]
    read = cli("policies", PREFIX, "-c", NEW, "-c", ARC, "--home", home, "--format", "json")
    assert read.status == 0, read.err
    assert f"{ARC} has no subset of robots.txt captures" in read.told
    [row] = [json.loads(line) for line in read.out.splitlines() if line.startswith("{")]
    truth = [one for one in bucket[1].captures_of(NEW, subset="robotstxt") if "//www.example.com/" in one.url]
    assert (row["crawl"], row["target"], row["captures"]) == (NEW, "host_www.example.com", len(truth))
    assert "CCBot" in read.told
    out = tmp_path / "corpus"
    made = cli("dataset", "--rules", "none", "--respect", "gptbot,tdm", "--out", out, "--home", home)
    assert made.status == 0, made.err
    sheet = json.loads((out / "datasheet.json").read_text("utf-8"))
    assert set(sheet["asked_of_robots"]["said"]) == {"gptbot", "tdm"}
    assert "Usage preferences" in (out / "README.md").read_text("utf-8")
    # said again, nothing is read again
    again = cli("policies", PREFIX, "--home", home)
    assert again.status == 0 and "policies " not in again.told
