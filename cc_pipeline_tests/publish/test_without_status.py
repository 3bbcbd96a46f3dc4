"""Captures whose index row has no status (CDXJ of 2015): every answer is that of an index with statuses, once the pages
are parsed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from cc_pipeline.lake.slice import FETCH, LOCATE, PARSE
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.sharing import make_once
from cc_pipeline_tests.world import NEW, OLD, Bucket, due, extract, publish, workspace_of

SITE = "example.com"
#: The same site with a condition on what the index does not say.
GOOD, BAD = f"{SITE} where status = 200", f"{SITE} where status >= 300"
TARGETS = (SITE, GOOD, BAD)


def made(bucket: Path, home: Path) -> Workspace:
    workspace = workspace_of(bucket, home, index="zipnum", subsets=("warc", "crawldiagnostics"))
    for crawl in (NEW, OLD):
        extract(workspace, *TARGETS, crawl=crawl)
    publish(workspace)
    return workspace


@pytest.fixture(scope="module")
def control(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    prepared = make_once(tmp_path_factory, "control", lambda folder: made(bucket[0], folder / "home").close())
    home = shutil.copytree(prepared / "home", tmp_path_factory.mktemp("control") / "home")
    yield workspace_of(bucket[0], home, index="zipnum", subsets=("warc", "crawldiagnostics"))


@pytest.fixture(scope="module")
def silent(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """A home of an index that says no status."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cc_pipeline.index.zipnum.locator._status", lambda _: None)
        yield made(bucket[0], tmp_path_factory.mktemp("silent"))


QUESTIONS = {
    "captures": "SELECT crawl, url, fetch_status FROM captures ORDER BY ALL",
    "pages": "SELECT crawl, url, fetch_status, http_result, disposition FROM page_metadata ORDER BY ALL",
    "texts": "SELECT crawl, url, fetch_status FROM page_text ORDER BY ALL",
    "timeline": "SELECT * EXCLUDE (first_fetch, last_fetch) FROM timeline() ORDER BY ALL",
    "changes": f"SELECT * FROM changes_between('{OLD}', '{NEW}') ORDER BY ALL",
    "targets": "SELECT * FROM capture_targets WHERE condition_match IS DISTINCT FROM 'no' ORDER BY ALL",
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_published_answers_are_those_of_an_index_with_statuses(
    control: Workspace, silent: Workspace, question: str
) -> None:
    def answer(workspace: Workspace) -> list[tuple[Any, ...]]:
        with duckdb.connect(str(workspace.settings.published_path), read_only=True) as connection:
            return connection.execute(question).fetchall()

    assert answer(control)
    assert answer(silent) == answer(control)


def test_a_condition_is_judged_by_the_page(control: Workspace, silent: Workspace) -> None:
    def meant(workspace: Workspace, table: str) -> list[tuple[Any, ...]]:
        rows = workspace.lake.read(table, None, ["target", "crawl", "url", "condition_match"]).to_pylist()
        return sorted(tuple(map(str, row.values())) for row in rows)

    said = {row[3] for row in meant(silent, "page_metadata")}
    assert {"yes", "no"} <= said
    wanted = {row for row in meant(control, "page_metadata") if row[3] == "yes"}
    assert {row for row in meant(silent, "page_metadata") if row[3] == "yes"} == wanted


def test_nothing_becomes_due(silent: Workspace, bucket: Bucket) -> None:
    later = workspace_of(bucket[0], silent.settings.home, index="zipnum", subsets=("warc", "crawldiagnostics"))
    for stage in (LOCATE, FETCH, PARSE):
        assert due(later, stage, *TARGETS) == set(), stage
