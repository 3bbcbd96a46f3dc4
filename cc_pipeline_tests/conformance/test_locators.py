"""Every URL whose key a report tells of is found by every locator, and nothing else with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.index.btree.build import build_from_columnar
from cc_pipeline.index.btree.files import open_url_index
from cc_pipeline.index.locator import Locator
from cc_pipeline.index.parquet.finder import CatalogFinder
from cc_pipeline.index.parquet.locator import ParquetLocator
from cc_pipeline.index.zipnum.locator import ZipNumLocator
from cc_pipeline.testing.mini_crawl.generate import generate
from cc_pipeline.testing.mini_crawl.indexes import write_columnar, write_zipnum
from cc_pipeline.testing.mini_crawl.spec import TEST
from cc_pipeline.testing.url_keys import KEYS
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.index.lookup_world import ALL_SUBSETS, World, harvest_world

_CRAWL = "CC-MAIN-2024-22"
_SPEC = replace(TEST, crawls=(replace(TEST.crawl(_CRAWL), parts=1, zipnum_shards=1),))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A bucket whose indexes list the URLs of ``KEYS``, by the keys that the reports tell."""
    home = tmp_path_factory.mktemp("conformance")
    truth = generate(home / "bucket", _SPEC)
    pattern = truth.of(_CRAWL, subset="warc")[0]
    captures = [
        replace(pattern, url=each.url, url_surtkey=each.key, warc_record_offset=at) for at, each in enumerate(KEYS)
    ]
    [crawl] = _SPEC.crawls
    for file in [*(home / "bucket").rglob("*.parquet"), *(home / "bucket").rglob("cdx-*.gz")]:
        file.unlink()
    write_columnar(home / "bucket", _SPEC, crawl, captures)
    write_zipnum(home / "bucket", _SPEC, crawl, captures)
    return harvest_world(home / "bucket", home, truth, (_CRAWL,))


def _btree(world: World, transport: Transport, finder: CatalogFinder) -> Locator:
    build_from_columnar(_CRAWL, ALL_SUBSETS, transport, finder, world.home, block_size=256)
    tree = open_url_index(world.home, _CRAWL)
    assert tree is not None
    return tree


LOCATORS: dict[str, Callable[[World, Transport, CatalogFinder], Locator]] = {
    "parquet": lambda _, transport, finder: ParquetLocator(transport, finder),
    "zipnum": lambda _, transport, __: ZipNumLocator(transport, _CRAWL),
    "btree": _btree,
}


@pytest.fixture(params=LOCATORS)
def locator(request: pytest.FixtureRequest, world: World) -> Iterator[Locator]:
    with Transport(str(world.root)) as transport, world.catalog() as catalog:
        yield LOCATORS[request.param](world, transport, CatalogFinder(catalog, transport, world.footers))


def test_each_url_is_found_by_its_key(locator: Locator) -> None:
    targets = [parse_target(f"url:{each.url}") for each in KEYS]
    answer = locator.locate(_CRAWL, ["warc"], targets)
    for each, target in zip(KEYS, targets, strict=True):
        found = {row["warc_record_offset"] for row in answer.captures[target.slug].to_pylist()}
        assert found == {at for at, other in enumerate(KEYS) if other.key == each.key}, each
