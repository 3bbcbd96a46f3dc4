"""Commands that run parts of the graph: what they change, and that they can be repeated."""

from __future__ import annotations

import json

import duckdb
import pytest

from cc_pipeline_tests.cli.conftest import NEW, OLD, Cli, World

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("cli")]


def published(world: World, sql: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(world.home / "cc.duckdb"), read_only=True) as connection:
        return connection.execute(sql).fetchall()


def test_refetch_brings_back_what_was_lost_and_parses_it(cli: Cli, world: World) -> None:
    title = (
        "SELECT content.title FROM page_metadata WHERE warc_filename = "
        f"'{world.damaged.warc_filename}' AND warc_record_offset = {world.damaged.warc_record_offset}"
    )
    assert published(world, "SELECT count(*) FROM quarantine") == [(1,)]
    assert published(world, title) in ([], [(None,)])
    said = cli("run", "--refetch", "-c", NEW, "example.com", "--home", world.home)
    assert said.status == 0, said.err
    captures = len(world.truth.captures_of(NEW, subset="warc", domain="example.com"))
    wanted = [NEW, "example.com", captures - 1, captures, 0, 0, 1, 0]
    assert said.out.splitlines()[-1].split() == [str(value) for value in wanted]
    assert published(world, "SELECT count(*) FROM ledger WHERE outcome <> 'fetched'") == [(0,)]
    assert published(world, title) == [(world.damaged.title,)]


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


def test_harvest_is_resumed_not_repeated(cli: Cli, world: World) -> None:
    said = cli("index", "harvest", "-c", OLD, "--subset", "robotstxt", "--home", world.home)
    assert said.status == 0, said.err
    rows = [line.split() for line in said.out.splitlines() if line.startswith(OLD)]
    assert {row[1] for row in rows} == {"warc", "robotstxt"}
    assert all(row[2] == row[3] and row[4] == row[5] == "0" for row in rows)
