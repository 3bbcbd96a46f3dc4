"""Blocked sites: two homes on one lake, targets of every kind that reach them, and back again."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.extraction.blocked import block, blocked, unblock
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.nearest import nearest_capture
from cc_pipeline.extraction.run import look
from cc_pipeline.minicrawl import MiniCrawlTruth
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
    [said] = blocked(other).said([parse_target(SET)])
    assert said.startswith(f"{SITE} is blocked since 20") and "(their letter)" in said
    assert blocked(other).said([parse_target(OTHER)]) == []

    # what was located before is refused until it is located again; what the site itself has here stays
    with pytest.raises(EnvironmentFault, match="before it, or a site of it, was blocked"):
        _fetch_again(mine, SET)
    for target in WIDER:
        extract(other, target)
        assert SITE not in held(other, target) | held(other, target, "captures"), target
    assert held(other, SET) == held(other, SET, "page_metadata") == {OTHER}
    assert look(other, NEW, [SITE]).plan.todos == ()
    extract(other, SITE)
    assert mine.lake.read("records", {"crawl": NEW, "target": SITE}).num_rows == before > 0
    page = mine.lake.read("captures", {"crawl": NEW, "target": SITE}, ["url"]).column("url")[0].as_py()
    with pytest.raises(UserInputError, match="is blocked since"):
        nearest_capture(other, parse_target(f"url:{page}"), None)
    assert "set-duo" in look(other, NEW, ["set-duo"]).current, "nothing more is to be done"

    with pytest.raises(UserInputError, match="is not blocked"):
        unblock(other, [parse_target(OTHER)])
    assert unblock(other, [site]).blocks == ()
    extract(mine, SET)
    assert held(mine, SET) == {SITE, OTHER}
    assert look(mine, NEW, [SITE]).plan.todos == ()


def test_a_list_that_cannot_be_read_stops_everything(bucket: tuple[Path, MiniCrawlTruth], tmp_path: Path) -> None:
    workspace = workspace_of(bucket[0], tmp_path / "home")
    block(workspace, [parse_target(SITE)])
    workspace.place.put("blocked.json", b'[{"definition": "exa mple"}]')
    with pytest.raises(EnvironmentFault, match=r"blocked\.json is no list of blocked sites"):
        blocked(workspace)


def _fetch_again(workspace: Workspace, target: str) -> None:
    """Asks the source for a record of the target that it said it lacks."""
    places = workspace.lake.read("captures", {"crawl": NEW, "target": parse_target(target).slug})
    row = places.slice(0, 1).to_pylist()[0]
    fetch_captures(
        workspace, NEW, [parse_target(target).slug], distrusted=[(row["warc_filename"], row["warc_record_offset"])]
    )
