"""WARC and ARC files that a person named: a collection, which is looked up, fetched and parsed as a crawl is."""

from __future__ import annotations

import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.extraction.locate import find_captures
from cc_pipeline.extraction.nearest_capture import find_nearest_capture
from cc_pipeline.harvesting.archives import collection_id, register_archives
from cc_pipeline.harvesting.build_index import build_index
from cc_pipeline.harvesting.crawls import find_crawl, is_published
from cc_pipeline.testing.mini_crawl.generate import generate
from cc_pipeline.testing.mini_crawl.spec import TEST, CrawlSpec
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.archive import builders
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.testing.mini_crawl.news import NewsSpec, NewsTruth, write_news
from cc_pipeline_tests.world import Bucket, extract, harvest, workspace_of

SPEC = NewsSpec(files=4, fetches=11, damaged=None)
PRESS = "LOCAL-press"
DOMAIN = "harbour-herald-example.com"


@pytest.fixture(scope="module")
def news(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, NewsTruth]:
    root = tmp_path_factory.mktemp("news") / "bucket"
    return root, write_news(root, SPEC)


def made(workspace: Workspace, files: list[str], crawl: str = PRESS) -> None:
    register_archives(workspace, files, crawl)
    build_index(workspace, crawl)
    harvest(workspace, crawl)


def test_files_of_every_place_and_form_are_one_collection(news: tuple[Path, NewsTruth], tmp_path: Path) -> None:
    root, truth = news
    here = tmp_path / "here"
    here.mkdir()
    shutil.copy(root / truth.files[0], here / "one file.warc.gz")
    (here / "plain.warc").write_bytes(gzip.decompress((root / truth.files[1]).read_bytes()))
    with FaultServer(root) as server:
        workspace = workspace_of(root, tmp_path / "home")
        names = [
            str(here / "one file.warc.gz"),
            str(here / "plain.warc"),
            truth.files[2],
            f"{server.url}{truth.files[3]}",
        ]
        places = [*(Path(name).as_uri() for name in names[:2]), *names[2:]]
        assert not is_published(workspace, PRESS)
        made(workspace, names)
        assert is_published(workspace, PRESS)
        wanted = truth.of(DOMAIN)
        # one page of it, from the place where its file lies
        one = next(capture for capture in wanted if capture.warc_filename == truth.files[3] and capture.title)
        got = find_nearest_capture(
            workspace, parse_target(f"url:{one.url}"), None, crawls=[find_crawl(workspace, PRESS)]
        )
        assert (got.address, got.stored, got.record.url) == (names[3], False, one.url)
        _, fetched, _ = extract(workspace, DOMAIN, crawl=PRESS)
        assert fetched.rows == len(wanted)
        records = workspace.lake.read("records").to_pylist()
        assert [(r["warc_filename"], r["reason"], r["detail"]) for r in records if r["outcome"] != "fetched"] == []
        assert {row["warc_filename"] for row in records} == {*places}
        lies = dict(zip(truth.files, places, strict=True))
        found = {(row["url"], row["warc_filename"]) for row in workspace.lake.read("page_metadata").to_pylist()}
        assert found == {(one.url, lies[one.warc_filename]) for one in wanted}


def test_an_arc_file_of_a_crawl_without_an_index_is_found_and_fetched(tmp_path: Path) -> None:
    of_2008 = CrawlSpec("CC-MAIN-2008-2009", segments=1, files_per_segment=1, coverage=0.3)
    truth = generate(tmp_path / "bucket", replace(TEST, crawls=(of_2008,)))
    wanted = truth.captures[0]
    workspace = workspace_of(tmp_path / "bucket", tmp_path / "home")
    assert wanted.warc_filename.startswith("crawl-001/")
    made(workspace, [wanted.warc_filename])
    extract(workspace, f"url:{wanted.url}", crawl=PRESS)
    [record] = [
        row
        for row in workspace.lake.read("records").to_pylist()
        if row["warc_record_offset"] == wanted.warc_record_offset
    ]
    assert (record["warc_filename"], record["outcome"]) == (wanted.warc_filename, "fetched")


