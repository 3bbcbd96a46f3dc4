"""Manifest, footers, row groups: what one bad index file, a sick source and a full disk do to a crawl."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from cc_pipeline.checks.asset_checks import coverage
from cc_pipeline.checks.scope import Scope
from cc_pipeline.commoncrawl.paths import path_list_key
from cc_pipeline.errors import DataFault, EnvironmentFault
from cc_pipeline.harvesting.catalog import open_catalog, read_catalog_table
from cc_pipeline.harvesting.crawl_index import (
    changed_list_digest,
    commit_manifest,
    harvest_footers,
    is_harvested,
)
from cc_pipeline.harvesting.crawls import commit_crawls, crawls_are_listed
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline.lake.slice import HARVEST, Slice
from cc_pipeline.lake.slices import invalidate_slices
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.world import (
    ARC,
    NEW,
    OLD,
    Bucket,
    copy_of,
    extract,
    harvest,
    harvested,
    replace_file,
    workspace_of,
)


def index_files(bucket: Path, crawl: str = NEW, subset: str = "warc") -> list[Path]:
    return sorted((bucket / f"cc-index/table/cc-main/warc/crawl={crawl}/subset={subset}").glob("*.parquet"))


def test_a_corrupt_footer_costs_its_own_captures_until_it_is_mended_and_nothing_silently(
    bucket: Bucket, tmp_path: Path
) -> None:
    root = copy_of(bucket[0], tmp_path / "bucket")
    bad = index_files(root)[0]
    data = bytearray(bad.read_bytes())
    length = int.from_bytes(data[-8:-4], "little")
    data[-8 - length : -8] = b"\xff" * length
    replace_file(bad, bytes(data))
    name = str(bad.relative_to(root))
    workspace = workspace_of(root, tmp_path / "home", index="parquet", max_index_gaps=0.5)
    report = harvest(workspace)
    assert [note for note in report.notes if name in note and "failed" in note]
    files = {row["path"]: row for row in read_catalog_table(workspace.lake, "index_files", NEW).to_pylist()}
    assert {path for path, row in files.items() if row["outcome"] == "failed"} == {name}
    assert files[name]["reason"]
    covered = {row["subset"]: row for row in read_catalog_table(workspace.lake, "coverage", NEW).to_pylist()}
    assert (covered["warc"]["expected"], covered["warc"]["harvested"], covered["warc"]["failed"]) == (2, 1, 1)
    verdict = coverage.verdict(workspace, Scope())
    assert not verdict.passed
    assert "1 could not be read" in verdict.message
    domains = bucket[1].domains()
    whole = {(c.warc_filename, c.warc_record_offset) for c in bucket[1].captures_of(NEW, subset="warc")}
    located, *_ = extract(workspace, *domains)
    rows = workspace.lake.read("captures", {"crawl": NEW}).to_pylist()
    found = {(row["warc_filename"], row["warc_record_offset"]) for row in rows}
    assert 0 < len(found) < len(whole)
    assert found < whole
    assert [note for note in located.notes if "1 of 2 index files" in note and "not in this answer" in note]
    # the file is mended later: it is harvested, and its domains are looked up again
    assert not is_harvested(workspace, NEW)
    replace_file(bad, (bucket[0] / bad.relative_to(root)).read_bytes())
    assert harvest(workspace).written == 1
    located, fetched, _ = extract(workspace, *domains)
    assert located.fresh_slices == len(domains)
    rows = workspace.lake.read("records", {"crawl": NEW}).to_pylist()
    assert {(row["warc_filename"], row["warc_record_offset"]) for row in rows} == whole
    assert [note for note in fetched.notes if "stored already" in note]


def test_the_same_files_under_other_etags_are_read_and_nothing_is_located_again(bucket: Bucket, tmp_path: Path) -> None:
    root = copy_of(bucket[0], tmp_path / "bucket")
    workspace = harvested(root, tmp_path / "home")
    extract(workspace, "example.com")
    for file in (root / "cc-index" / "table").rglob("*.parquet"):
        replace_file(file, file.read_bytes())
    shutil.rmtree(workspace.settings.footers_path)
    harvest(workspace)
    files = read_catalog_table(workspace.lake, "index_files", NEW)
    kept = FooterStore(workspace.settings.footers_path).read(NEW).entries
    with open_catalog(workspace.lake) as catalog:
        for said in (files, catalog.index_files(NEW)):
            assert {row["path"]: row["etag"] for row in said.to_pylist()} == {path: kept[path].etag for path in kept}
    assert extract(workspace, "example.com")[0].fresh_slices == 0
    assert extract(workspace, "example.org")[0].written == len(
        bucket[1].captures_of(NEW, subset="warc", domain="example.org")
    )


def test_a_sick_source_stops_the_harvest_and_what_was_kept_stays(bucket: Bucket, tmp_path: Path) -> None:
    with FaultServer(bucket[0]) as server:
        workspace = harvested(server.url, tmp_path)
        before = workspace.lake.pin("row_groups").version
        commit_manifest(workspace, OLD)
        server.set_rules([Rule("403", key="cc-index/*", times=None)])
        with pytest.raises(EnvironmentFault, match=r"the harvest stopped .*(forbidden|refused repeatedly)") as refused:
            harvest_footers(workspace, OLD)
        assert "run the command again: harvested files are kept" in refused.value.advice
        assert workspace.lake.pin("row_groups").version == before
        server.set_rules([])
        # the breaker of this run stays open; the next one asks again
        assert harvest(workspace_of(server.url, tmp_path), OLD).written == 2


def test_what_a_harvest_would_change_is_known_without_one(bucket: Bucket, tmp_path: Path) -> None:
    root = copy_of(bucket[0], tmp_path / "bucket")
    workspace = workspace_of(root, tmp_path / "home")
    assert not crawls_are_listed(workspace)
    commit_crawls(workspace)
    assert crawls_are_listed(workspace)
    for crawl in (NEW, ARC):
        assert not is_harvested(workspace, crawl)
        harvest(workspace, crawl)
        assert is_harvested(workspace, crawl)
    invalidate_slices(workspace.lake, HARVEST, [Slice(NEW)])
    assert not is_harvested(workspace, NEW)
    harvest(workspace, NEW)
    assert is_harvested(workspace, NEW)
    put_list(root, index_paths(root, NEW)[:-1])
    assert not is_harvested(workspace, NEW)
    harvest(workspace, NEW)
    assert is_harvested(workspace, NEW)


@pytest.mark.matrix
@pytest.mark.parametrize(
    "odd",
    [
        pytest.param("../x", id="outside"),
        pytest.param("cc-index/table/README", id="readme"),
        pytest.param("<html>", id="html"),
        pytest.param("x" * 5_000, id="long"),
        pytest.param("cc-index/table/\u00e9.parquet", id="not-ascii"),
        pytest.param(f"cc-index/table/cc-main/warc/crawl={OLD}/subset=warc/part-00000-x.gz.parquet", id="other-crawl"),
    ],
)
def test_one_odd_line_of_a_path_list_costs_itself_in_every_reader(bucket: Bucket, tmp_path: Path, odd: str) -> None:
    root, home = copy_of(bucket[0], tmp_path / "bucket"), tmp_path / "home"
    paths = index_paths(root, NEW)
    put_list(root, [paths[0], odd, *paths[1:], paths[0]])
    report = commit_manifest(workspace_of(root, home), NEW)
    assert report.rows == len(paths)
    [note] = report.notes
    assert note.startswith("1 line of ")
    assert odd[:20].encode("unicode_escape").decode()[:12] in note
    workspace = harvested(root, home)
    assert is_harvested(workspace_of(root, home), NEW)
    assert changed_list_digest(workspace_of(root, home), NEW) is None
    for listed in ("cc-index-table", "warc"):
        key = root / path_list_key(NEW, listed)
        replace_file(key, key.read_bytes() + gzip.compress(f"{odd}\n".encode()))
    [_, fetched, _] = extract(workspace, "example.org")
    assert fetched.per_target["example.org"]["fetched"] > 0


def test_a_list_of_odd_lines_is_none(bucket: Bucket, tmp_path: Path) -> None:
    root = copy_of(bucket[0], tmp_path / "bucket")
    put_list(root, ["<html>", "<html>", index_paths(root, NEW)[0]])
    with pytest.raises(DataFault):
        commit_manifest(workspace_of(root, tmp_path / "other"), NEW)


def put_list(bucket: Path, paths: Sequence[str], crawl: str = NEW) -> None:
    listed = "".join(f"{path}\n" for path in paths)
    replace_file(bucket / path_list_key(crawl, "cc-index-table"), gzip.compress(listed.encode()))


def index_paths(bucket: Path, crawl: str) -> list[str]:
    with gzip.open(bucket / path_list_key(crawl, "cc-index-table"), "rt") as listed:
        return listed.read().split()
