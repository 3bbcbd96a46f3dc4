"""Columns that a lookup cannot give are named in its notes; the others are read as if they were not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.index.catalog.catalog import Catalog
from cc_pipeline.index.catalog.from_footers import crawl_tables
from cc_pipeline.index.footers.harvest import harvest_crawl
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline.index.locator import LookupResult
from cc_pipeline.index.parquet.finder import CatalogFinder
from cc_pipeline.index.parquet.locator import ParquetLocator
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.index.catalog_files import write_catalog_rows
from cc_pipeline_tests.index.parquet.file_finder import FileFinder

CRAWL = "CC-MAIN-2024-22"
ODD: dict[str, list[Any]] = {
    "a.dotted": [1, 2],
    "tags": [["x"], ["y", "z"]],
    "headers": [{"server": "s", "size": 1}, {"server": "t", "size": 2}],
}


def written(root: Path, **odd: list[Any]) -> str:
    path = f"cc-index/table/cc-main/warc/crawl={CRAWL}/subset=warc/part-00000-x.c000.gz.parquet"
    (root / path).parent.mkdir(parents=True)
    urls = [f"https://example.com/{number}" for number in range(2)]
    keys = [f"com,example)/{number}" for number in range(2)]
    pq.write_table(pa.table({"url_surtkey": keys, "url": urls, "plain_extra": ["p", "q"], **odd}), root / path)
    return path


def looked_up(root: Path, path: str, columns: tuple[str, ...] | None, *, catalog: bool) -> LookupResult:
    with Transport(str(root)) as transport:
        if not catalog:
            locator = ParquetLocator(transport, FileFinder(transport, [path]), columns=columns)
            return locator.locate(CRAWL, ["warc"], [parse_target("example.com")])
        store = FooterStore(root / "footers")
        harvest_crawl(CRAWL, [path], transport, store)
        rows = crawl_tables(CRAWL, [path], store).packed()
        with Catalog(write_catalog_rows(root / "catalog", rows)) as opened:
            locator = ParquetLocator(transport, CatalogFinder(opened, transport, store), columns=columns)
            return locator.locate(CRAWL, ["warc"], [parse_target("example.com")])


@pytest.mark.parametrize("catalog", [False, True])
def test_nested_and_dotted_columns_are_named(tmp_path: Path, catalog: bool) -> None:
    path = written(tmp_path, **ODD)
    found = looked_up(tmp_path, path, None, catalog=catalog)
    (table,) = found.captures.values()
    assert table["extra_columns"].to_pylist() == [[("plain_extra", "p")], [("plain_extra", "q")]]
    (note,) = found.notes
    assert note.startswith("4 columns of 1 index file are")
    for name in ("a.dotted", "tags.", "headers.server", "headers.size"):
        assert name in note
    found = looked_up(tmp_path, path, ("a.dotted", "url"), catalog=catalog)
    assert (found.captures["example.com"].num_rows, "a.dotted" in found.notes[0]) == (2, True)