def test_revisits_are_counted_and_are_no_captures(bucket: Bucket, tmp_path: Path) -> None:
    root, truth = bucket
    file = next(one.warc_filename for one in truth.captures if one.content_mime_type == "warc/revisit")
    mine = [one for one in truth.captures if one.warc_filename == file]
    revisits = [one for one in mine if one.content_mime_type == "warc/revisit"]
    workspace = workspace_of(root, tmp_path)
    register_archives(workspace, [str(root / file)], PRESS)
    report = build_index(workspace, PRESS)
    figures = report.per_target[PRESS]
    assert figures["captures indexed now"] == len(mine) - len(revisits)
    assert figures["revisits, not indexed"] == len(revisits) > 0
    assert any("revisits are not indexed" in note for note in report.notes)


def test_files_that_a_person_added_are_named_and_not_the_source(bucket: Bucket, tmp_path: Path) -> None:
    path = tmp_path / "odd.warc.gz"
    records = (builders.response(b"page %d" % number, url=f"http://odd.example/{number}") for number in range(200))
    path.write_bytes(builders.members(records))
    workspace = workspace_of(bucket[0], tmp_path / "home")
    made(workspace, [str(path)])
    path.unlink()
    with pytest.raises(EnvironmentFault, match="the files of LOCAL-press did not give 200 of 200 captures"):
        extract(workspace, "odd.example", crawl=PRESS)


def test_a_file_that_is_compressed_whole_is_told_apart(news: tuple[Path, NewsTruth], tmp_path: Path) -> None:
    path = tmp_path / "whole.warc.gz"
    path.write_bytes(gzip.compress(gzip.decompress((news[0] / news[1].files[2]).read_bytes())))
    workspace = workspace_of(news[0], tmp_path / "home")
    made(workspace, [str(path)])
    assert find_captures(workspace, PRESS, [parse_target(DOMAIN)]).captures[DOMAIN].num_rows == 0
    reasons = workspace.lake.read("source_faults").column("reason").to_pylist()
    assert reasons and all("shares a gzip member" in reason for reason in reasons)


def test_a_file_that_changed_is_indexed_again_when_it_is_added_again(
    news: tuple[Path, NewsTruth], tmp_path: Path
) -> None:
    path = tmp_path / "press.warc.gz"
    shutil.copy(news[0] / news[1].files[0], path)
    workspace = workspace_of(news[0], tmp_path / "home")
    made(workspace, [str(path)])
    assert build_index(workspace, PRESS).written == 0
    path.write_bytes((news[0] / news[1].files[2]).read_bytes())
    register_archives(workspace, [str(path)], PRESS)
    assert build_index(workspace, PRESS).written == 1
    harvest(workspace, PRESS)
    wanted = [one for one in news[1].of(DOMAIN) if one.warc_filename == news[1].files[2]]
    assert find_captures(workspace, PRESS, [parse_target(DOMAIN)]).captures[DOMAIN].num_rows == len(wanted)
    assert len(list(Path(workspace.settings.lake).glob("built-index/**/*.parquet"))) == 1


def test_what_cannot_be_added(news: tuple[Path, NewsTruth], tmp_path: Path) -> None:
    workspace = workspace_of(news[0], tmp_path)
    for wrong in ("/nowhere/a.warc.gz", "crawl-data/none.warc.gz"):
        with pytest.raises(UserInputError, match=r"not a file|neither a file on this machine nor"):
            register_archives(workspace, [wrong], PRESS)
    with pytest.raises(UserInputError, match="credentials") as refused:
        register_archives(workspace, ["https://me:secret@example.org/a.warc.gz"], PRESS)
    assert "secret" not in str(refused.value)
    with pytest.raises(UserInputError, match="no file was added to LOCAL-other"):
        build_index(workspace, "LOCAL-other")


@pytest.mark.parametrize("named", ["CC-MAIN-2024-22", "cc-news-2026-05", "a b", "../x", ""])
def test_what_names_no_collection(named: str) -> None:
    with pytest.raises(UserInputError):
        collection_id(named)
