"""What a certificate counts, of whatever targets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import UserInputError
from cc_pipeline.export.provenance import Provenance
from cc_pipeline.extensions.delivery import certificate
from cc_pipeline.extensions.delivery.certificate import certify
from cc_pipeline.harvesting.catalog import columnar_versions
from cc_pipeline.index.lookup import look_up
from cc_pipeline_tests.world import ARC, NEW, OLD, Bucket, harvest, harvested, workspace_of

SITE = "example.com"


def test_the_subsets_that_a_condition_names_are_asked(bucket: Bucket, tmp_path: Path) -> None:
    harvested(bucket[0], tmp_path / "home", subsets=("warc", "crawldiagnostics"))
    workspace, out = workspace_of(bucket[0], tmp_path / "home"), tmp_path / "site.json"
    targets = [parse_target(f"{SITE} where subset=crawldiagnostics"), parse_target("example.org")]
    document = certify(workspace, targets, [NEW], Provenance(), out, print)
    truth = [
        *bucket[1].captures_of(NEW, domain=SITE, subset="crawldiagnostics"),
        *bucket[1].captures_of(NEW, domain="example.org", subset="warc"),
    ]
    [crawl] = document["crawls"]
    assert [crawl["indexes"][kind]["captures"] for kind in ("parquet", "zipnum")] == [len(truth)] * 2
    assert crawl["outcomes"] == {"not requested": len(truth)}
    assert not document["complete"]
    rows = pq.read_table(tmp_path / "site.captures.parquet").to_pylist()
    assert {row["subset"] for row in rows} == {"crawldiagnostics", "warc"}


@pytest.mark.parametrize("subsets", [("robotstxt",), ("robotstxt", "warc")])
def test_the_version_is_that_of_the_subsets_that_were_searched(
    bucket: Bucket, tmp_path: Path, subsets: tuple[str, ...]
) -> None:
    harvested(bucket[0], tmp_path / "home", subsets=subsets)
    workspace, out = workspace_of(bucket[0], tmp_path / "home"), tmp_path / "site.json"
    targets = [parse_target(f"{SITE} where subset=robotstxt")]
    [crawl] = certify(workspace, targets, [NEW], Provenance(), out, print)["crawls"]
    version = columnar_versions(workspace.lake, [NEW])[NEW, "robotstxt"]
    assert crawl["indexes"]["parquet"]["version"] == version
    assert crawl["indexes"]["zipnum"]["version"] not in ("", version)


def test_an_index_without_a_version_does_not_get_that_of_the_harvest(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, out = harvested(bucket[0], tmp_path / "home"), tmp_path / "site.json"
    monkeypatch.setattr(
        certificate, "look_up", lambda *asked, **options: replace(look_up(*asked, **options), index_version="")
    )
    [crawl] = certify(workspace, [parse_target(SITE)], [NEW], Provenance(), out, print)["crawls"]
    assert crawl["indexes"]["parquet"]["version"] and crawl["indexes"]["zipnum"]["version"] == ""


def test_captures_of_several_crawls_are_in_one_file_in_order(bucket: Bucket, tmp_path: Path) -> None:
    workspace, out = harvested(bucket[0], tmp_path / "home"), tmp_path / "site.json"
    harvest(workspace, OLD)
    document = certify(workspace, [parse_target(SITE)], [NEW, OLD], Provenance(), out, print)
    rows = pq.read_table(tmp_path / "site.captures.parquet").to_pylist()
    assert [row["crawl"] for row in rows] == [
        crawl for crawl in (NEW, OLD) for _ in bucket[1].captures_of(crawl, domain=SITE, subset="warc")
    ]
    for crawl in (NEW, OLD):
        own = [(row["warc_filename"], row["warc_record_offset"]) for row in rows if row["crawl"] == crawl]
        assert own == sorted(own)
    assert document["captures"]["rows"] == len(rows)


def test_captures_that_were_added_are_refused(bucket: Bucket, tmp_path: Path) -> None:
    workspace, out = workspace_of(bucket[0], tmp_path / "home"), tmp_path / "x.json"
    with pytest.raises(UserInputError, match="captures:x is a list of named captures"):
        certify(workspace, [parse_target("captures:x")], [ARC], Provenance(), out, print)
    assert not list(tmp_path.glob("x.*"))


def test_a_fault_of_an_index_names_no_path_in_the_certificate(bucket: Bucket, tmp_path: Path) -> None:
    workspace, told = harvested(bucket[0], tmp_path / "home"), list[str]()
    [catalog] = (tmp_path / "home").rglob("row_groups/**/*.parquet")
    catalog.write_bytes(b"no catalog" * 1_000)
    document = certify(workspace, [parse_target(SITE)], [NEW], Provenance(), tmp_path / "site.json", told.append)
    [crawl] = document["crawls"]
    assert crawl["findings"][0] == "parquet was not searched: the index could not be read"
    assert any(str(catalog) in one for one in told)
    for written in tmp_path.glob("site.*"):
        assert str(tmp_path).encode() not in written.read_bytes()
