"""A mini crawl for the tests of every room above the index."""

from __future__ import annotations

from pathlib import Path

import pytest

from cc_pipeline.minicrawl.generate import ensure
from cc_pipeline.minicrawl.spec import TEST
from cc_pipeline.minicrawl.truth import MiniCrawlTruth


@pytest.fixture(scope="session")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MiniCrawlTruth]:
    """The bucket's root and the truth about it."""
    root = tmp_path_factory.mktemp("minicrawl") / "bucket"
    return root, ensure(root, TEST)
