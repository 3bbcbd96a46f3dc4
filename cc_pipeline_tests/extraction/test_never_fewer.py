"""Nothing is taken away unasked: a narrower question, or a command that hands on, leaves what is published."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from cc_pipeline.minicrawl.truth import MiniCrawlTruth
from cc_pipeline_tests.cli.conftest import OLD, Cli, cli  # noqa: F401  # a fixture

Bucket = tuple[Path, MiniCrawlTruth]
SITE = "example.org"


def published(home: Path) -> set[tuple[object, ...]]:
    """Captures that the published file shows, and whether their records are there, by target."""
    query = """
        SELECT crawl, target, warc_filename, warc_record_offset, outcome
        FROM capture_targets JOIN ledger USING (crawl, warc_filename, warc_record_offset)
    """
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        return set(connection.execute(query).fetchall())


@pytest.fixture
def home(bucket: Bucket, tmp_path: Path, cli: Cli) -> Path:  # noqa: F811
    """A home with the pages of a site, and nothing of its robots.txt."""
    home = tmp_path / "home"
    said = cli("run", "-c", OLD, "-d", SITE, "--home", home, "--source", bucket[0])
    assert said.status == 0, said.err
    assert len(published(home)) == len(bucket[1].of(OLD, subset="warc", domain=SITE)) > 0
    return home


def test_a_run_of_another_subset_adds_to_what_is_there(bucket: Bucket, home: Path, cli: Cli) -> None:  # noqa: F811
    before = published(home)
    said = cli("run", "-c", OLD, "-d", SITE, "--subset", "robotstxt", "--home", home)
    assert said.status == 0, said.err
    assert published(home) >= before
    assert len(published(home)) == len(before) + len(bucket[1].of(OLD, subset="robotstxt", domain=SITE))
    again = cli("run", "-c", OLD, "-d", SITE, "--subset", "warc", "--subset", "robotstxt", "--home", home)
    assert again.status == 0, again.err
    assert len(published(home)) == len(before) + len(bucket[1].of(OLD, subset="robotstxt", domain=SITE))


def test_what_is_handed_on_takes_nothing_from_the_home(
    bucket: Bucket,
    home: Path,
    tmp_path: Path,
    cli: Cli,  # noqa: F811
) -> None:
    before = published(home)
    where = ("--home", home)
    robots = len(bucket[1].of(OLD, subset="robotstxt", domain=SITE))
    for words in (
        ("copy", SITE, "-c", OLD, "--subset", "robotstxt", "--to", tmp_path / "to", *where),
        ("export", "-d", SITE, "-c", OLD, "--out", tmp_path / "out.duckdb", *where),
        ("dataset", "-d", SITE, "--out", tmp_path / "texts", *where),
        ("get", f"https://{SITE}/robots.txt", "-c", OLD, "--subset", "robotstxt", "--out", tmp_path / "one", *where),
        ("domains", "add", SITE, *where),
        ("domains", "remove", SITE, *where),
        ("run", "-c", OLD, "-d", SITE, "--subset", "crawldiagnostics", *where),
    ):
        said = cli(*words)
        assert said.status == 0 or words[0] in ("get", "dataset"), (words, said)
        assert published(home) >= before, words
    shown = published(home)
    assert len(shown) == len(before) + robots + len(bucket[1].of(OLD, subset="crawldiagnostics", domain=SITE))
    assert {row[-1] for row in shown} == {"fetched"}
