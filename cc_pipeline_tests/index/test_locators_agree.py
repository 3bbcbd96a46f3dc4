"""Parquet and ZipNum against each other in every column, the B-tree of 2012 against a look at every row there is."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cc_pipeline.commoncrawl.paths import parse_path_list, path_list_key
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.index.btree.locator import CRAWL_2012, BTreeLocator
from cc_pipeline.index.parquet.finder import CatalogFinder
from cc_pipeline.index.parquet.locator import ParquetLocator
from cc_pipeline.index.zipnum.locator import ZipNumLocator
from cc_pipeline.testing.mini_crawl.generate import generate
from cc_pipeline.testing.mini_crawl.spec import TEST, spec_for
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


def test_many_targets_at_once_share_what_is_read(world: World, transport: Transport) -> None:
    targets = [parse_target(domain) for domain in world.truth.domains(NEW)]
    with world.catalog() as catalog:
        finder = CatalogFinder(catalog, transport, world.footers)
        together = ParquetLocator(transport, finder).locate(NEW, ALL_SUBSETS, targets)
        alone = [ParquetLocator(transport, finder).locate(NEW, ALL_SUBSETS, [target]) for target in targets]
    for target, single in zip(targets, alone, strict=True):
        assert single.captures[target.slug].equals(together.captures[target.slug])
    assert together.requests < sum(single.requests for single in alone) / 5
    assert sum(table.num_rows for table in together.captures.values()) == len(world.truth.captures_of(NEW))
    zipnum = ZipNumLocator(transport, NEW).locate(NEW, ALL_SUBSETS, targets)
    assert places(zipnum) == places(together)


@pytest.mark.parametrize("crawl", [NEW, OLD])
def test_rows_are_the_same_in_every_column(crawl: str, world: World, transport: Transport) -> None:
    targets = [parse_target(domain) for domain in world.truth.domains(crawl)]
    with world.catalog() as catalog:
        finder = CatalogFinder(catalog, transport, world.footers)
        answers = [
            ParquetLocator(transport, finder).locate(crawl, ALL_SUBSETS, targets),
            ZipNumLocator(transport, crawl).locate(crawl, ALL_SUBSETS, targets),
        ]
    tables = []
    for answer in answers:
        rows = [row for table in answer.captures.values() for row in table.to_pylist()]
        for row in rows:
            for name in ("located_by", "index_file", "index_position", "extra_columns"):
                del row[name]
        tables.append(sorted(rows, key=lambda row: (row["warc_filename"], row["warc_record_offset"])))
    if crawl == OLD:  # columns that the columnar index of 2018 did not have yet, and CDXJ already had
        for row in tables[0] + tables[1]:
            for name in ("url_host_name_reversed", "content_charset", "content_languages", "fetch_redirect"):
                del row[name]
            del row["content_truncated"]
    differing = {
        (name, one[name], two[name]) for one, two in zip(*tables, strict=True) for name in one if one[name] != two[name]
    }
    assert not differing


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


def test_unknown_columns_are_kept_as_text(tmp_path: Path) -> None:
    crawl = replace(TEST.crawl(NEW), extra_columns=("content_mood", "fetch_colour"), record_ids=True)
    truth = generate(tmp_path / "bucket", replace(TEST, crawls=(crawl,)))
    world = harvest_world(tmp_path / "bucket", tmp_path, truth, (NEW,))
    targets = [parse_target(domain) for domain in truth.domains()]
    with Transport(str(world.root)) as transport, world.catalog() as catalog:
        finder = CatalogFinder(catalog, transport)
        parquet = ParquetLocator(transport, finder).locate(NEW, ALL_SUBSETS, targets)
        zipnum = ZipNumLocator(transport, NEW).locate(NEW, ALL_SUBSETS, targets)
    kept = []
    for answer in (parquet, zipnum):
        rows = [row for table in answer.captures.values() for row in table.to_pylist()]
        extras = {(row["url"], row["fetch_time"]): dict(row["extra_columns"] or ()) for row in rows}
        kept.append({where: {k.replace("-", "_"): v for k, v in extra.items()} for where, extra in extras.items()})
    names = {name for extra in kept[0].values() for name in extra}
    assert names == {"content_mood", "fetch_colour"}
    assert kept[0] == {
        where: {name: value for name, value in extra.items() if name in names} for where, extra in kept[1].items()
    }
    ids = [row["warc_record_id"] for table in parquet.captures.values() for row in table.to_pylist()]
    assert all(isinstance(value, bytes) and len(value) == 16 for value in ids)


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
