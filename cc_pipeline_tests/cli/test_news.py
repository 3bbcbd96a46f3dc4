"""A month of CC-NEWS, and WARC files of one's own, as a person meets them at the command line."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
import typer

from cc_pipeline.testing.mini_crawl import MiniCrawlTruth
from cc_pipeline_tests.cli.conftest import Cli, Said
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
def test_from_the_price_to_pages_and_on_as_the_month_grows(
    cli: Cli, bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    write_news(bucket, replace(SPEC, files=2))
    monkeypatch.setenv("CC_PIPELINE_SOURCE", str(bucket))
    monkeypatch.setenv("CC_PIPELINE_HOME", str(home))

    def run(*more: str) -> Said:
        return cli("run", "-c", MONTH, DOMAIN, *more)

    refused = run()
    assert refused.status == 1
    assert "2 archive files have to be read whole" in refused.told and "--yes" in refused.told
    assert not list(home.glob("lake/built-index/**/*.parquet"))
    said = run("--yes")
    assert said.status == 0, said.err
    damage = "1 byte range of 1 archive file could not be read"
    assert damage in said.err
    some = write_news(tmp_path / "some", replace(SPEC, files=2))
    assert shown(home, "SELECT count(*) FROM page_metadata") == [(len(some.of(DOMAIN)),)]
    again = run()
    assert again.status == 0 and "build" not in again.out, again.err
    # the month goes on: its new file is told with its price, and what is there can be had without it
    truth = write_news(bucket, SPEC)
    refused = run()
    assert refused.status == 1 and "1 archive file" in refused.told and "2 of 3 are done" in refused.told
    lacking = run("--allow-gaps")
    assert lacking.status == 0 and truth.files[2] in lacking.out + lacking.err, lacking.err
    built = cli("index", "build", "-c", MONTH, "--yes")
    assert (built.status, damage in built.err) == (0, True), built.err
    assert run().status == 0
    wanted = truth.of(DOMAIN)
    titles = {(one.title,) for one in wanted if one.title}
    assert titles <= set(shown(home, "SELECT content.title FROM page_metadata"))
    assert shown(home, "SELECT count(*) FROM lake.page_metadata") == [(len(wanted),)]
    # the other commands ask it as they ask any crawl
    looked = cli("lookup", DOMAIN, "-c", MONTH, "--format", "json", "--columns", "url,warc_filename,warc_record_offset")
    places = {(row["warc_filename"], row["warc_record_offset"]) for row in map(json.loads, looked.out.splitlines())}
    assert places == {(one.warc_filename, one.warc_record_offset) for one in wanted}
    assert "so a run would do nothing for them" in cli("plan", DOMAIN, "-c", MONTH).told
    assert str(len(wanted)) in cli("lookup", "--count", DOMAIN, "-c", MONTH, "--format", "csv").out
    page = next(one for one in wanted if one.title)
    got = cli("get", page.url, "-c", MONTH, "--format", "json")
    assert json.loads(got.out or "{}").get("title") == page.title, got.err
    # no list names it: what means every crawl does not mean this one
    assert MONTH not in cli("crawls").out
    every = cli("lookup", DOMAIN, "-c", "all", "--format", "json")
    assert MONTH not in every.out


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


def test_what_cannot_be_built(cli: Cli, bucket: Path, tmp_path: Path) -> None:
    for words, told in (
        (("index", "build", "-c", "CC-MAIN-2024-22"), "index harvest --crawl CC-MAIN-2024-22"),
        (("index", "build", "-c", "CC-MAIN-2012"), "files add KEY --kind warc"),
        (("run", "-c", "CC-NEWS-2026-05", DOMAIN, "--yes"), "crawl-data/CC-NEWS/2026/05/warc.paths.gz"),
        (("run", "-c", "LOCAL-press", DOMAIN), "files add FILE --kind warc --crawl LOCAL-press"),
    ):
        said = cli(*words, "--source", bucket, "--home", tmp_path / "home")
        assert said.status == 1 and told in said.told


def test_files_of_ones_own_become_a_crawl(cli: Cli, bucket: Path, tmp_path: Path) -> None:
    truth = write_news(tmp_path / "mine", SPEC)
    files = [tmp_path / "mine" / file for file in truth.files]
    place = ("--source", bucket, "--home", tmp_path / "home")
    said = cli("files", "add", *files, "--kind", "warc", "--crawl", "press", *place)
    assert said.status == 0 and "cc-pipeline run … --crawl LOCAL-press" in said.told, said.err
    said = cli("run", "-c", "local-press", DOMAIN, *place)
    assert said.status == 0, said.err
    found = shown(tmp_path / "home", "SELECT crawl, url, source_file FROM lake.page_metadata")
    assert sorted(found) == sorted(
        ("LOCAL-press", one.url, (tmp_path / "mine" / one.warc_filename).as_uri()) for one in truth.of(DOMAIN)
    )


@pytest.mark.process
def test_a_file_of_which_nothing_could_be_read_is_a_failure_that_says_why(
    cli: Cli, bucket: Path, tmp_path: Path
) -> None:
    truth = write_news(tmp_path / "mine", replace(SPEC, files=1))
    [good] = [tmp_path / "mine" / file for file in truth.files]
    page, whole = tmp_path / "page.warc.gz", tmp_path / "whole.warc.gz"
    page.write_text("<!doctype html><p>no archive")
    whole.write_bytes(gzip.compress(gzip.decompress(good.read_bytes())))
    place = ("--source", bucket, "--home", tmp_path / "home")
    for file, reason in ((page, "no WARC version line"), (whole, "only files compressed by record")):
        said = cli("files", "add", file, "--kind", "warc", "--crawl", file.name.partition(".")[0], *place)
        assert said.status == 1, said.err
        assert reason in said.told and "cc-pipeline run" not in said.told
    said = cli("files", "add", page, good, "--kind", "warc", "--crawl", "some", *place)
    assert said.status == 0 and "cc-pipeline run … --crawl LOCAL-some" in said.told, said.err
    assert "no WARC version line" in said.shown + said.told
