"""The list of crawls: collinfo, read politely and kept for a day."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa

from cc_pipeline.commoncrawl.crawls import Crawl, parse_collinfo, validate_crawl_id
from cc_pipeline.errors import DataFault, EnvironmentFault, UserInputError
from cc_pipeline.lake.digests import input_digest
from cc_pipeline.records.storage import disk_trouble
from cc_pipeline.settings import Settings
from cc_pipeline.stages.slice import StageReport
from cc_pipeline.stages.workspace import Workspace
from cc_pipeline.transport.faults import RangeFault
from cc_pipeline.transport.ranges import RetryPolicy

_DAY_SECONDS = 86_400
#: A list that does not come is told to the person who waits for it; a sensor asks again anyway.
_RETRY = RetryPolicy(attempts=4)


def list_crawls(workspace: Workspace) -> tuple[Crawl, ...]:
    """The crawls of the source, newest first; from the cache when Common Crawl's own list is under a day old.

    Raises ``EnvironmentFault`` when the list cannot be had or read.
    """
    settings = workspace.settings
    cached = _copy_path(settings)
    if _fresh(settings, cached):
        return parse_collinfo(cached.read_bytes(), str(cached))
    try:
        data = _download(workspace)
        crawls = parse_collinfo(data, settings.collinfo)
    except RangeFault as fault:
        raise EnvironmentFault(
            f"the list of crawls at {settings.collinfo} cannot be had ({fault})",
            "Check CC_PIPELINE_SOURCE and CC_PIPELINE_COLLINFO, and the network.",
        ) from fault
    except DataFault as fault:
        raise EnvironmentFault(
            f"the list of crawls at {fault}", "Check that CC_PIPELINE_COLLINFO names a collinfo.json, or try later."
        ) from fault
    with disk_trouble(cached):
        cached.parent.mkdir(parents=True, exist_ok=True)
        temporary = cached.with_name(f"{cached.name}.{os.getpid()}")
        temporary.write_bytes(data)
        temporary.replace(cached)
    return crawls


def known_crawls(workspace: Workspace) -> tuple[tuple[Crawl, ...], str | None]:
    """As :func:`list_crawls`, but the last copy when the list cannot be had, with a sentence that says so.

    The index server that publishes the list is down more often than the bucket with the data.
    """
    try:
        return list_crawls(workspace), None
    except EnvironmentFault as fault:
        copy = _copy_path(workspace.settings)
        try:
            crawls = parse_collinfo(copy.read_bytes(), str(copy))
            age = (time.time() - copy.stat().st_mtime) / _DAY_SECONDS
        except (OSError, DataFault):
            raise fault from None
        return crawls, f"{fault.what}; the copy of {age:.0f} days ago is used"


def find_crawl(workspace: Workspace, crawl_id: str) -> Crawl:
    """The crawl named ``crawl_id``. Raises ``UserInputError`` naming the newest ones when there is none."""
    wanted = validate_crawl_id(crawl_id)
    crawls, _ = known_crawls(workspace)
    for crawl in crawls:
        if crawl.id == wanted:
            return crawl
    newest = ", ".join(crawl.id for crawl in crawls[:5]) or "none"
    raise UserInputError(
        f"{crawl_id!r} is not a crawl of {workspace.settings.source}; the newest are {newest}. "
        "All of them: cc-pipeline crawls"
    )


def commit_crawls(workspace: Workspace) -> StageReport:
    """Writes the ``crawls`` table: one row per crawl."""
    started = time.monotonic()
    crawls, note = known_crawls(workspace)
    rows = [
        {"crawl": c.id, "name": c.name, "era": c.era, "started": c.started, "ended": c.ended, "cdx_api": c.cdx_api}
        for c in crawls
    ]
    table = pa.Table.from_pylist(rows, schema=workspace.lake.specs["crawls"].schema)
    digest = input_digest({"crawls": [c.id for c in crawls], "rows": [str(row) for row in rows]})
    written = 0
    if workspace.lake.digest("crawls", "crawls") != digest:
        written = workspace.lake.commit("crawls", table, [], {"crawls": digest})
    notes = (note,) if note else ()
    return StageReport("crawls", rows=len(rows), written=written, seconds=time.monotonic() - started, notes=notes)


def _copy_path(settings: Settings) -> Path:
    return settings.cache_path / "collinfo.json"


def _fresh(settings: Settings, cached: Path) -> bool:
    # only the public list is worth sparing; a local or private source may change under our hands
    if not settings.collinfo.startswith("https://index.commoncrawl.org/"):
        return False
    try:
        return time.time() - cached.stat().st_mtime < _DAY_SECONDS
    except OSError:
        return False


def _download(workspace: Workspace) -> bytes:
    root, _, name = workspace.settings.collinfo.rpartition("/")
    with workspace.transport(root, _RETRY) as transport:
        return transport.read_all(name).data
