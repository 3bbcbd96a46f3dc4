"""A home whose captures have keys of before heals by one run; nothing else of it is touched, and no index is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cc_pipeline.automation.due import due_of
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.extraction.plan import Why
from cc_pipeline.extraction.run import look
from cc_pipeline.extraction.shortfall import NotGiven
from cc_pipeline.index.zipnum import locator
from cc_pipeline.lake.slice import FETCH, LOCATE, Slice
from cc_pipeline.minicrawl.generate import ensure
from cc_pipeline.minicrawl.spec import CrawlSpec, MiniCrawlSpec
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.world import Bucket, copy_of, due, extract, workspace_of

CRAWL, NEW = "CC-MAIN-2015-35", "CC-MAIN-2018-05"
SITE, SET, OTHER = "example.com", "set:press = example.org, exemple-example.fr", "example.org"
SPEC = MiniCrawlSpec(
    pages=60,
    sites=8,
    crawls=(
        CrawlSpec(CRAWL, segments=1, parts=1, row_group_rows=200, zipnum_lines=15, old_names=True),
        CrawlSpec(NEW, segments=1, parts=1, row_group_rows=200, zipnum_lines=15),
    ),
)
INDEXES = ("cc-index/", "cc-index-table", "cluster.idx")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Bucket:
    root = tmp_path_factory.mktemp("old") / "bucket"
    return root, ensure(root, SPEC)


@pytest.fixture
def server(old: Bucket) -> Iterator[FaultServer]:
    with FaultServer(old[0]) as opened:
        yield opened


def as_before(server: FaultServer, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier version made of both crawls: rows of the old index with their names as they stood there, all of
    them missing, next to a slice of another crawl that is whole."""
    workspace = workspace_of(server.url, home, via="zipnum")
    with monkeypatch.context() as patched:
        patched.setattr(locator, "todays_key", lambda name: name)
        workspace.register_targets([parse_target(text) for text in (SITE, SET)])
        locate_captures(workspace, CRAWL, [SITE, "set-press"])
    with suppress(NotGiven):  # nothing came of many, which is doubted by now
        fetch_captures(workspace, CRAWL, [SITE, "set-press"])
    extract(workspace, OTHER, crawl=NEW)


def keys(workspace: Workspace, table: str, crawl: str = CRAWL) -> Counter[str]:
    names = workspace.lake.read(table, {"crawl": crawl}, ["warc_filename"])["warc_filename"].to_pylist()
    return Counter("old" if name.startswith("common-crawl/") else "new" for name in names)


def outcomes(workspace: Workspace, crawl: str = CRAWL) -> Counter[str]:
    return Counter(workspace.lake.read("records", {"crawl": crawl}, ["outcome"])["outcome"].to_pylist())


