"""Parquet and ZipNum against each other in every column, the B-tree of 2012 against a look at every row there is."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator

import pytest

from cc_pipeline.commoncrawl.paths import parse_path_list, path_list_key
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.index.btree.locator import CRAWL_2012, BTreeLocator
from cc_pipeline.index.parquet.locator import ParquetLocator
from cc_pipeline.index.zipnum.locator import ZipNumLocator
from cc_pipeline.testing.mini_crawl.generate import generate
from cc_pipeline.testing.mini_crawl.spec import spec_for
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.conformance.locator_tests import some_target
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.index.lookup_world import ALL_SUBSETS, World, harvest_world, places
from cc_pipeline_tests.index.parquet.file_finder import FileFinder

NEW, OLD = "CC-MAIN-2024-22", "CC-MAIN-2018-05"
REALCRAWL = CORPUS / "realcrawl"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    home = tmp_path_factory.mktemp("lookup")
    truth = generate(home / "bucket", spec_for(600))
    return harvest_world(home / "bucket", home, truth, (NEW, OLD))


@pytest.fixture(scope="module")
def transport(world: World) -> Iterator[Transport]:
    with Transport(str(world.root)) as opened:
        yield opened


def test_the_2012_crawl_by_its_own_index(world: World, transport: Transport) -> None:
    captures = world.truth.captures_of(CRAWL_2012)
    rng = random.Random(2012)
    targets = [parse_target(domain) for domain in world.truth.domains(CRAWL_2012)]
    for target in targets + [some_target(rng, rng.choice(captures)) for _ in range(30)]:
        expected = {
            (surt_key(c.url), c.warc_filename, c.warc_record_offset, c.warc_record_length)
            for c in captures
            if target.matches(c.url)
        }
        found = BTreeLocator(transport).locate(CRAWL_2012, ["warc"], [target])
        assert places(found) == expected, target.definition
        assert found.notes == ()


@needs_corpus
@pytest.mark.parametrize("crawl", [NEW, OLD])
def test_real_captures_in_every_column(crawl: str) -> None:
    with gzip.open(REALCRAWL / "expected.json.gz") as lines:
        rows = json.load(lines)[crawl]
    bucket = REALCRAWL / "bucket"
    names = [name for name in rows[0] if name != "sha1_body"]
    expected = {tuple(row[name] for name in names) for row in rows}
    hosts = {row["url_host_registered_domain"] or row["url_host_name"] for row in rows}
    targets = [parse_target(host) for host in sorted(hosts)]
    paths = parse_path_list((bucket / path_list_key(crawl, "cc-index-table")).read_bytes())
    with Transport(str(bucket)) as transport:
        for locator in (ParquetLocator(transport, FileFinder(transport, paths)), ZipNumLocator(transport, crawl)):
            answer = locator.locate(crawl, ALL_SUBSETS, targets)
            found = set()
            for table in answer.captures.values():
                for row in table.to_pylist():
                    row["fetch_time"] = row["fetch_time"].isoformat()
                    found.add(tuple(row[name] for name in names))
            assert found == expected, locator.name


@needs_corpus
def test_real_captures_of_2012() -> None:
    with gzip.open(REALCRAWL / "expected.json.gz") as lines:
        rows = json.load(lines)[CRAWL_2012]
    with Transport(str(REALCRAWL / "bucket")) as transport:
        locator = BTreeLocator(transport)
        targets = [parse_target(f"host:{host}") for host in sorted({row[2].split("/")[2] for row in rows})]
        answer = locator.locate(CRAWL_2012, ["warc"], targets)
    found = [
        (row["url"], row["warc_record_offset"], row["warc_record_length"], row["warc_segment"], row["archive_format"])
        for table in answer.captures.values()
        for row in table.to_pylist()
    ]
    assert sorted(found) == sorted((row[2], row[1][3], row[1][4], str(row[1][0]), "arc") for row in rows)
