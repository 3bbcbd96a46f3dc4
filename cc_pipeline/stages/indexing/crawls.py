"""The list of crawls: finds a crawl by its id, and commits the list as a table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from cc_pipeline.commoncrawl.crawls import Crawl, unlisted_crawl, validate_crawl_id
from cc_pipeline.errors import UserInputError
from cc_pipeline.lake.digests import input_digest
from cc_pipeline.stages.indexing.collinfo import CrawlList
from cc_pipeline.stages.slice import StageReport
from cc_pipeline.stages.workspace import Workspace


def known_crawls(workspace: Workspace) -> CrawlList:
    """Which crawls there are, newest first, and of when that is; Common Crawl's own list is read once a day.

    When the list cannot be read, the last good copy, and a sentence that says so: the index server that publishes the
    list is down more often than the bucket with the data. Raises ``EnvironmentFault`` when there is no copy either.
    """
    return workspace.crawl_list


def find_crawl(workspace: Workspace, crawl_id: str) -> Crawl:
    """The crawl named ``crawl_id``. Raises ``UserInputError`` naming the newest ones when there is none.

    Months of CC-NEWS and collections of named files are in no list, and asked for none: whether they are there is told
    by ``harvest.is_published``.
    """
    wanted = validate_crawl_id(crawl_id)
    unlisted = unlisted_crawl(wanted)
    if unlisted is not None:
        return unlisted
    crawls = known_crawls(workspace).crawls
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
    listed = known_crawls(workspace)
    rows, digest = _rows(listed.crawls)
    written = 0
    if workspace.lake.digest("crawls", "crawls") != digest:
        table = pa.Table.from_pylist(rows, schema=workspace.lake.specs["crawls"].schema)
        written = workspace.lake.commit("crawls", table, [], {"crawls": digest})
    notes = (listed.note,) if listed.note else ()
    return StageReport("crawls", rows=len(rows), written=written, seconds=time.monotonic() - started, notes=notes)


def crawls_are_listed(workspace: Workspace) -> bool:
    """Whether the ``crawls`` table has the list as it can be read now: writing it again would change nothing."""
    listed = known_crawls(workspace)
    return listed.fault is None and workspace.lake.digest("crawls", "crawls") == _rows(listed.crawls)[1]


def _rows(crawls: Sequence[Crawl]) -> tuple[list[dict[str, Any]], str]:
    """The rows of the table, and their digest."""
    rows = [
        {"crawl": c.id, "name": c.name, "era": c.era, "started": c.started, "ended": c.ended, "cdx_api": c.cdx_api}
        for c in crawls
    ]
    return rows, input_digest({"crawls": [c.id for c in crawls], "rows": [str(row) for row in rows]})
