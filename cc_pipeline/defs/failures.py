"""Which partitions failed lately: what a schedule must know so that it does not ask for them for ever.

Belongs here: reading runs and the partitions they were for. Not here: what is done about it (extraction/discovery).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg

#: Tags of a run over many partitions (Dagster's names).
RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
_PARTITION = "dagster/partition"
#: Newest runs looked at; a tick asks for far fewer.
_MOST_RUNS = 2_000


def recent_failures(
    instance: dg.DagsterInstance, job: str, crawls: Sequence[str], domains: Sequence[str], within: timedelta
) -> Counter[tuple[str, str]]:
    """How many runs of ``job`` failed ``within`` the time before now, by (crawl, domain)."""
    lately = dg.RunsFilter(
        job_name=job, statuses=[dg.DagsterRunStatus.FAILURE], created_after=datetime.now(UTC) - within
    )
    failures: Counter[tuple[str, str]] = Counter()
    for run in instance.get_runs(lately, limit=_MOST_RUNS):
        failures.update(run_partitions(run.tags, crawls, domains))
    return failures


def run_partitions(tags: Mapping[str, str], crawls: Sequence[str], domains: Sequence[str]) -> list[tuple[str, str]]:
    """The (crawl, domain) pairs a run with these tags is for; ``crawls`` and ``domains`` are the keys in order."""
    first = tags.get(RANGE_START) or tags.get(_PARTITION, "")
    last = tags.get(RANGE_END) or first
    if "|" not in first or "|" not in last:
        return []
    first_crawl, first_domain = first.split("|", 1)
    last_crawl, last_domain = last.split("|", 1)
    return [
        (crawl, domain)
        for crawl in _between(crawls, first_crawl, last_crawl)
        for domain in _between(domains, first_domain, last_domain)
    ]


def _between(ordered: Sequence[str], first: str, last: str) -> Sequence[str]:
    try:
        return ordered[ordered.index(first) : ordered.index(last) + 1]
    except ValueError:
        return ()  # keys deleted since
