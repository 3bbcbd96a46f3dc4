"""The list of crawls: finds a crawl by its id, and commits the list as a table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from cc_pipeline.commoncrawl.crawls import Crawl, validate_crawl_id
from cc_pipeline.errors import UserInputError
from cc_pipeline.lake.digests import input_digest
from cc_pipeline.stages.slice import StageReport
from cc_pipeline.stages.workspace import Workspace


def list_crawls(workspace: Workspace) -> tuple[Crawl, ...]:
    """The crawls of the source, newest first; from the cache when Common Crawl's own list is under a day old.

    Raises ``EnvironmentFault`` when the list cannot be read.
    """
    listed = workspace.crawl_list
    if listed.fault is not None:
        raise listed.fault
    return listed.crawls


def known_crawls(workspace: Workspace) -> tuple[tuple[Crawl, ...], str | None]:
    """As :func:`list_crawls`, but when the list cannot be read, the last copy and a sentence that says so.

    The index server that publishes the list is down more often than the bucket with the data.
    """
    return workspace.crawl_list.crawls, workspace.crawl_list.note


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
    rows, digest = _rows(crawls)
    written = 0
    if workspace.lake.digest("crawls", "crawls") != digest:
        table = pa.Table.from_pylist(rows, schema=workspace.lake.specs["crawls"].schema)
        written = workspace.lake.commit("crawls", table, [], {"crawls": digest})
    notes = (note,) if note else ()
    return StageReport("crawls", rows=len(rows), written=written, seconds=time.monotonic() - started, notes=notes)


def crawls_are_listed(workspace: Workspace) -> bool:
    """Whether the ``crawls`` table has the list as it can be read now: writing it again would change nothing."""
    crawls, note = known_crawls(workspace)
    return note is None and workspace.lake.digest("crawls", "crawls") == _rows(crawls)[1]


def _rows(crawls: Sequence[Crawl]) -> tuple[list[dict[str, Any]], str]:
    """The rows of the table, and their digest."""
    rows = [
        {"crawl": c.id, "name": c.name, "era": c.era, "started": c.started, "ended": c.ended, "cdx_api": c.cdx_api}
        for c in crawls
    ]
    return rows, input_digest({"crawls": [c.id for c in crawls], "rows": [str(row) for row in rows]})
