"""Crawls of the ARC years through every index they have, and index rows that name archive files as years ago."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cc_pipeline.commoncrawl.key_ranges import btree_key
from cc_pipeline.commoncrawl.paths import cluster_key, parse_arc_key
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.index.btree.locator import CRAWL_2012, URL_INDEX_2012
from cc_pipeline.index.locator import UNION, NoSuchIndex
from cc_pipeline.index.lookup import IndexSources, look_up, price_lookup
from cc_pipeline.index.zipnum.locator import capture_of
from cc_pipeline.testing.mini_crawl.btree import pack_pointer, write_btree
from cc_pipeline.testing.mini_crawl.generate import generate
from cc_pipeline.testing.mini_crawl.indexes import write_zipnum
from cc_pipeline.testing.mini_crawl.spec import TEST, CrawlSpec, MiniCrawlSpec
from cc_pipeline.testing.mini_crawl.truth import Capture, MiniCrawlTruth
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import ENVIRONMENT_KINDS, FaultKind, RangeFault
from cc_pipeline.transport.ranges import RetryPolicy
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.index.lookup_world import ALL_SUBSETS, Place, harvest_world, places

OF_2009, OF_2008, OF_2015 = "CC-MAIN-2009-2010", "CC-MAIN-2008-2009", "CC-MAIN-2015-35"
SMALL = {"segments": 1, "files_per_segment": 2, "coverage": 0.6, "zipnum_lines": 15}
SPEC = replace(
    TEST,
    crawls=(
        CrawlSpec(CRAWL_2012, cdx=True, **SMALL),
        CrawlSpec(OF_2009, cdx=True, **SMALL),
        CrawlSpec(OF_2008, **SMALL),
    ),
)
Bucket = tuple[Path, MiniCrawlTruth]
QUICK = RetryPolicy(attempts=1, base=0.001, longest=0.002)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Bucket:
    root = tmp_path_factory.mktemp("arc") / "bucket"
    return root, generate(root, SPEC)


def _places(captures: Sequence[Capture]) -> set[Place]:
    return {(surt_key(c.url), c.warc_filename, c.warc_record_offset, c.warc_record_length) for c in captures}


def test_a_crawl_of_the_arc_years_is_found_through_zipnum(bucket: Bucket) -> None:
    root, truth = bucket
    captures = {(c.warc_filename, c.warc_record_offset): c for c in truth.captures_of(OF_2009)}
    targets = [parse_target(domain) for domain in truth.domains(OF_2009)]
    with Transport(str(root)) as transport:
        answer = look_up(OF_2009, ["warc"], targets, IndexSources(transport))
        assert (answer.index, answer.reason) == ("zipnum", "zipnum, the only index")
        assert places(answer) == _places(list(captures.values()))
        for row in (row for table in answer.captures.values() for row in table.to_pylist()):
            capture = captures[row["warc_filename"], row["warc_record_offset"]]
            assert (row["archive_format"], row["subset"], row["warc_segment"]) == ("arc", "warc", None)
            assert row["fetch_time"] == capture.fetch_time
            assert (row["fetch_status"], row["content_mime_type"], row["content_digest"]) == (
                capture.fetch_status,
                capture.content_mime_type,
                capture.payload_digest,
            )
        with pytest.raises(NoSuchIndex, match=r"no index of CC-MAIN-2008-2009.*files add KEY --kind warc"):
            look_up(OF_2008, ["warc"], targets, IndexSources(transport))


def _halves(root: Path, truth: MiniCrawlTruth, at: Path, seed: int) -> tuple[set[Place], set[Place]]:
    """A bucket with indexes alone, of two random parts of the crawl of 2012; the places in each."""
    rng = random.Random(seed)
    captures = truth.captures_of(CRAWL_2012)
    tree, cdx = ([c for c in captures if rng.random() < share] for share in (rng.random(), rng.random()))
    spec = SPEC.crawl(CRAWL_2012)
    (at / "parse-output").mkdir(parents=True)
    (at / "parse-output/valid_segments.txt").write_bytes((root / "parse-output/valid_segments.txt").read_bytes())
    write_zipnum(at, SPEC, spec, [*cdx, *cdx[:2]] if cdx else captures[:1])
    items = []
    for capture in tree:
        file = parse_arc_key(capture.warc_filename)
        place = (capture.warc_record_offset, capture.warc_record_length)
        items.append((btree_key(capture.url), pack_pointer(file.segment_id, file.file_date_ms, file.partition, *place)))
    (at / URL_INDEX_2012).parent.mkdir(parents=True)
    with (at / URL_INDEX_2012).open("wb") as out:
        write_btree(sorted(items), out, SPEC.btree_block_size)
    return _places(tree), _places(cdx or captures[:1])


@pytest.mark.parametrize("seed", range(6))
def test_tree_and_cdx_of_2012_are_united_by_place(bucket: Bucket, tmp_path: Path, seed: int) -> None:
    root, truth = bucket
    in_tree, in_cdx = _halves(root, truth, tmp_path / "halves", seed)
    targets = [parse_target(domain) for domain in truth.domains(CRAWL_2012)]
    with Transport(str(tmp_path / "halves")) as transport:
        sources = IndexSources(transport)
        answers = {via: look_up(CRAWL_2012, ["warc"], targets, sources, via=via) for via in ("btree", "zipnum", "auto")}
        assert price_lookup(CRAWL_2012, ["warc"], targets, sources).index == UNION
    both = answers["auto"]
    assert (places(answers["btree"]), places(answers["zipnum"])) == (in_tree, in_cdx)
    assert places(both) == in_tree | in_cdx
    rows = [row for table in both.captures.values() for row in table.to_pylist()]
    assert len(rows) == len(in_tree | in_cdx), "none is there twice"
    assert (both.index, both.index_version) == (UNION, answers["zipnum"].index_version)
    for row in rows:
        named = (surt_key(row["url"]), row["warc_filename"], row["warc_record_offset"], row["warc_record_length"])
        assert row["located_by"] == ("zipnum" if named in in_cdx else "btree")
        assert (row["fetch_time"] is None) == (row["fetch_status"] is None) == (named not in in_cdx)


@pytest.mark.parametrize("kind", ["403", "500", "reset"])
@pytest.mark.parametrize("key", [cluster_key(CRAWL_2012), "cc-index/*/cdx-*.gz"])
def test_a_cdx_that_does_not_answer_is_no_answer_of_the_tree_alone(bucket: Bucket, kind: str, key: str) -> None:
    root, truth = bucket
    target = parse_target(truth.domains(CRAWL_2012)[0])
    with FaultServer(root, rules=[Rule(kind, key, times=None)]) as server, _quick(server) as transport:
        for via in ("auto", "zipnum"):
            if (kind, key, via) == ("403", cluster_key(CRAWL_2012), "auto"):
                continue  # below
            with pytest.raises(RangeFault) as raised:
                look_up(CRAWL_2012, ["warc"], [target], IndexSources(transport), via=via)
            assert raised.value.kind in ENVIRONMENT_KINDS
    with FaultServer(root, rules=[Rule(kind, key, times=None)]) as server, _quick(server) as transport:
        answer = look_up(CRAWL_2012, ["warc"], [target], IndexSources(transport), via="btree")
        assert places(answer) == _places(truth.captures_of(CRAWL_2012, domain=target.value))


def test_a_cdx_that_alone_is_refused_is_taken_for_absent_where_the_source_gives_the_tree(bucket: Bucket) -> None:
    root, truth = bucket
    target = parse_target(truth.domains(CRAWL_2012)[0])
    with FaultServer(root, rules=[Rule("403", "*cluster.idx", times=None)]) as server, _quick(server) as transport:
        answer = look_up(CRAWL_2012, ["warc"], [target], IndexSources(transport))
        assert (answer.index, places(answer)) == ("btree", _places(truth.captures_of(CRAWL_2012, domain=target.value)))
        assert any("the source refuses " in note for note in answer.notes)
        with pytest.raises(RangeFault):
            look_up(OF_2009, ["warc"], [target], IndexSources(transport))
    refuses_all = FaultServer(root, rules=[Rule("403", times=None)])
    with (
        refuses_all as server,
        Transport(server.url, SourceOptions(retry=QUICK, wait=0.0)) as transport,
    ):
        with pytest.raises(RangeFault) as raised:
            look_up(CRAWL_2012, ["warc"], [target], IndexSources(transport))
        assert raised.value.kind in (FaultKind.FORBIDDEN, FaultKind.REFUSED)


def _quick(server: FaultServer) -> Transport:
    return Transport(server.url, SourceOptions(retry=QUICK))


def test_a_tree_that_does_not_answer_is_no_answer_of_the_cdx_alone(bucket: Bucket) -> None:
    root, truth = bucket
    target = parse_target(truth.domains(CRAWL_2012)[0])
    with FaultServer(root, rules=[Rule("500", URL_INDEX_2012, times=None)]) as server, _quick(server) as transport:
        with pytest.raises(RangeFault):
            look_up(CRAWL_2012, ["warc"], [target], IndexSources(transport))
        answer = look_up(CRAWL_2012, ["warc"], [target], IndexSources(transport), via="zipnum")
        assert places(answer) == _places(truth.captures_of(CRAWL_2012, domain=target.value))


def test_names_of_2015_are_the_keys_of_today_in_every_index(tmp_path: Path) -> None:
    answers = {}
    for old_names in (False, True):
        crawl = CrawlSpec(OF_2015, segments=1, parts=1, row_group_rows=40, old_names=old_names)
        root = tmp_path / str(old_names)
        truth = generate(root / "bucket", MiniCrawlSpec(pages=60, sites=6, crawls=(crawl,)))
        world = harvest_world(root / "bucket", root, truth, (OF_2015,))
        targets = [parse_target(domain) for domain in truth.domains()]
        with Transport(str(world.root)) as transport:
            sources = IndexSources(transport, world.catalog, footers=root / "footers")
            for via in ("parquet", "zipnum"):
                found = look_up(OF_2015, ALL_SUBSETS, targets, sources, via=via)
                assert places(found) == _places(truth.captures_of(OF_2015))
                answers[via, old_names] = found.captures
    raw = gzip.decompress((tmp_path / "True/bucket" / cluster_key(OF_2015)).with_name("cdx-00000.gz").read_bytes())
    assert b'"common-crawl/crawl-data/' in raw, "the index really has them"
    for slug, table in answers["zipnum", False].items():
        assert table.drop_columns("index_position").equals(answers["zipnum", True][slug].drop_columns("index_position"))


def test_an_old_line_without_fields_is_a_capture_whose_record_tells_the_rest() -> None:
    said = {"url": "http://example.com/", "mime": "unk", "offset": "5", "length": "7"}
    name = "common-crawl/crawl-002/2009/09/17/0/1253228619531_0.arc.gz"
    line = b"com,example)/ 20090917010203 " + json.dumps(said | {"filename": name}).encode()
    row = capture_of(line, "shard", 0)
    assert (row["warc_filename"], row["archive_format"]) == (name.removeprefix("common-crawl/"), "arc")
    assert row["fetch_status"] is row["content_mime_type"] is row["content_digest"] is None
    warc = capture_of(line.replace(b"1253228619531_0.arc.gz", b"x.arc.example-1.warc.gz"), "shard", 0)
    assert (warc["archive_format"], warc["fetch_status"], warc["content_mime_type"]) == ("warc", None, "unk")
