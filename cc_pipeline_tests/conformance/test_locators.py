"""The indexes that any crawl may have do what every index does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cc_pipeline.index.locator import Locator
from cc_pipeline.index.parquet.finder import CatalogFinder
from cc_pipeline.index.parquet.locator import ParquetLocator
from cc_pipeline.index.zipnum.locator import ZipNumLocator
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.conformance.locator_tests import CRAWL, IndexedBucket, LocatorTests
from cc_pipeline_tests.index.lookup_world import harvest_world


@contextmanager
def harvested(bucket: IndexedBucket) -> Iterator[tuple[Transport, CatalogFinder]]:
    world = harvest_world(bucket.root, bucket.home, None, (CRAWL,))
    with Transport(str(bucket.root)) as transport, world.catalog() as catalog:
        yield transport, CatalogFinder(catalog, transport, world.footers)


class TestParquet(LocatorTests):
    @contextmanager
    def open_locator(self, bucket: IndexedBucket) -> Iterator[Locator]:
        with harvested(bucket) as (transport, finder):
            yield ParquetLocator(transport, finder)


class TestZipNum(LocatorTests):
    @contextmanager
    def open_locator(self, bucket: IndexedBucket) -> Iterator[Locator]:
        with Transport(str(bucket.root)) as transport:
            yield ZipNumLocator(transport, CRAWL)
