"""What jobs left that have ended, for a purge: plans of killed drivers, and files of tables that no commit ever named.

A job writes a lease before any of it, and removes it after its commit. So what was listed before the leases were read,
and is of no living one, is of a job that has ended; if it is not in the log by then, it never will be.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import quote

from cc_pipeline.extraction.slice import PAGE_TABLES
from cc_pipeline.lake.keeping import never_committed
from cc_pipeline.lake.pins import pinned_versions
from cc_pipeline.lake.streaming import files_of_crawl
from cc_pipeline.records.leases import living
from cc_pipeline.records.storage import PLANS
from cc_pipeline.stages.workspace import Workspace

#: The commit of a job in the names of files that its tasks write.
_COMMIT: Final = re.compile(r"-([0-9a-f]{32})-")
_TABLES: Final = ("records", *PAGE_TABLES)


def delete_left_by_jobs(workspace: Workspace, crawls: Collection[str]) -> int:
    """Deletes plans and table files of ``crawls`` that jobs left which have ended; gives how many. Nobody reads them.

    Raises ``EnvironmentFault``.
    """
    place, storage = workspace.place, workspace.storage
    plans: dict[str, list[str]] = {}
    tables: dict[str, dict[str, str]] = {}
    alive: set[str] = set()
    for crawl in crawls:
        prefix = f"{storage.folder(crawl)}/{PLANS}/"
        for one in place.listing(prefix):
            plans.setdefault(one.key.removeprefix(prefix).partition("/")[0], []).append(one.key)
        for table in _TABLES:
            for one in place.listing(f"tables/{table}/crawl={quote(crawl, safe='')}/"):
                tables.setdefault(table, {})[one.key.rpartition("/")[2]] = one.key
    # behind the listings
    for crawl in crawls:
        alive |= {held.commit for held in living(storage, crawl)}
    gone = [key for job, keys in plans.items() if job not in alive for key in keys]
    pinned = pinned_versions(place) if workspace.settings.lake_is_apart else {}
    for table, by_name in tables.items():
        of_jobs = {name: found[1] for name in by_name if (found := _COMMIT.search(name))}
        ended = {name for name, commit in of_jobs.items() if commit not in alive}
        if not ended:
            continue
        # files that are named now are nearly all; what others may be costs a listing of all crawls
        now = workspace.lake.pin(table)
        ended -= {path.rpartition("/")[2] for crawl in crawls for path in files_of_crawl(now, crawl)}
        if ended:
            left = never_committed(workspace.lake, table, pinned.get(table, ()))
            gone += [by_name[name] for name in sorted(ended & left)]
    for key in gone:
        place.delete(key)
    return len(gone)
