"""A home with three crawls of different eras, published as views and as a copy: for all tests of questions."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from cc_pipeline.settings import Settings
from cc_pipeline_tests.sharing import make_once
from cc_pipeline_tests.world import ARC, NEW, OLD, Bucket, extract, harvest, publish, workspace_of

SITE, OTHER, THIRD = "example.com", "example-foo.com", "example.org"
BOTH = f"set:both = {OTHER}, {THIRD}"
#: Located in one crawl only: nobody looked for its pages in the others.
ONCE = "beispiel-example.de"


@pytest.fixture(scope="session")
def asked_home(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The settings of the home. Errors and redirects were located in one crawl, in the others what comes by itself."""
    prepared = make_once(tmp_path_factory, "asked", lambda folder: _fill(bucket[0], folder / "home"))
    home = shutil.copytree(prepared / "home", tmp_path_factory.mktemp("asked") / "home")
    return workspace_of(bucket[0], home).settings


def _fill(source: Path, home: Path) -> None:
    wide = workspace_of(source, home, subsets=("warc", "crawldiagnostics", "robotstxt"))
    plain = workspace_of(source, home)
    for workspace, crawl in ((wide, NEW), (plain, OLD), (plain, ARC)):
        if crawl != ARC:
            harvest(workspace, crawl)
        extract(workspace, SITE, BOTH, *([ONCE] if crawl == NEW else []), crawl=crawl)
    publish(plain)
    wide.close()
    plain.close()


@pytest.fixture(scope="session")
def asked_copy(asked_home: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same home published as a copy, elsewhere."""
    path = tmp_path_factory.mktemp("copied") / "cc.duckdb"
    original = asked_home.published_path
    kept = original.rename(original.with_name("kept.duckdb"))
    copying = workspace_of(asked_home.source, asked_home.home, publish="copy")
    publish(copying)
    original.rename(path)
    kept.rename(original)
    return path


@pytest.fixture(scope="session")
def in_views(asked_home: Settings) -> Iterator[duckdb.DuckDBPyConnection]:
    """A read-only connection to the published views."""
    with duckdb.connect(str(asked_home.published_path), read_only=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection
