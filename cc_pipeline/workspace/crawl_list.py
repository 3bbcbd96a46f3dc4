"""Reads the list of crawls: from its address or today's copy; if the address fails, from the last good copy; without a
copy, from the list of this release.

Commands, sensors, ``doctor`` and checks all use this list and its age.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

from cc_pipeline.addresses import host_of, scheme_of
from cc_pipeline.advice import option
from cc_pipeline.atomic import write_whole
from cc_pipeline.commoncrawl.crawls import LIST_COMPARED_ON, Crawl, known_at_release, parse_collinfo
from cc_pipeline.errors import DataFault, EnvironmentFault, disk_trouble
from cc_pipeline.progress import format_count
from cc_pipeline.settings import DEFAULT_COLLINFO, Settings
from cc_pipeline.transport.faults import RangeFault, advice

_A_DAY: Final = timedelta(days=1)
#: After a failure the list is not requested again for this time: a dead index server delays one command, not all.
_RETRY_AFTER: Final = timedelta(minutes=10)

#: The origin of a list: its address or today's copy of it, an older copy, the list of this release, none.
Origin = Literal["list", "copy", "release", "none"]


@dataclass(frozen=True, slots=True)
class CrawlList:
    """The list of crawls, newest first, as it was at ``read_at`` (aware UTC), and its ``origin``. For all but today's
    list, ``fault`` is the error of reading it, and ``note`` a sentence with the error and the age of the list. With
    origin ``none`` the crawls are not known."""

    crawls: tuple[Crawl, ...]
    read_at: datetime
    origin: Origin = "list"
    fault: EnvironmentFault | None = None
    note: str | None = None

    @property
    def age(self) -> str:
        """The time since it was read, in words."""
        return ago(self.read_at)


def ago(moment: datetime) -> str:
    """Returns the time since ``moment`` (aware) in words: ``5 minutes ago``, ``26 days ago``."""
    seconds = max(0.0, (datetime.now(UTC) - moment).total_seconds())
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{format_count(count, unit)} ago"
    return "less than a minute ago"


def read_crawl_list(settings: Settings, download: Callable[[], bytes]) -> CrawlList:
    """Reads the list of crawls. ``download`` requests it; it is not called if Common Crawl's own list was read in the
    last day, or if a list on a host of its own failed a few minutes ago.

    It never raises if the list cannot be read: the result has another origin then.
    """
    path = settings.cache_path / "collinfo.json"
    copy = _last_good(path)
    # only the public list is cached; a local or private list may change at any moment
    is_public = host_of(settings.collinfo) == host_of(DEFAULT_COLLINFO)
    if copy is not None and is_public and timedelta(0) <= datetime.now(UTC) - copy.read_at < _A_DAY:
        return copy
    failed = _failed_lately(settings)
    if failed is None:
        try:
            return CrawlList(_download_list(settings, download, path), datetime.now(UTC))
        except EnvironmentFault as fault:
            failed = fault
            _remember(settings, fault)
    if copy is not None:
        note = f"{failed.problem}; the copy from {copy.age} is used instead, which may lack newer crawls"
        return CrawlList(copy.crawls, copy.read_at, "copy", failed, note)
    if settings.is_public:
        release_crawls = known_at_release()
        note = (
            f"{failed.problem}, and this home has no copy of the list. The list of this release "
            f"({LIST_COMPARED_ON:%Y-%m-%d}, {ago(LIST_COMPARED_ON)}) is used instead. To use a crawl that is newer "
            f"than {release_crawls[0].id}, name it: {option(crawl='CC-MAIN-YYYY-WW')}"
        )
        return CrawlList(release_crawls, LIST_COMPARED_ON, "release", failed, note)
    return CrawlList((), datetime.now(UTC), "none", failed, f"{failed.problem}, and this home has no copy of the list")


def _last_good(copy: Path) -> CrawlList | None:
    try:
        crawls = parse_collinfo(copy.read_bytes(), str(copy))
        read_at = datetime.fromtimestamp(copy.stat().st_mtime, UTC)
    except (OSError, DataFault):
        return None
    return CrawlList(crawls, read_at) if crawls else None


def _download_list(settings: Settings, download: Callable[[], bytes], copy: Path) -> tuple[Crawl, ...]:
    try:
        data = download()
        crawls = parse_collinfo(data, settings.collinfo)
    except RangeFault as fault:
        remedy = advice(fault.kind, "Check CC_PIPELINE_SOURCE")
        problem = fault.problem if isinstance(fault, EnvironmentFault) else str(fault)
        raise EnvironmentFault(
            f"the list of crawls at {settings.collinfo} could not be read ({problem})",
            f"{remedy}. The list's address is CC_PIPELINE_COLLINFO. A crawl that you name "
            f"({option(crawl='CC-MAIN-2024-22')}) needs no list.",
        ) from fault
    except DataFault as fault:
        raise _list_fault(f"the list of crawls at {fault}") from fault
    if not crawls:
        # a failing index server has answered so; a copy of this would hide all crawls
        raise _list_fault(f"the list of crawls at {settings.collinfo} is empty")
    with disk_trouble(copy):
        write_whole(copy, data)
    _failure_path(settings).unlink(missing_ok=True)
    return crawls


def _list_fault(problem: str) -> EnvironmentFault:
    return EnvironmentFault(problem, "Check that CC_PIPELINE_COLLINFO names a collinfo.json, or try later.")


def _failure_path(settings: Settings) -> Path:
    return settings.cache_path / "collinfo.failed.json"


def _failed_lately(settings: Settings) -> EnvironmentFault | None:
    """Returns the error of this list a few minutes ago, so that not every command waits for it again."""
    path = _failure_path(settings)
    try:
        failed_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        failed = json.loads(path.read_bytes())
        list_address, problem, advice = (str(failed[name]) for name in ("list", "what", "advice"))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    lately = timedelta(0) <= datetime.now(UTC) - failed_at < _RETRY_AFTER
    if not lately or list_address != settings.collinfo:
        return None
    return EnvironmentFault(
        f"{problem} (tried {ago(failed_at)}; the next try is after {failed_at + _RETRY_AFTER:%H:%M} UTC)", advice
    )


def _remember(settings: Settings, fault: EnvironmentFault) -> None:
    is_remote = scheme_of(settings.collinfo) in ("http", "https")
    if not is_remote or settings.collinfo.rpartition("/")[0] == settings.source:
        return  # only a host of its own may be dead while the source answers
    document = {"list": settings.collinfo, "what": fault.problem, "advice": str(fault.advice)}
    try:
        write_whole(_failure_path(settings), json.dumps(document).encode())
    except OSError:
        return  # without the note, the next command only waits longer
