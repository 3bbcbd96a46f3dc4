"""A crawl is harvested by subset: what is asked for and nothing else, and nothing that was harvested before goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.checks.asset_checks import coverage
from cc_pipeline.checks.scope import Scope
from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.extraction.locate import find_captures
from cc_pipeline.harvesting.catalog import (
    catalog_gaps,
    columnar_versions,
    open_catalog,
    read_catalog_table,
    versions_of,
)
from cc_pipeline.harvesting.crawl_index import (
    commit_row_groups,
    coverage_metrics,
    is_harvested,
    repair_statistics,
)
from cc_pipeline.index.gaps import find_gaps, unharvested
from cc_pipeline.index.locator import NoSuchIndex
from cc_pipeline.lake.slice import HARVEST
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.harvesting.test_crawl_index import index_paths, put_list
from cc_pipeline_tests.world import NEW, OLD, Bucket, copy_of, harvest, harvested, replace_file, workspace_of

SITE = "example.com"
ROBOTS = ("robotstxt",)


def asked_of(server: FaultServer, since: int = 0) -> list[str]:
    """The subsets of the index files that were asked for, in the order of the requests."""
    keys = [hit.key for hit in server.hits[since:] if hit.key.endswith(".parquet")]
    return [key.partition("/subset=")[2].partition("/")[0] for key in keys]


def rows_of(workspace: Workspace, crawl: str = NEW) -> dict[str, set[str]]:
    """Each table of the harvest as a set of its rows."""
    return {
        table: set(map(str, workspace.lake.read(table, {"crawl": crawl}).to_pylist()))
        for table in ("index_manifest", *HARVEST.tables)
    }


def covered(workspace: Workspace, crawl: str = NEW) -> dict[str, tuple[int, int, str | None]]:
    rows = read_catalog_table(workspace.lake, "coverage", crawl).to_pylist()
    return {row["subset"]: (row["expected"], row["harvested"], row["reason"]) for row in rows}


def found(workspace: Workspace, via: str = "parquet", crawl: str = NEW) -> tuple[int, str]:
    target = parse_target(SITE)
    answer = find_captures(workspace, crawl, [target], via=via)
    return answer.captures[target.slug].num_rows, str(answer.reason)


def test_only_the_footers_of_wanted_subsets_are_asked_for(bucket: Bucket, tmp_path: Path) -> None:
    with FaultServer(bucket[0]) as server:
        pages = harvested(server.url, tmp_path)
        assert asked_of(server) == ["warc", "warc"]
        assert is_harvested(pages, NEW)
        assert covered(pages) == {"warc": (2, 2, None)}
        assert len(rows_of(pages)["index_manifest"]) == 4
        before, versions = rows_of(pages), columnar_versions(pages.lake, [NEW])

        robots, asked = workspace_of(server.url, tmp_path, subsets=ROBOTS), len(server.hits)
        assert not is_harvested(robots, NEW)
        harvest(robots)
        assert asked_of(server, asked) == ["robotstxt"]
        assert is_harvested(robots, NEW)
        assert covered(robots) == {"warc": (2, 2, None), "robotstxt": (1, 1, None)}
        after = rows_of(robots)
        assert all(before[table] <= after[table] for table in before)
        assert all(before[table] < after[table] for table in HARVEST.tables)
        assert columnar_versions(pages.lake, [NEW]).items() > versions.items()

        asked = len(server.hits)
        again = workspace_of(server.url, tmp_path)
        assert is_harvested(again, NEW)
        assert harvest(again).written == commit_row_groups(again, [NEW])[NEW].written == 0
        assert asked_of(server, asked) == []
        assert rows_of(again) == after
        assert coverage_metrics(read_catalog_table(again.lake, "coverage", NEW))["subsets"] == "robotstxt, warc"
        truth = bucket[1]
        assert found(pages)[0] == len(truth.captures_of(NEW, subset="warc", domain=SITE))
        assert found(robots)[0] == len(truth.captures_of(NEW, subset="robotstxt", domain=SITE))


def test_a_version_is_of_what_a_subset_holds_whoever_harvested_it(bucket: Bucket, tmp_path: Path) -> None:
    root = copy_of(bucket[0], tmp_path / "bucket")
    one = workspace_of(root, tmp_path / "one")
    for subset in SUBSETS:
        harvest(workspace_of(root, tmp_path / "one", subsets=(subset,)))
    versions = columnar_versions(one.lake, [NEW, OLD])
    assert versions.keys() == {(NEW, subset) for subset in SUBSETS}
    assert versions_of(one.lake.read("row_groups", {"crawl": NEW})) == {
        subset: versions[NEW, subset] for subset in SUBSETS
    }
    assert len(set(versions.values())) == 3

    put_list(root, index_paths(root, NEW)[::-1])
    for file in (root / "cc-index" / "table").rglob("*.parquet"):
        replace_file(file, file.read_bytes())
    other = harvested(root, tmp_path / "other", subsets=SUBSETS)
    assert columnar_versions(other.lake, [NEW]) == versions
    # repairs and other ETags change what is read, and no answer
    repair_statistics(other, NEW)
    assert columnar_versions(other.lake, [NEW]) == versions


def test_a_subset_that_the_path_list_does_not_name_is_harvested_and_empty(bucket: Bucket, tmp_path: Path) -> None:
    root = copy_of(bucket[0], tmp_path / "bucket")
    put_list(root, [path for path in index_paths(root, NEW) if "/subset=warc/" in path])
    harvest(workspace_of(root, tmp_path / "home"))
    robots = workspace_of(root, tmp_path / "home", subsets=ROBOTS)
    assert not is_harvested(robots, NEW)
    assert "names no file of this subset" in harvest(robots).notes[0]
    assert is_harvested(robots, NEW)
    assert covered(robots)["robotstxt"] == (0, 0, "the path list of the crawl names no file of this subset")
    assert columnar_versions(robots.lake, [NEW]).keys() == {(NEW, "warc"), (NEW, "robotstxt")}
    assert found(robots)[0] == 0
    assert coverage.verdict(robots, Scope()).passed


def test_what_was_not_harvested_is_no_hole_and_no_index(bucket: Bucket, tmp_path: Path) -> None:
    pages = harvested(bucket[0], tmp_path)
    both = workspace_of(bucket[0], tmp_path, subsets=("warc", "robotstxt"))
    assert catalog_gaps(both, [NEW]) == []
    with open_catalog(both.lake) as catalog:
        assert find_gaps(catalog, NEW, SUBSETS) is None
        assert unharvested(catalog, NEW, SUBSETS) == ("crawldiagnostics", "robotstxt")
    truth = bucket[1]
    wanted = len(truth.captures_of(NEW, subset="warc", domain=SITE)) + len(
        truth.captures_of(NEW, subset="robotstxt", domain=SITE)
    )
    count, why = found(both, "auto")
    assert count == wanted
    assert why == "zipnum, the only index (parquet is not harvested for robotstxt)"
    with pytest.raises(EnvironmentFault, match=f"the index of {NEW} has not been harvested for robotstxt") as refused:
        found(both)
    assert f"cc-pipeline index harvest --crawl {NEW} --subset robotstxt" in str(refused.value.advice)
    assert not is_harvested(both, NEW)
    assert coverage.verdict(both, Scope()).passed
    with pytest.raises(NoSuchIndex):
        found(pages, crawl=OLD)
