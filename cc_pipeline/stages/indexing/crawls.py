"""The list of crawls: finds a crawl by its id, and commits the list as a table."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import Any

import pyarrow as pa

from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS, Crawl, age, unlisted_crawl, validate_crawl_id
from cc_pipeline.commoncrawl.known_crawls import crawl_of
from cc_pipeline.errors import UserInputError
from cc_pipeline.extraction.slice import HARVEST, Slice, StageReport
from cc_pipeline.lake.digests import input_digest
from cc_pipeline.settings import is_home_of
from cc_pipeline.stages.indexing.collinfo import CrawlList, ago
from cc_pipeline.stages.indexing.probing import found_by_name, probe, unknown
from cc_pipeline.stages.workspace import Workspace


def known_crawls(workspace: Workspace) -> CrawlList:
    """Which crawls there are, newest first, and of when that is; Common Crawl's own list is read once a day.

    When the list cannot be read, the last good copy, else what was known at release, and a sentence that says so: the
    index server that publishes the list is down more often than the bucket with the data. Raises ``EnvironmentFault``
    when there is nothing of these.
    """
    listed = workspace.crawl_list
    if listed.origin == "none" and listed.fault is not None:
        raise listed.fault
    return listed


def find_crawl(workspace: Workspace, crawl_id: str) -> Crawl:
    """The crawl named ``crawl_id``: as it is listed, as this home has harvested it, or as the source has it, which is
    asked for its path list at most once a day. Months of CC-NEWS and collections of named files are in no list, and
    asked for none: whether they are there is told by ``harvest.is_published``.

    Raises ``UserInputError`` naming the newest ones when the source has no such crawl, ``EnvironmentFault`` when it
    does not say.
    """
    wanted = validate_crawl_id(crawl_id)
    unlisted = unlisted_crawl(wanted)
    if unlisted is not None:
        return unlisted
    listed = workspace.crawl_list
    for crawl in listed.crawls:
        if crawl.id == wanted:
            return crawl
    if _is_here(workspace, wanted):
        return crawl_of(wanted)
    found = probe(workspace, wanted)
    if found.state == "there":
        return crawl_of(wanted)
    if found.state == "unknown" and not (wanted in ARC_CRAWLS and listed.origin in ("list", "copy")):
        raise unknown(workspace, found)
    settings = workspace.settings
    if listed.fault is not None and not listed.crawls and settings.collinfo.rpartition("/")[0] == settings.source:
        # neither its list nor the crawl: more likely that this is no bucket than that the id is wrong
        raise listed.fault
    asked = f" (it was asked {ago(found.at)})" if found.remembered else ""
    newest = ", ".join(crawl.id for crawl in listed.crawls[:5]) or "none"
    raise UserInputError(
        f"{crawl_id!r} is not a crawl of {workspace.settings.source}{asked}; the newest are {newest}. "
        "All of them: cc-pipeline crawls"
    )


def _is_here(workspace: Workspace, crawl: str) -> bool:
    """Whether the home has harvested a crawl. A home that belongs to no source yet is left alone."""
    settings = workspace.settings
    return is_home_of(settings) and HARVEST.is_made(workspace.lake, Slice(crawl))


def commit_crawls(workspace: Workspace) -> StageReport:
    """Writes the ``crawls`` table: one row per crawl that is listed, or that was found by its name.

    Raises ``EnvironmentFault`` when nothing is known of the source's crawls.
    """
    started = time.monotonic()
    listed = workspace.crawl_list
    rows, digest = _rows(_to_commit(workspace, listed))
    if not rows:
        known_crawls(workspace)
    written = 0
    if workspace.lake.digest("crawls", "crawls") != digest:
        table = pa.Table.from_pylist(rows, schema=workspace.lake.specs["crawls"].schema)
        written = workspace.lake.commit("crawls", table, [], {"crawls": digest})
    notes = (listed.note,) if listed.note else ()
    return StageReport("crawls", rows=len(rows), written=written, seconds=time.monotonic() - started, notes=notes)


def crawls_are_listed(workspace: Workspace) -> bool:
    """Whether the ``crawls`` table has the list as it can be read now: writing it again would change nothing."""
    rows, digest = _rows(_to_commit(workspace, workspace.crawl_list))
    return bool(rows) and workspace.lake.digest("crawls", "crawls") == digest


def _to_commit(workspace: Workspace, listed: CrawlList) -> list[Crawl]:
    """The crawls of the list, and those beside it that were found by their names. What the table has is of a later
    list than what was known at release."""
    crawls = {crawl.id: crawl for crawl in listed.crawls}
    if listed.origin in ("release", "none") and workspace.lake.digest("crawls", "crawls") is not None:
        crawls = {crawl.id: crawl for crawl in _committed(workspace)}
    named = [crawl_of(crawl) for crawl in found_by_name(workspace.settings) if crawl not in crawls]
    return sorted((*crawls.values(), *named), key=age, reverse=True)


def _committed(workspace: Workspace) -> Iterator[Crawl]:
    for row in workspace.lake.read("crawls").to_pylist():
        # as collinfo.json gives them: equal rows have equal digests
        started, ended = (moment and moment.astimezone(UTC) for moment in (row["started"], row["ended"]))
        yield Crawl(row["crawl"], row["name"], started, ended, row["cdx_api"])


def _rows(crawls: Sequence[Crawl]) -> tuple[list[dict[str, Any]], str]:
    """The rows of the table, and their digest."""
    rows = [
        {"crawl": c.id, "name": c.name, "era": c.era, "started": c.started, "ended": c.ended, "cdx_api": c.cdx_api}
        for c in crawls
    ]
    return rows, input_digest({"crawls": [c.id for c in crawls], "rows": [str(row) for row in rows]})
