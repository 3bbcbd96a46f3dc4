"""A web whose sites change what they ask of robots, between three crawls and within one; a home of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extensions.policies.fill import fill_policies
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import CrawlSpec, MiniCrawlSpec
from cc_pipeline.testing.mini_crawl.visits import site
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.cli.conftest import cli, rich, world
from cc_pipeline_tests.sharing import make_once
from cc_pipeline_tests.world import extract, harvest, publish, workspace_of

__all__ = ["cli", "rich", "world"]

SITES = 7
CRAWLS = ("CC-MAIN-2024-22", "CC-MAIN-2023-50", "CC-MAIN-2019-47")
SPEC = MiniCrawlSpec(
    seed=2,
    pages=110,
    sites=SITES,
    crawls=tuple(CrawlSpec(crawl, segments=3, files_per_segment=1, parts=1, policies=True) for crawl in CRAWLS),
)
#: All sites but one, of which the pages are here and no robots.txt.
UNREAD = site(1).domain
READ = "set:read = " + ", ".join(site(number).domain for number in range(SITES) if number != 1)


@pytest.fixture(scope="session")
def policies_bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_once(tmp_path_factory, "policies", lambda folder: ensure(folder / "bucket", SPEC)) / "bucket"


@pytest.fixture(scope="session")
def asking(policies_bucket: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The published home."""
    prepared = make_once(tmp_path_factory, "asking", lambda folder: _fill(policies_bucket, folder / "home"))
    home = shutil.copytree(prepared / "home", tmp_path_factory.mktemp("asking") / "home")
    return workspace_of(policies_bucket, home)


def _fill(source: Path, home: Path) -> None:
    pages = workspace_of(source, home)
    robots = workspace_of(source, home, subsets=("warc", "robotstxt"))
    for crawl in CRAWLS:
        harvest(robots, crawl)
        extract(pages, UNREAD, crawl=crawl)
        extract(robots, READ, crawl=crawl)
        fill_policies(robots, crawl, [parse_target(READ).slug])
    publish(pages)
    pages.close()
    robots.close()
