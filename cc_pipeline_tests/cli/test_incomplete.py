"""What a source or an index does not give, as a person at the command line meets it: a status, a figure, what to do,
and how it comes back."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from cc_pipeline import progress
from cc_pipeline_tests.cli.conftest import NEW, OLD, Cli, World
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import Bucket, copy_of

SITE = "example.com"
HOLE = Rule("404", key="*subset=warc/part-00000*", times=None)
NO_ZIPNUM = Rule("404", key="*cluster.idx", times=None)


def outcomes(home: Path) -> dict[str, int]:
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        return dict(connection.execute("SELECT outcome, count(*) FROM ledger GROUP BY ALL").fetchall())


@pytest.mark.process
def test_a_refused_harvest_ends_with_why_and_another_index_can_be_named(
    bucket: Bucket, tmp_path: Path, cli: Cli
) -> None:
    root, truth = bucket
    mine = len(truth.captures_of(NEW, subset="warc", domain=SITE))
    with FaultServer(root, rules=[Rule("403", key="*.parquet", times=None)]) as server:
        place = ("--home", tmp_path, "--source", server.url)
        said = cli("run", SITE, "-c", NEW, *place)
        assert said.status == 3, said
        assert "none of 2 index files could be fetched, the first because of: forbidden" in said.told
        assert "has not been harvested" not in said.told
        assert cli("run", SITE, "-c", NEW, "--index", "zipnum", *place).status == 0
        assert outcomes(tmp_path) == {"fetched": mine}
        said = cli("lookup", SITE, "--format", "json", "-c", NEW, *place)
        assert (said.status, len(said.out.splitlines())) == (0, mine), said


def test_a_source_that_refuses_is_waited_for_and_told(bucket: Bucket, tmp_path: Path, cli: Cli) -> None:
    with FaultServer(bucket[0], rules=[Rule("503", times=None)]) as server:
        words = ("lookup", SITE, "-c", NEW, "--home", tmp_path, "--source", server.url)
        told: list[str] = []
        with progress.progress_to(lambda stage, done, total, detail: told.append(f"{stage}: {detail}")):
            said = cli(*words)
        assert said.status == 3, said
        assert "no request is sent before" in said.told
        assert "waiting: 127.0.0.1" in told[0]
        told.clear()
        with progress.progress_to(lambda stage, done, total, detail: told.append(f"{stage}: {detail}")):
            said = cli(*words, "--no-wait")
        assert (said.status, told) == (3, [])


@pytest.mark.process
def test_every_command_that_looks_up_refuses_holes_and_can_be_told_to_go_without(
    bucket: Bucket, tmp_path: Path, cli: Cli
) -> None:
    whole = len(bucket[1].captures_of(NEW, subset="warc", domain=SITE))
    with FaultServer(bucket[0], rules=[HOLE, NO_ZIPNUM]) as server:
        place = ("-c", NEW, "--source", server.url, "--home", tmp_path)
        assert cli("index", "harvest", "--allow-gaps", *place).status == 0
        for command in (("lookup",), ("lookup", "--count"), ("plan",)):
            assert cli(*command, SITE, *place).status == 3
            assert cli(*command, SITE, "--allow-gaps", *place).status == 0
        said = cli("lookup", SITE, "--allow-gaps", "--format", "json", *place)
        assert len(said.out.splitlines()) < whole
        assert "part-00000" in said.err
        said = cli("run", SITE, "--allow-gaps", *place)
        assert said.status == 0, said.err
        assert "captures in them are missing from 1 of 1 targets" in said.out
        assert outcomes(tmp_path).get("fetched", 0) < whole
        server.set_rules([HOLE])
        assert cli("lookup", SITE, "--index", "parquet", *place).status == 3


@pytest.mark.xdist_group("cli")
def test_pending_captures_are_a_line_and_an_error_above_the_limit(
    cli: Cli, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = shutil.copytree(world.untouched, tmp_path / "home")
    bucket = copy_of(world.bucket, tmp_path / "bucket")
    mine = world.truth.captures_of(OLD, subset="warc", domain="example.com")
    (bucket / mine[0].warc_filename).unlink()
    gone = sum(one.warc_filename == mine[0].warc_filename for one in mine)
    assert cli("settings", f"source={bucket}", "--home", home).status == 0
    refused = cli("run", "example.com", "-c", OLD, "--home", home)
    assert refused.status == 3
    assert f"did not give {gone} of {len(mine)} captures" in " ".join(refused.told.split())
    monkeypatch.setenv("CC_PIPELINE_MAX_PENDING", "1")
    said = cli("run", "example.com", "-c", OLD, "--home", home)
    assert said.status == 0, said.err
    line = rf"{gone} captures of {len(mine)} \([\d.]+ %\) pending, asked 1 of 3 times, next after \d{{4}}-\d\d-\d\d"
    assert re.search(line, said.out), said.out
    found = Counter(one.url_surtkey for one in mine)
    gone_for_good = [one for one in mine if one.warc_filename == mine[0].warc_filename and found[one.url_surtkey] == 1]
    page, out = f"url:{gone_for_good[0].url}", tmp_path / "keep.wacz"
    out.write_text("records")
    assert cli("run", page, "-c", OLD, "--home", home).status == 3
    said = cli("export", page, "-c", OLD, "--out", out, "--home", home)
    assert (said.status, out.read_text()) == (1, "records"), "nothing that is pending replaces a file"


def published(world: World, sql: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(world.home / "cc.duckdb"), read_only=True) as connection:
        return connection.execute(sql).fetchall()


@pytest.mark.process
@pytest.mark.xdist_group("cli")
def test_refetch_brings_back_what_was_lost_and_parses_it(cli: Cli, world: World) -> None:
    title = (
        "SELECT content.title FROM page_metadata WHERE warc_filename = "
        f"'{world.damaged.warc_filename}' AND warc_record_offset = {world.damaged.warc_record_offset}"
    )
    assert published(world, "SELECT count(*) FROM quarantine") == [(1,)]
    assert published(world, title) in ([], [(None,)])
    said = cli("run", "--refetch", "-c", NEW, "example.com", "--format", "json", "--home", world.home)
    assert said.status == 0, said.err
    captures = len(world.truth.captures_of(NEW, subset="warc", domain="example.com"))
    row = {"change": "updated", "captures": captures, "new": 0, "pending": 0, "lost": 0}
    assert json.loads(said.out) == {"crawl": NEW, "target": "example.com", **row}
    assert published(world, "SELECT count(*) FROM ledger WHERE outcome <> 'fetched'") == [(0,)]
    assert published(world, title) == [(world.damaged.title,)]


@pytest.mark.process
@pytest.mark.xdist_group("cli")
def test_repair_gives_every_row_group_bounds_and_look_ups_stay_the_same(cli: Cli, world: World) -> None:
    def look() -> set[str]:
        arguments = ("--index", "parquet", "--format", "csv", "--columns", "url,warc_record_offset")
        return set(cli("lookup", "example.com", "-c", OLD, *arguments, "--home", world.home).out.splitlines())

    def bare() -> list[int]:
        said = cli("sql", "--catalog", f"FROM coverage WHERE crawl = '{OLD}'", "--format", "json", "--home", world.home)
        return [json.loads(line)["without_statistics"] for line in said.out.splitlines()]

    before = look()
    assert sum(bare()) > 0
    said = cli("index", "repair", "-c", OLD, "--home", world.home)
    assert said.status == 0, said.err
    assert sum(bare()) == 0
    assert look() == before
