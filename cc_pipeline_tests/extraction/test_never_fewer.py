"""Nothing is taken away unasked: a narrower question, or a command that hands on, leaves what is published."""

from __future__ import annotations

from pathlib import Path

import duckdb

from cc_pipeline_tests.cli.conftest import Cli, cli  # noqa: F401  # a fixture
from cc_pipeline_tests.world import OLD, Bucket, extract, harvested, publish

SITE = "example.org"


def published(home: Path) -> set[tuple[object, ...]]:
    """Captures that the published file shows, and whether their records are there, by target."""
    query = """
        SELECT crawl, target, warc_filename, warc_record_offset, outcome
        FROM capture_targets JOIN ledger USING (crawl, warc_filename, warc_record_offset)
    """
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        return set(connection.execute(query).fetchall())


def test_neither_another_subset_nor_what_is_handed_on_takes_anything_away(
    bucket: Bucket,
    tmp_path: Path,
    cli: Cli,  # noqa: F811
) -> None:
    home = tmp_path / "home"

    def run(*subsets: str) -> int:
        """Pages, or what is beside them, published; how many captures are shown then."""
        workspace = harvested(bucket[0], home, subsets=subsets, crawl=OLD)
        extract(workspace, SITE, crawl=OLD)
        publish(workspace)
        workspace.close()
        return len(published(home))

    pages, robots, errors = (
        len(bucket[1].of(OLD, subset=subset, domain=SITE)) for subset in ("warc", "robotstxt", "crawldiagnostics")
    )
    assert run("warc") == pages > 0
    before, where = published(home), ("--home", home)
    for words in (
        ("copy", SITE, "-c", OLD, "--subset", "robotstxt", "--to", tmp_path / "to", *where),
        ("export", "-d", SITE, "-c", OLD, "--out", tmp_path / "out.duckdb", *where),
        ("dataset", "-d", SITE, "--out", tmp_path / "texts", *where),
        ("get", f"https://{SITE}/robots.txt", "-c", OLD, "--subset", "robotstxt", "--out", tmp_path / "one", *where),
        ("domains", "add", SITE, *where),
        ("domains", "remove", SITE, *where),
    ):
        said = cli(*words)
        assert said.status == 0 or words[0] in ("get", "dataset"), (words, said)
        assert published(home) >= before, words
    # a run of one subset after the other adds to what is there, and one of both is no other
    assert run("crawldiagnostics") == pages + robots + errors
    assert run("warc", "robotstxt") == pages + robots + errors
    assert published(home) >= before
    assert {row[-1] for row in published(home)} == {"fetched"}
