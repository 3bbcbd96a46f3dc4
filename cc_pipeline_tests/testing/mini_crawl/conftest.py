"""The smallest preset, generated once for all tests of this room."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from cc_pipeline.testing.mini_crawl import TEST, MiniCrawlSpec, MiniCrawlTruth, generate

NEW, OLD, ARC = "CC-MAIN-2024-22", "CC-MAIN-2018-05", "CC-MAIN-2012"


@dataclass(frozen=True, slots=True)
class Bucket:
    root: Path
    spec: MiniCrawlSpec
    truth: MiniCrawlTruth


@pytest.fixture(scope="package")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Bucket:
    root = tmp_path_factory.mktemp("minicrawl") / "bucket"
    return Bucket(root, TEST, generate(root, TEST))
