"""Nothing is taken away unasked: a narrower question, or a command that hands on, leaves what is published."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.commoncrawl.paths import cluster_key
from cc_pipeline.progress import format_count
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.indexes import write_zipnum
from cc_pipeline.testing.mini_crawl.spec import TEST, CrawlSpec
from cc_pipeline.testing.mini_crawl.truth import Capture
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.cli.conftest import Cli, cli  # noqa: F401  # a fixture
from cc_pipeline_tests.world import ARC, NEW, OLD, Bucket, copy_of, extract, harvest, harvested, publish, workspace_of

SITE = "example.org"


def published(home: Path) -> set[tuple[object, ...]]:
    """Captures that the published file shows, and whether their records are there, by target."""
    query = """
        SELECT crawl, target, warc_filename, warc_record_offset, outcome
        FROM capture_targets JOIN ledger USING (crawl, warc_filename, warc_record_offset)
    """
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        return set(connection.execute(query).fetchall())


@pytest.mark.process
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
        len(bucket[1].captures_of(OLD, subset=subset, domain=SITE))
        for subset in ("warc", "robotstxt", "crawldiagnostics")
    )
    assert run("warc") == pages > 0
    before, where = published(home), ("--home", home)
    for words in (
        ("export", SITE, "-c", OLD, "--out", tmp_path / "out.duckdb", *where),
        ("get", f"https://{SITE}/robots.txt", "-c", OLD, "--subset", "robotstxt", "--out", tmp_path / "one", *where),
        ("targets", "add", SITE, *where),
        ("targets", "remove", SITE, *where),
    ):
        said = cli(*words)
        assert said.status == 0 or words[0] == "get", (words, said)
        assert published(home) >= before, words
    # a run of one subset after the other adds to what is there, and one of both is no other
    assert run("crawldiagnostics") == pages + errors
    assert run("warc", "robotstxt") == pages + robots + errors
    assert published(home) >= before
    assert {row[-1] for row in published(home)} == {"fetched"}


def rows(workspace: Workspace, crawl: str) -> dict[tuple[str, int], tuple[str, object]]:
    """Which index named each capture, and its time, by place."""
    found = workspace.lake.read("captures", {"crawl": crawl, "target": SITE}).to_pylist()
    assert len({(row["warc_filename"], row["warc_record_offset"]) for row in found}) == len(found)
    return {(row["warc_filename"], row["warc_record_offset"]): (row["located_by"], row["fetch_time"]) for row in found}


def asked(workspace: Workspace, crawl: str, *, made: bool = True) -> list[str]:
    """Extracts the site; what the lookup says. ``made``: whether it was one at all, the first time only."""
    located, fetched, _ = extract(workspace, SITE, crawl=crawl)
    assert (located.fresh_slices, fetched.rows) == (made, located.rows)
    assert extract(workspace, SITE, crawl=crawl)[0].fresh_slices == 0
    return [note for note in located.notes if "kept in" in note]


def test_an_index_with_holes_takes_away_nothing_of_a_whole_one(bucket: Bucket, tmp_path: Path) -> None:
    holed, home = copy_of(bucket[0], tmp_path / "bucket"), tmp_path / "home"
    (hole,) = (holed / f"cc-index/table/cc-main/warc/crawl={NEW}/subset=warc").glob("part-00001*")
    aside = hole.rename(tmp_path / "aside")
    whole = harvested(holed, home, max_index_gaps=1.0)
    assert asked(whole, NEW) == []
    every = rows(whole, NEW)
    assert len(every) == len(bucket[1].captures_of(NEW, subset="warc", domain=SITE))
    assert {by for by, _ in every.values()} == {"zipnum"}
    # a smaller answer adds to what is there, a page is not fetched twice, and what stays is said
    with_holes = workspace_of(holed, home, index="parquet", max_index_gaps=1.0)
    (said,) = asked(with_holes, NEW)
    mixed = rows(with_holes, NEW)
    named = {by for by, _ in mixed.values()}
    assert mixed.keys() == every.keys()
    stayed = sum(by == "zipnum" for by, _ in mixed.values())
    assert "zipnum" in named
    assert said.startswith(f"{format_count(stayed, 'capture', 'are')} kept in {NEW}, although")
    assert not [one for one in rows(with_holes, NEW).values() if one[1] is None]
    # over other holes it takes away nothing of its own answer either, and a whole answer heals the note
    aside.rename(hole)
    filled = workspace_of(holed, home, index="parquet")
    harvest(filled)
    assert asked(filled, NEW) == []
    assert rows(filled, NEW).keys() == every.keys()
    assert {by for by, _ in rows(filled, NEW).values()} == {"parquet"}


@pytest.mark.process
def test_one_of_two_indexes_takes_away_nothing_that_the_other_named(tmp_path: Path) -> None:
    spec = replace(TEST, crawls=(CrawlSpec(ARC, cdx=True, segments=1, files_per_segment=2, zipnum_lines=15),))
    bucket, home = tmp_path / "bucket", tmp_path / "home"
    truth = ensure(bucket, spec).captures_of(ARC, domain=SITE)

    def zipnum_names(some: Sequence[Capture]) -> None:
        shutil.rmtree((bucket / cluster_key(ARC)).parent)
        write_zipnum(bucket, spec, spec.crawls[0], some)

    zipnum_names(truth[::2])
    both = workspace_of(bucket, home)
    assert asked(both, ARC) == []
    every = rows(both, ARC)
    assert (len(every), {by for by, _ in every.values()}) == (len(truth), {"zipnum", "btree"})
    # the one with fewer captures, then the one without their times, then both as at first
    for via, stay in (("zipnum", len(truth) // 2), ("btree", 0), ("auto", 0)):
        said = asked(workspace_of(bucket, home, index=via), ARC, made=via != "auto")
        assert [int(note.split()[0]) for note in said] == [stay] * bool(stay), via
        assert rows(both, ARC) == every, via
    # what an index named and, whole, names no more goes, once a person accepts that
    zipnum_names(truth[2::2])
    shorter = workspace_of(bucket, home, index="zipnum")
    asked(shorter, ARC)
    assert rows(both, ARC) == every
    assert asked(workspace_of(bucket, home, index="zipnum", accept_removals=True), ARC) != []
    assert len(rows(both, ARC)) == len(truth) - 1