def test_a_home_of_before_heals_by_one_run_and_no_index_is_asked(
    old: Bucket, server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_before(server, tmp_path, monkeypatch)
    workspace = workspace_of(server.url, tmp_path)  # via auto, and nothing is harvested
    captures = sum(
        len(old[1].of(CRAWL, subset="warc", domain=domain)) for domain in (SITE, OTHER, "exemple-example.fr")
    )
    assert keys(workspace, "captures") == {"old": captures}
    settled = workspace.lake.read("records", {"crawl": CRAWL}, ["outcome", "settled"]).to_pylist()
    assert settled == [{"outcome": "missing", "settled": True}] * captures
    lake = workspace.lake
    before = {table: lake.digests(table, lake.digest_names(table)) for table in ("captures", "records")}
    stands = look(workspace, CRAWL, [SITE, "set-press"])
    assert {str(why) for why in stands.plan.of(LOCATE).values()} == {Why.KEYS.value}
    assert due_of(stands, datetime.now(UTC)).stale == {SITE, "set-press"}
    assert due(workspace, LOCATE, OTHER, crawl=NEW) == due(workspace, FETCH, OTHER, crawl=NEW) == set()

    server.hits.clear()
    located, fetched, _ = extract(workspace, SITE, SET, crawl=CRAWL)
    assert (located.fresh_slices, located.rows, located.requests) == (2, captures, 0)
    assert fetched.written == captures
    assert not [hit.key for hit in server.hits if any(part in hit.key for part in INDEXES)], "no index was asked"
    assert keys(workspace, "captures") == keys(workspace, "records") == {"new": captures}
    assert outcomes(workspace) == {"fetched": captures}
    [row] = workspace.lake.read("lookups", {"crawl": CRAWL, "target": SITE}).to_pylist()
    assert (row["located_by"], row["captures"]) == ("zipnum", len(old[1].of(CRAWL, subset="warc", domain=SITE)))

    whole = extract(workspace, SITE, SET, crawl=CRAWL) + extract(workspace, OTHER, crawl=NEW)
    assert [report.fresh_slices for report in whole] == [0] * 6
    for table, digests in before.items():
        mine = {name: digest for name, digest in digests.items() if f":{NEW}:" in name}
        assert mine and lake.holds(table, mine), "nobody else is touched"


def test_captures_that_came_under_such_keys_stay(old: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket of one's own may have been copied with the folder: what came from it is right."""
    copied = copy_of(old[0], tmp_path / "bucket")
    (copied / "common-crawl").mkdir()
    (copied / "common-crawl/crawl-data").symlink_to(copied / "crawl-data")
    workspace = workspace_of(copied, tmp_path / "home", via="zipnum")
    with monkeypatch.context() as patched:
        patched.setattr(locator, "todays_key", lambda name: name)
        extract(workspace, SITE, crawl=CRAWL)
    assert set(keys(workspace, "records")) == {"old"} and set(outcomes(workspace)) == {"fetched"}
    assert due(workspace, LOCATE, SITE, crawl=CRAWL) == set()


def test_only_captures_that_did_not_come_are_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror that has the files below the folder, but one."""
    bucket = tmp_path / "bucket"
    crawl = CrawlSpec(CRAWL, segments=2, parts=1, row_group_rows=200, zipnum_lines=15, old_names=True)
    ensure(bucket, MiniCrawlSpec(pages=60, sites=8, crawls=(crawl,)))
    workspace = workspace_of(bucket, tmp_path / "home", via="zipnum")
    with monkeypatch.context() as patched:
        patched.setattr(locator, "todays_key", lambda name: name)
        locate_captures(workspace, CRAWL, [SITE])
    (bucket / "common-crawl").mkdir()
    (bucket / "crawl-data").rename(bucket / "common-crawl/crawl-data")
    gone = max(set(workspace.lake.read("captures", {"crawl": CRAWL})["warc_filename"].to_pylist()))
    (bucket / gone).unlink()
    with monkeypatch.context() as patched:
        patched.setattr("cc_pipeline.extraction.standing._with_old_keys", lambda lake, slices: ())
        for _ in range(2):
            with suppress(NotGiven):
                fetch_captures(workspace, CRAWL, [SITE])
    before = outcomes(workspace)
    assert before["fetched"] and before["missing"]
    assert due(workspace, LOCATE, SITE, crawl=CRAWL) == {SITE}
    for _ in range(2):
        locate_captures(workspace, CRAWL, [SITE])
        with suppress(NotGiven):
            fetch_captures(workspace, CRAWL, [SITE])
        named = {"old": before["fetched"], "new": before["missing"]}
        assert keys(workspace, "captures") == keys(workspace, "records") == named
        assert outcomes(workspace) == before, "what came stays"
        assert due(workspace, LOCATE, SITE, crawl=CRAWL) == set(), "it is done once"


def test_captures_that_were_never_asked_for_are_renamed_first(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = workspace_of(server.url, tmp_path, via="zipnum")
    with monkeypatch.context() as patched:
        patched.setattr(locator, "todays_key", lambda name: name)
        locate_captures(workspace, CRAWL, [SITE])
    assert set(keys(workspace, "captures")) == {"old"}
    fetched = extract(workspace, SITE, crawl=CRAWL)[1]
    assert fetched.written and set(outcomes(workspace)) == {"fetched"}
    assert not any(hit.key.startswith("common-crawl/") for hit in server.hits)


def test_names_that_mean_no_key_of_today_are_not_looked_at_again_and_again(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = workspace_of(server.url, tmp_path, via="zipnum")
    with monkeypatch.context() as patched:
        patched.setattr(locator, "todays_key", lambda name: name.replace("/crawl-data/", "/mine/"))
        with suppress(NotGiven):
            extract(workspace, SITE, crawl=CRAWL)
    assert set(keys(workspace, "captures")) == {"old"}
    assert not look(workspace, CRAWL, [SITE]).plan.of(LOCATE)
    assert look(workspace, CRAWL, [SITE]).standings[Slice(CRAWL, SITE)].old_keys is False
