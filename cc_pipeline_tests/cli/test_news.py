"""A month of CC-NEWS, and WARC files of one's own, as a person meets them at the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
import typer

from cc_pipeline.testing.mini_crawl import MiniCrawlTruth
from cc_pipeline_tests.cli.conftest import Cli
from cc_pipeline_tests.testing.mini_crawl.news import NewsSpec, write_news
from cc_pipeline_tests.world import copy_of

SPEC = NewsSpec(files=3, fetches=11)
MONTH = SPEC.month
DOMAIN = "harbour-herald-example.com"


def shown(home: Path, sql: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        return connection.execute(sql).fetchall()


@pytest.fixture
def bucket(bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path) -> Path:
    """One that may get files more."""
    return copy_of(bucket[0], tmp_path / "bucket")


@pytest.mark.process
def test_from_the_price_to_pages(cli: Cli, bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    truth = write_news(bucket, SPEC)
    wanted = truth.of(DOMAIN)
    monkeypatch.setenv("CC_PIPELINE_SOURCE", str(bucket))
    monkeypatch.setenv("CC_PIPELINE_HOME", str(home))
    refused = cli("run", "-c", MONTH, DOMAIN)
    assert refused.status == 1
    assert "3 archive files have to be read whole" in refused.told and "--yes" in refused.told
    assert not list(home.glob("lake/built-index/**/*.parquet"))
    built = cli("index", "build", "-c", MONTH, "--yes")
    assert built.status == 0, built.err
    assert "1 byte range of 1 archive file could not be read" in built.err
    said = cli("run", "-c", MONTH, DOMAIN)
    assert said.status == 0 and "build" not in said.out, said.err
    titles = {(one.title,) for one in wanted if one.title}
    assert titles <= set(shown(home, "SELECT content.title FROM page_metadata"))
    assert shown(home, "SELECT count(*) FROM lake.page_metadata") == [(len(wanted),)]
    # the other commands ask it as they ask any crawl
    assert "so a run would do nothing for them" in cli("plan", DOMAIN, "-c", MONTH).told
    assert str(len(wanted)) in cli("lookup", "--count", DOMAIN, "-c", MONTH, "--format", "csv").out
    page = next(one for one in wanted if one.title)
    got = cli("get", page.url, "-c", MONTH, "--format", "json")
    assert json.loads(got.out or "{}").get("title") == page.title, got.err
    # no list names it: what means every crawl does not mean this one
    assert MONTH not in cli("crawls").out
    assert MONTH not in cli("lookup", DOMAIN, "-c", "all", "--format", "json").out


def test_at_a_terminal_the_price_is_a_question(
    cli: Cli, bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_news(bucket, replace(SPEC, files=1, damaged=None))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    for answer in (False, True):
        asked = list[str]()

        def confirm(words: str, *, abort: bool, answer: bool = answer, asked: list[str] = asked) -> bool:
            asked.append(words)
            if not answer and abort:
                raise typer.Abort
            return answer

        monkeypatch.setattr("typer.confirm", confirm)
        said = cli("index", "build", "-c", MONTH, "--source", bucket, "--home", tmp_path / "home")
        assert len(asked) == 1 and "1 archive file has to be read whole" in asked[0]
        assert (said.status == 0) == answer, said.err
        assert len(list((tmp_path / "home").glob("lake/built-index/**/*.parquet"))) == answer


def test_files_of_ones_own_become_a_crawl(cli: Cli, bucket: Path, tmp_path: Path) -> None:
    truth = write_news(tmp_path / "mine", SPEC)
    files = [tmp_path / "mine" / file for file in truth.files]
    place = ("--source", bucket, "--home", tmp_path / "home")
    page = tmp_path / "page.warc.gz"
    page.write_text("<!doctype html><p>no archive")
    alone = cli("files", "add", page, "--kind", "warc", "--crawl", "page", *place)
    assert alone.status == 1 and "no WARC version line" in alone.told and "cc-pipeline run" not in alone.told
    said = cli("files", "add", *files, page, "--kind", "warc", "--crawl", "press", *place)
    assert said.status == 0 and "cc-pipeline run … --crawl LOCAL-press" in said.told, said.err
    assert "no WARC version line" in said.shown + said.told
    said = cli("run", "-c", "local-press", DOMAIN, *place)
    assert said.status == 0, said.err
    found = shown(tmp_path / "home", "SELECT crawl, url, source_file FROM lake.page_metadata")
    assert sorted(found) == sorted(
        ("LOCAL-press", one.url, (tmp_path / "mine" / one.warc_filename).as_uri()) for one in truth.of(DOMAIN)
    )
