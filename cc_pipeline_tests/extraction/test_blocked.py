"""Blocked sites: two homes on one lake, targets of every kind that reach them, and back again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.extraction.blocklist import block, read_blocklist, unblock
from cc_pipeline.extraction.crawl_plan import plan_crawl
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.nearest_capture import find_nearest_capture
from cc_pipeline.testing.mini_crawl import MiniCrawlTruth
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.world import NEW, extract, harvest, workspace_of

SITE, OTHER, SET = "example.com", "example.org", "set:duo = example.com, example.org"
WIDER = (SET, "tld:com", f"host:www.{SITE}", f"prefix:http://{SITE}/")


def held(workspace: Workspace, target: str, table: str = "records") -> set[str]:
    """The domains of which a target has rows."""
    where = {"crawl": NEW, "target": parse_target(target).slug}
    return {*workspace.lake.read(table, where, ["domain"]).column("domain").to_pylist()}


def test_no_home_of_the_lake_fetches_a_blocked_site(bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    mine, other = (workspace_of(bucket[0], tmp_path / name, lake=lake) for name in ("mine", "other"))
    for workspace in (mine, other):
        harvest(workspace)
    extract(mine, SITE)
    extract(mine, SET)
    assert held(mine, SET) == {SITE, OTHER}
    before = mine.lake.read("records", {"crawl": NEW, "target": SITE}).num_rows
    site = parse_target(SITE)
    block(mine, [site], "their letter")
    [said] = read_blocklist(other).describe_blocks([parse_target(SET)])
    assert said.startswith(f"{SITE} is blocked since 20") and "(their letter)" in said
    assert said.endswith(f"(to undo: cc-pipeline targets unblock {SITE})")
    assert read_blocklist(other).describe_blocks([parse_target(OTHER)]) == []

    # what was located before is refused until it is located again; what the site itself has here stays
    with pytest.raises(EnvironmentFault, match="the list of blocked sites was changed after"):
        _fetch_again(mine, SET)
    for target in WIDER:
        extract(other, target)
        assert SITE not in held(other, target) | held(other, target, "captures"), target
    assert held(other, SET) == held(other, SET, "page_metadata") == {OTHER}
    assert plan_crawl(other, NEW, [SITE]).plan.slice_plans == ()
    extract(other, SITE)
    assert mine.lake.read("records", {"crawl": NEW, "target": SITE}).num_rows == before > 0
    page = mine.lake.read("captures", {"crawl": NEW, "target": SITE}, ["url"]).column("url")[0].as_py()
    for home in (other, workspace_of(bucket[0], tmp_path / "new", lake=lake)):
        with pytest.raises(UserInputError, match=f"is blocked since .*cc-pipeline targets unblock {SITE}"):
            find_nearest_capture(home, parse_target(f"url:{page}"), None)
    assert "set-duo" in plan_crawl(other, NEW, ["set-duo"]).current_targets, "nothing more is to be done"

    with pytest.raises(UserInputError, match="is not blocked"):
        unblock(other, [parse_target(OTHER)])
    assert unblock(other, [site]).blocks == ()
    extract(mine, SET)
    assert held(mine, SET) == {SITE, OTHER}
    assert plan_crawl(mine, NEW, [SITE]).plan.slice_plans == ()


def test_a_list_that_is_only_read_makes_no_home(bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path) -> None:
    workspace = workspace_of(bucket[0], tmp_path / "home")
    assert read_blocklist(workspace).blocks == ()
    with pytest.raises(UserInputError, match="is not blocked"):
        unblock(workspace, [parse_target(SITE)])
    assert not (tmp_path / "home" / "home.json").exists()


def test_a_list_that_cannot_be_read_stops_everything(bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path) -> None:
    workspace = workspace_of(bucket[0], tmp_path / "home")
    block(workspace, [parse_target(SITE)])
    (tmp_path / "home" / "lake" / "tables" / "blocked" / "_delta_log" / f"{0:020}.json").write_text("{")
    with pytest.raises(EnvironmentFault, match="tables/blocked"):
        read_blocklist(workspace_of(bucket[0], tmp_path / "home"))


def test_who_blocks_at_the_same_moment_loses_none(bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    homes = [workspace_of(bucket[0], tmp_path / name, lake=lake) for name in ("one", "two")]
    block(homes[0], [parse_target("old.example")])
    sites = [f"site-{number}.example" for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda at: block(homes[at % 2], [parse_target(sites[at])]), range(len(sites))))
    assert {one.definition for one in read_blocklist(homes[0]).blocks} == {*sites, "old.example"}


def _fetch_again(workspace: Workspace, target: str) -> None:
    """Asks the source for a record of the target that it said it lacks."""
    places = workspace.lake.read("captures", {"crawl": NEW, "target": parse_target(target).slug})
    row = places.slice(0, 1).to_pylist()[0]
    fetch_captures(
        workspace, NEW, [parse_target(target).slug], distrusted=[(row["warc_filename"], row["warc_record_offset"])]
    )
