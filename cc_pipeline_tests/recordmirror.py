"""Common Crawl's front and its official mirror on this machine: two servers of one bucket with a crawl of 2026."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cc_pipeline.settings import all_settings, source_addresses
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import TEST
from cc_pipeline.testing.mini_crawl.truth import MiniCrawlTruth
from cc_pipeline_tests.faultserver import FaultServer

#: A crawl that the mirror has.
FRESH = "CC-MAIN-2026-30"


def ensure_recent(root: Path) -> MiniCrawlTruth:
    """A bucket whose newest crawl is ``FRESH``, in enough files to be shared."""
    newest = replace(TEST.crawls[0], id=FRESH, segments=3, files_per_segment=4)
    return ensure(root, replace(TEST, crawls=(newest, *TEST.crawls[1:])))


@contextmanager
def front_and_mirror(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FaultServer, FaultServer]]:
    """The front, which passes for Common Crawl's own host, and the mirror; both serve the bucket ``root``."""
    with FaultServer(root) as front, FaultServer(root) as mirror:
        monkeypatch.setattr(source_addresses, "_PUBLIC_HOST", "127.0.0.1")
        monkeypatch.setattr(all_settings, "OFFICIAL_MIRROR", mirror.url.rstrip("/"))
        monkeypatch.setenv("CC_PIPELINE_COLLINFO", f"{front.url}collinfo.json")
        yield front, mirror
