"""Crawls of the ARC years in a home: which index is asked when, what is kept of that, and what stays as it was."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cc_pipeline.archive import arc
from cc_pipeline.commoncrawl.paths import cluster_key
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.crawl_plan import plan_crawl
from cc_pipeline.extraction.fetch import fetch_captures
from cc_pipeline.extraction.locate import locate_captures
from cc_pipeline.index.locator import UNION, NoSuchIndex
from cc_pipeline.lake.slice import LOCATE
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.indexes import write_cdx
from cc_pipeline.testing.mini_crawl.spec import TEST, CrawlSpec
from cc_pipeline.workspace.workspace import Workspace
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.world import ARC, Bucket, copy_of, extract, notes_of, workspace_of

OF_2009, OF_2008 = "CC-MAIN-2009-2010", "CC-MAIN-2008-2009"
SITE, OTHER = "example.com", "example.org"
SMALL = {"segments": 1, "files_per_segment": 2, "coverage": 0.6, "zipnum_lines": 15}
SPEC = replace(
    TEST, crawls=(CrawlSpec(ARC, cdx=True, **SMALL), CrawlSpec(OF_2009, cdx=True, **SMALL), CrawlSpec(OF_2008, **SMALL))
)


@pytest.fixture(scope="module")
def years(tmp_path_factory: pytest.TempPathFactory) -> Bucket:
    root = tmp_path_factory.mktemp("arc") / "bucket"
    return root, ensure(root, SPEC)


def note(workspace: Workspace, target: str, crawl: str = ARC) -> dict[str, Any]:
    [row] = notes_of(workspace, LOCATE, {"crawl": crawl, "target": target})
    return row


def test_whether_there_is_a_cdx_is_asked_once_a_run(years: Bucket, tmp_path: Path) -> None:
    with FaultServer(years[0]) as server:
        for target in (SITE, OTHER):
            workspace = workspace_of(server.url, tmp_path)
            located, fetched = (stage(workspace, OF_2009, [target]) for stage in (locate_captures, fetch_captures))
            assert located.rows == fetched.rows == len(years[1].captures_of(OF_2009, domain=target)) > 0
            assert set(workspace.lake.read("records", {"crawl": OF_2009})["outcome"].to_pylist()) == {"fetched"}
            assert note(workspace, target, OF_2009)["located_by"] == "zipnum"
            for crawl in (OF_2008, OF_2008):
                with pytest.raises(NoSuchIndex, match=f"no index of {crawl}"):
                    locate_captures(workspace, crawl, [target])
        assert [hit.key for hit in server.hits].count(cluster_key(OF_2008)) == 2


def test_what_the_tree_located_stays_when_a_cdx_turns_out_to_be_there(years: Bucket, tmp_path: Path) -> None:
    bucket = copy_of(years[0], tmp_path / "bucket")
    cdx, aside = (bucket / cluster_key(ARC)).parent, tmp_path / "aside"
    cdx.rename(aside)
    before = workspace_of(bucket, tmp_path / "home")
    extract(before, SITE, crawl=ARC)
    assert note(before, SITE)["located_by"] == "btree"
    aside.rename(cdx)
    workspace = workspace_of(bucket, tmp_path / "home")
    assert not plan_crawl(workspace, ARC, [SITE]).plan.slice_plans
    assert [report.fresh_slices for report in extract(workspace, SITE, crawl=ARC)] == [0, 0, 0]
    locate_captures(workspace, ARC, [OTHER])
    found = note(workspace, OTHER)
    assert (found["located_by"], found["captures"]) == (UNION, len(years[1].captures_of(ARC, domain=OTHER)))
    assert found["index_version"].startswith("published+") and len(found["index_version"].split("+")) == 2
    rows = workspace.lake.read("captures", {"crawl": ARC, "target": OTHER}).to_pylist()
    assert {row["located_by"] for row in rows} == {"zipnum"} and all(row["fetch_time"] for row in rows)
    assert not plan_crawl(workspace, ARC, [SITE, OTHER]).plan.reasons_for(LOCATE)


@needs_corpus
@pytest.mark.parametrize("tree", [False, True])
def test_all_real_arc_records_come_through_a_cdx_of_them(tmp_path: Path, tree: bool) -> None:
    real, bucket = CORPUS / "realcrawl/bucket", tmp_path / "bucket"
    for folder in ("parse-output", *(["projects"] if tree else [])):
        shutil.copytree(real / folder, bucket / folder)
    expected = json.loads(gzip.decompress((CORPUS / "realcrawl/expected.json.gz").read_bytes()))[ARC]
    lines, wanted = [], Counter[tuple[str, int]]()
    for _, (segment, date, number, offset, size), url, time in expected:
        key = f"parse-output/segment/{segment}/{date}_{number}.arc.gz"
        wanted[key, offset] += 1
        # half of what a tree names, so that both are needed
        if not tree or len(wanted) % 2:
            record = arc.read_record((real / key).read_bytes()[offset : offset + size], key, offset)
            said = {"url": url, "mime": record.declared_mime, "digest": record.payload_digest, "length": str(size)}
            said |= {"status": str(record.http_status), "offset": str(offset), "filename": f"common-crawl/{key}"}
            lines.append(f"{surt_key(url)} {time} {json.dumps(said)}".encode())
    write_cdx(bucket, CrawlSpec(ARC, zipnum_lines=20), sorted(lines))
    tlds = sorted({surt_key(url).partition(",")[0] for *_, url, _ in expected})
    workspace = workspace_of(bucket, tmp_path / "home")
    workspace.register_targets([parse_target(f"set:all = {', '.join(f'tld:{tld}' for tld in tlds)}")])
    for stage in (locate_captures, fetch_captures):
        stage(workspace, ARC, ["set-all"])
    records = workspace.lake.read("records").to_pylist()
    assert Counter((row["warc_filename"], row["warc_record_offset"]) for row in records) == wanted
    assert Counter(row["outcome"] for row in records) == {"fetched": 261} == {"fetched": len(expected)}
    assert Counter(row["digest_check"] for row in records) == (
        {"match": len(lines), "absent": 261 - len(lines)} if tree else {"match": 261}
    )
    assert note(workspace, "set-all")["located_by"] == (UNION if tree else "zipnum")
