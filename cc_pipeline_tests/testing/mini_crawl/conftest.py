"""The smallest preset, generated once for all tests of this room."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from cc_pipeline.testing.mini_crawl import TEST, MiniCrawlSpec, MiniCrawlTruth, generate

NEW, OLD, ARC = "CC-MAIN-2024-22", "CC-MAIN-2018-05", "CC-MAIN-2012"


@dataclass(frozen=True, slots=True)
class Bucket:
    root: Path
    spec: MiniCrawlSpec
    truth: MiniCrawlTruth

    def index_files(self, crawl: str, subset: str = "*") -> list[Path]:
        pattern = f"cc-index/table/cc-main/warc/crawl={crawl}/subset={subset}/*.parquet"
        return sorted(self.root.glob(pattern))

    def index_rows(self, crawl: str) -> Iterator[dict[str, Any]]:
        for path in self.index_files(crawl):
            subset = path.parent.name.removeprefix("subset=")
            for row in pq.ParquetFile(path).read().to_pylist():
                yield row | {"subset": subset}


@pytest.fixture(scope="package")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Bucket:
    root = tmp_path_factory.mktemp("minicrawl") / "bucket"
    return Bucket(root, TEST, generate(root, TEST))
