"""Reads the list of crawls: from its address, from today's copy, or, when the address fails, from the last good copy.

This is the one answer to "which crawls are there, and how old is that", for commands, sensors, ``doctor`` and checks.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cc_pipeline.addresses import host_of
from cc_pipeline.commoncrawl.crawls import Crawl, parse_collinfo
from cc_pipeline.errors import DataFault, EnvironmentFault, disk_trouble
from cc_pipeline.settings import DEFAULT_COLLINFO, Settings
from cc_pipeline.transport.faults import RangeFault

_A_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class CrawlList:
    """``crawls`` are newest first, as they were listed at ``read_at``. When they come from the last good copy,
    ``fault`` is the error that today's list met, and ``note`` a sentence that says so."""

    crawls: tuple[Crawl, ...]
    read_at: datetime
    fault: EnvironmentFault | None = None
    note: str | None = None


def read_crawl_list(settings: Settings, download: Callable[[], bytes]) -> CrawlList:
    """The list of crawls. ``download`` requests it; it is not called when Common Crawl's own list was read in the last
    day.

    Raises ``EnvironmentFault`` when the list cannot be read and there is no copy of it.
    """
    path = settings.cache_path / "collinfo.json"
    copy = _last_good(path)
    if copy is not None and _is_fresh(settings, copy):
        return copy
    try:
        return CrawlList(_read_anew(settings, download, path), datetime.now(UTC))
    except EnvironmentFault as fault:
        if copy is None:
            raise
        age = (datetime.now(UTC) - copy.read_at) / _A_DAY
        note = f"{fault.what}; the copy from {age:.0f} days ago is used instead"
        return CrawlList(copy.crawls, copy.read_at, fault, note)


def _last_good(copy: Path) -> CrawlList | None:
    try:
        crawls = parse_collinfo(copy.read_bytes(), str(copy))
        return CrawlList(crawls, datetime.fromtimestamp(copy.stat().st_mtime, UTC))
    except (OSError, DataFault):
        return None


def _read_anew(settings: Settings, download: Callable[[], bytes], copy: Path) -> tuple[Crawl, ...]:
    try:
        data = download()
        crawls = parse_collinfo(data, settings.collinfo)
    except RangeFault as fault:
        raise EnvironmentFault(
            f"the list of crawls at {settings.collinfo} could not be read ({fault})",
            "Check CC_PIPELINE_SOURCE and CC_PIPELINE_COLLINFO, and the network.",
        ) from fault
    except DataFault as fault:
        raise EnvironmentFault(
            f"the list of crawls at {fault}", "Check that CC_PIPELINE_COLLINFO names a collinfo.json, or try later."
        ) from fault
    with disk_trouble(copy):
        copy.parent.mkdir(parents=True, exist_ok=True)
        temporary = copy.with_name(f"{copy.name}.{os.getpid()}")
        temporary.write_bytes(data)
        temporary.replace(copy)
    return crawls


def _is_fresh(settings: Settings, copy: CrawlList) -> bool:
    # only requests to the public list are saved; a local or private list may change at any moment
    public = host_of(settings.collinfo) == host_of(DEFAULT_COLLINFO)
    return public and datetime.now(UTC) - copy.read_at < _A_DAY
