"""A generated bucket with its catalog, for tests that look things up in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cc_pipeline.commoncrawl.paths import parse_path_list, path_list_key
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.index.catalog.catalog import Catalog
from cc_pipeline.index.catalog.from_footers import crawl_tables
from cc_pipeline.index.footers.harvest import harvest_crawl
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline.index.locator import LookupResult
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.index.catalog_files import write_catalog_rows

#: (SURT key, file, offset, length): what two answers are compared by.
Place = tuple[str, str, int, int]
ALL_SUBSETS = ("warc", "crawldiagnostics", "robotstxt")


@dataclass(frozen=True)
class World:
    """A bucket, what is in it, and the files a harvest leaves."""

    root: Path
    home: Path
    truth: MiniCrawlTruth
    catalog_files: dict[str, list[str]]

    @property
    def footers(self) -> FooterStore:
        return FooterStore(self.home / "footers")

    def catalog(self) -> Catalog:
        return Catalog(self.catalog_files)


def harvest_world(
    root: Path, home: Path, truth: MiniCrawlTruth | None, crawls: Sequence[str], address: str = ""
) -> World:
    """Harvests the columnar indexes of ``crawls`` below ``root`` into ``home``, from a server at ``address`` if one is
    given: its files have other ETags than the folder's."""
    world = World(root, home, truth, {})
    with Transport(address or str(root)) as transport:
        for crawl in crawls:
            paths = parse_path_list((root / path_list_key(crawl, "cc-index-table")).read_bytes())
            harvest_crawl(crawl, paths, transport, world.footers)
            rows = crawl_tables(crawl, paths, world.footers).packed()
            world.catalog_files.update(write_catalog_rows(home / "catalog", rows))
    return world


def places(result: LookupResult) -> set[Place]:
    """The captures of an answer."""
    found: set[Place] = set()
    for table in result.captures.values():
        for row in table.to_pylist():
            place = (row["warc_filename"], row["warc_record_offset"], row["warc_record_length"])
            found.add((surt_key(row["url"]), *place))
    return found
