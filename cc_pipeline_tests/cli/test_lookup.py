"""``plan`` and ``lookup`` against what the generator says is there."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.testing.mini_crawl import Capture
from cc_pipeline_tests.cli.conftest import ARC, NEW, OLD, Cli, Said, World
from cc_pipeline_tests.world import copy_of, replace_file, workspace_of

pytestmark = pytest.mark.xdist_group("cli")

Place = tuple[str, int, int]


def places(rows: list[dict[str, str]]) -> set[Place]:
    columns = ("warc_filename", "warc_record_offset", "warc_record_length")
    return {(row[columns[0]], int(row[columns[1]]), int(row[columns[2]])) for row in rows}


def expected(captures: tuple[Capture, ...]) -> set[Place]:
    return {(c.warc_filename, c.warc_record_offset, c.warc_record_length) for c in captures}


def test_an_index_is_harvested_first_where_that_is_asked_for(cli: Cli, world: World, tmp_path: Path) -> None:
    asked = ("lookup", "example.com", "-c", NEW, "--index", "parquet", "--count", "--format", "json")
    places_of = ("--home", tmp_path / "home", "--source", world.bucket)
    assert "has not been harvested" in cli(*asked, *places_of).err
    [row] = [json.loads(line) for line in cli(*asked, "--harvest", *places_of).out.splitlines()]
    assert row["captures"] == len(world.truth.captures_of(NEW, subset="warc", domain="example.com"))


def test_captures_are_those_of_the_crawl_in_every_format(cli: Cli, world: World, tmp_path: Path) -> None:
    truth = world.truth.captures_of(NEW, subset="warc", domain="example.com")
    asked = ("lookup", "example.com", "-c", NEW, "--home", world.home)
    said = cli(*asked, "--format", "json")
    assert said.status == 0, said.err
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert len(rows) == len(truth) and places(rows) == expected(truth)
    assert {row["target"] for row in rows} == {"example.com"}
    assert f"{NEW}: {len(truth)} captures" in said.err
    # a file is named by its suffix
    out = tmp_path / "found.parquet"
    said = cli(*asked, "tld:org", "-c", ARC, "--out", out)
    assert (said.status, said.out) == (0, ""), said.err
    table = pq.read_table(out)
    assert set(table["target"].to_pylist()) == {"example.com", "tld_org"}
    assert set(table["crawl"].to_pylist()) == {NEW, ARC}
    assert [path.name for path in tmp_path.iterdir()] == ["found.parquet"]
    # in a pipe a table is a line a capture, without boxes
    said = cli(*asked, "--limit", "5")
    title, *lines = said.out.splitlines()
    assert title.split() == ["fetch_time", "fetch_status", "content_mime_type", "url"]
    assert len(lines) == 5 and not set(said.out) & set("│━┃─")
    assert "stopped after 5 captures (--limit); there may be more" in said.err


def test_parquet_goes_down_a_pipe(world: World) -> None:
    command = [sys.executable, "-c", "from cc_pipeline.cli import main; main()", "lookup", "example.com", "-c", NEW]
    done = subprocess.run([*command, "--format", "parquet", "--home", str(world.home)], capture_output=True, check=True)
    truth = world.truth.captures_of(NEW, subset="warc", domain="example.com")
    assert pq.read_table(io.BytesIO(done.stdout)).num_rows == len(truth)


def _planned(said: Said) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.out.splitlines()]


@pytest.mark.process
def test_a_plan_says_which_index_and_what_it_costs(cli: Cli, world: World, tmp_path: Path) -> None:
    home = shutil.copytree(world.untouched, tmp_path / "home")
    asked = ("plan", "example.com", "-c", NEW, "-c", OLD, "--format", "json", "--home", home)
    said = cli(*asked)
    by_step = {(row["crawl"], row["step"]): row for row in _planned(said)}
    todo = (OLD, "locate, then fetch, then parse")
    assert set(by_step) == {(OLD, "lookup"), todo}, "a complete target costs nothing"
    assert (by_step[todo]["target"], by_step[todo]["because"]) == ("example.com", "new")
    assert by_step[OLD, "lookup"]["because"].startswith("parquet")
    assert by_step[OLD, "lookup"]["bytes likely"] <= by_step[OLD, "lookup"]["bytes at most"]
    assert "lookup … --crawl" in said.told
    assert f"{NEW}: all targets are up to date" in said.told
    # the fetch is known where a run has located the captures
    workspace = workspace_of(world.bucket, home)
    locate_captures(workspace, OLD, ["example.com"])
    fetch, step = _planned(cli(*asked))
    truth = world.truth.captures_of(OLD, subset="warc", domain="example.com")
    assert (fetch["crawl"], fetch["step"], step["step"]) == (OLD, "fetch", "fetch, then parse")
    assert fetch["because"].startswith(f"{len(truth)} captures")
    assert fetch["files"] == len({c.warc_filename for c in truth})
    assert fetch["bytes at most"] >= sum(c.warc_record_length for c in truth)


def test_costs_are_those_of_the_crawls_that_were_looked_up_and_told_once(cli: Cli, world: World) -> None:
    said = cli("lookup", "example.org", "-c", NEW, "-c", OLD, "--home", world.home)
    captures = [len(world.truth.captures_of(crawl, subset="warc", domain="example.org")) for crawl in (NEW, OLD)]
    [costs] = [line for line in said.err.splitlines() if " found with " in line]
    assert costs.startswith(f"2 crawls: {sum(captures)} captures found")
    said = cli("lookup", "example.org", "-c", NEW, "-c", OLD, "--limit", "1", "--home", world.home)
    [costs] = [line for line in said.err.splitlines() if " found with " in line]
    assert costs.startswith(f"{NEW}: {captures[0]} captures found")
    said = cli("lookup", "example.org", "-c", NEW, "-c", OLD, "--count", "--home", world.home)
    assert said.err.count(" found with ") == 1


def test_check_counts_each_of_a_list_and_all_of_them_once(cli: Cli, world: World) -> None:
    said = cli(
        "lookup", "--count", "rev:com.example.www, com.example", "-c", NEW, "--format", "json", "--home", world.home
    )
    rows = {row["target"]: row for row in map(json.loads, said.out.splitlines())}
    meant = parse_target("rev:com.example")
    truth = [c for c in world.truth.captures_of(NEW, subset="warc") if meant.matches(c.url)]
    whole = rows["rev:com.example"]
    assert whole == rows["all of them"] | {"target": "rev:com.example"}
    assert whole["captures"] == len(truth)
    assert whole["pages"] == len({c.url_surtkey for c in truth})
    assert whole["files"] == len({c.warc_filename for c in truth})
    assert whole["bytes"] == sum(c.warc_record_length for c in truth)
    assert 0 < rows["rev:com.example.www"]["captures"] < whole["captures"]


@pytest.mark.process
def test_years_of_crawls_are_counted_and_one_that_cannot_be_read_does_not_hide_the_others(
    cli: Cli, world: World, tmp_path: Path
) -> None:
    said = cli("lookup", "--count", "example.com", "-c", "2012..2018", "--format", "csv", "--home", world.home)
    assert said.status == 0, said.err
    assert [row["crawl"] for row in csv.DictReader(io.StringIO(said.out))] == [OLD, ARC]
    bucket = copy_of(world.bucket, tmp_path / "bucket")
    shard = next((bucket / f"cc-index/collections/{OLD}/indexes").glob("cdx-*.gz"))
    replace_file(shard, bytes(shard.stat().st_size))
    out = tmp_path / "found.csv"
    asked = ("lookup", "example.com", "-c", "all", "--index", "auto", "--source", bucket, "--home", tmp_path / "home")
    said = cli(*asked, "--format", "csv", "--columns", "crawl,url")
    assert said.status == 3
    assert f"Search them again: --crawl {OLD}" in said.told
    crawls = [row["crawl"] for row in csv.DictReader(io.StringIO(said.out))]
    assert list(dict.fromkeys(crawls)) == [NEW, ARC], "the newest first"
    assert cli(*asked, "--out", out).status == 3
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("lookup captures:typo -c newest", "no captures named 'typo'"),
        ("lookup example.com -c CC-MAIN-2099-01", "'CC-MAIN-2099-01' is not a crawl of"),
        ("lookup example.og -c newest", "example.og (did you mean example.org?): .og is no known top-level domain"),
        ("plan example.com -c 1999", "the source has no crawl 1999"),
        ("run captures:typo -c all", "no captures named 'typo'"),
        ("run --watched -c newest", "targets add"),
        ("export captures:typo --out typo.duckdb", "does not exist yet"),
        ("index harvest -c CC-MAIN-2099-01", "'CC-MAIN-2099-01' is not a crawl of"),
        ("index repair -c CC-MAIN-2099-01", "'CC-MAIN-2099-01' is not a crawl of"),
        ("index build -c CC-MAIN-2099-01", "'CC-MAIN-2099-01' is not a crawl of"),
        ("files add missing.warc.gz --kind warc", "is neither a file on this machine nor one of"),
        ("targets add captures:typo", "no captures named 'typo'"),
        ("targets block captures:typo", "no captures named 'typo'"),
        ("targets remove example.com", "no target 'example.com'"),
        ("doctor --checks", "is no home yet"),
    ],
)
def test_a_refused_command_makes_no_home(
    cli: Cli, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, problem: str
) -> None:
    monkeypatch.setenv("CC_PIPELINE_SOURCE", str(world.bucket))
    home = tmp_path / "home"
    said = cli(*words.split(), "--home", home)
    assert said.status == 1 and problem in said.told, said
    assert not any((home / name).exists() for name in ("home.json", "lake", "dagster"))
