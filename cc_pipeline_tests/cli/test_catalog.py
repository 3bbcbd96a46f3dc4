"""``catalog`` and ``doctor``: what they show of the state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cc_pipeline.checks.doctor import budget_findings
from cc_pipeline.settings import load_settings
from cc_pipeline.transport.host_file import HostFile
from cc_pipeline.transport.limits import SourceLimits
from cc_pipeline_tests.cli.conftest import NEW, OLD, Cli, World
from cc_pipeline_tests.refusing_hosts import make_refuse

pytestmark = pytest.mark.xdist_group("cli")


def test_the_catalog_answers_queries_and_takes_no_orders(cli: Cli, world: World) -> None:
    query = (
        "SELECT crawl, sum(rows)::BIGINT AS rows FROM row_groups WHERE subset = 'warc' GROUP BY crawl ORDER BY crawl"
    )
    said = cli("sql", "--catalog", query, "--format", "json", "--home", world.home)
    assert [json.loads(line) for line in said.out.splitlines()] == [
        {"crawl": crawl, "rows": len(world.truth.captures_of(crawl, subset="warc"))} for crawl in (OLD, NEW)
    ]
    said = cli("sql", "--catalog", "DROP TABLE row_groups", "--home", world.home)
    assert said.status == 1
    assert "read-only" in said.err
    assert cli("sql", "--catalog", "SELEKT 1", "--home", world.home).status == 1


def test_coverage_is_that_of_the_path_list(cli: Cli, world: World) -> None:
    said = cli("sql", "--catalog", "FROM coverage", "--format", "csv", "--home", world.home)
    lines = said.out.splitlines()
    assert lines[0].startswith("crawl,subset,expected,harvested,failed,missing")
    assert f"{NEW},warc,2,2,0,0," in said.out


def test_without_a_catalog_the_way_to_one_is_named(cli: Cli, tmp_path: Path) -> None:
    said = cli("sql", "--catalog", "SELECT 1", "--home", tmp_path)
    assert said.status == 1
    assert "cc-pipeline index harvest" in said.err


def test_doctor_shows_who_refuses_and_lets_a_person_try_again(cli: Cli, world: World, tmp_path: Path) -> None:
    settings = load_settings({}, source=str(world.bucket), home=str(tmp_path))
    assert [finding.level for finding in budget_findings(settings)] == ["ok"]
    HostFile(settings.budget_path, "data.example.org", SourceLimits(10.0, 8)).close()
    assert (
        "10 requests/s, at most 8 at the same time"
        in cli("doctor", "--details", "--source", world.bucket, "--home", tmp_path).out
    )
    make_refuse(settings.budget_path, "data.example.org", SourceLimits(10.0, 8))
    said = cli("doctor", "--source", world.bucket, "--home", tmp_path)
    assert said.status == 1
    assert "data.example.org refuses" in said.out
    assert "--reset-host data.example.org" in " ".join(said.out.split())
    said = cli("doctor", "--source", world.bucket, "--home", tmp_path, "--reset-host", "data.example.org")
    assert said.status == 0
    assert cli("doctor", "--home", tmp_path, "--reset-host", "elsewhere").status == 1
