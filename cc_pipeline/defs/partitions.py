"""Keys of partitions, and the tags of runs over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, product
from typing import Any, Final, TypeAlias

import dagster as dg

#: The context of a step over partitions: that of the assets, or of an op over listed partitions.
StepContext: TypeAlias = dg.AssetExecutionContext | dg.OpExecutionContext

#: Tags of a run over one partition, and over a range of them (Dagster's names).
PARTITION_TAG = "dagster/partition"
RANGE_START_TAG = "dagster/asset_partition_range_start"
RANGE_END_TAG = "dagster/asset_partition_range_end"

#: The configuration field of a job over listed partitions that has them: targets by crawl.
PARTITIONS_FIELD: Final = "partitions"
#: Tag with the reason of a schedule's run. ``watch``: a target is new on the watch list; ``backfill``: pages of older
#: crawls are missing, or are parsed again; ``repair``: a partition failed before, or the source did not return all its
#: captures.
KIND_TAG = "cc_pipeline/kind"
#: Prefixes of tags that the UI shows with a run but not in lists of runs, and of tags that it shows nowhere.
_RUN_PAGE_PREFIX, _HIDDEN = "dagster/cc_pipeline_", ".dagster/cc_pipeline_"
#: Tag of the schedule's runs: a summary of the tick for a person, and how long the rest will take.
SUMMARY_TAG = f"{_RUN_PAGE_PREFIX}left"
#: Tag of a run that has tried all its partitions: only its checks may still run. Its value is the id of the run, since
#: a repeated run has the tags of the first one.
MADE_TAG = f"{_HIDDEN}made"
#: The state of the tables that a run publishes.
STATE_TAG = f"{_HIDDEN}tables"
#: The process of a run of the command line, as its mark (``processes.py``).
PROCESS_TAG = f"{_HIDDEN}process"
#: The home of a run, in a code location that has items of others too: their jobs may have the same names.
HOME_TAG = f"{_HIDDEN}home"

#: Tag of a run: the engine (of the settings) that fetches its records and parses its pages. It sends a run of the UI,
#: or a backfill, to another engine than that of the UI's settings.
ENGINE_TAG = "cc_pipeline/engine"

#: Tag of a run whose checks examine everything, whatever they have seen before.
CHECK_SCOPE_TAG = "cc_pipeline/look"
EVERYTHING = "everything"

#: One run takes many partitions: starting a run costs seconds, a partition inside it costs milliseconds.
BACKFILL = dg.BackfillPolicy.multi_run(max_partitions_per_run=200)
#: Dagster supports about 100,000 partitions per asset; with more, domains belong in named sets.
MAX_PARTITIONS = 90_000


def explain_too_many(crawls: int, domains: int) -> str | None:
    """Returns why so many crawls and domains are too many partitions; ``None`` if they are not."""
    if crawls * domains <= MAX_PARTITIONS:
        return None
    return (
        f"{crawls:,} crawls × {domains:,} targets would be {crawls * domains:,} partitions, and Dagster supports "
        f"{MAX_PARTITIONS:,}. Put domains that belong together into a set (docs/targets.md), or delete targets that "
        "nobody needs (cc-pipeline targets remove … --purge) and keys without data (cc-pipeline automation clean)"
    )


def room_for_crawls(crawls: int, domains: int) -> int:
    """Returns how many more crawls can be registered beside so many crawls and domains."""
    return max(0, MAX_PARTITIONS // max(1, domains) - crawls)


def partition_key(crawl: str, domain: str) -> str:
    """Returns the key of one partition."""
    return f"{crawl}|{domain}"


def config_of(op: str, keys: Iterable[str], **options: object) -> dict[str, Any]:
    """Returns the configuration of a run of ``op`` over the partitions ``keys``."""
    return {"ops": {op: {"config": {PARTITIONS_FIELD: group_by_crawl(keys), **options}}}}


def listed_keys(targets_by_crawl: Mapping[str, Iterable[str]]) -> list[str]:
    """Returns the keys of targets by crawl, each once."""
    keys = [partition_key(crawl, target) for crawl, targets in targets_by_crawl.items() for target in targets]
    return list(dict.fromkeys(keys))


def group_by_crawl(keys: Iterable[str]) -> dict[str, list[str]]:
    """Groups ``crawl|target`` keys by crawl: the domains of each, each once, in the order of the keys."""
    domains_by_crawl: dict[str, list[str]] = {}
    for key in dict.fromkeys(keys):
        crawl, _, domain = key.partition("|")
        domains_by_crawl.setdefault(crawl, []).append(domain)
    return domains_by_crawl


def contiguous_ranges(ordered: Sequence[str], selected_keys: Iterable[str]) -> list[tuple[str, str]]:
    """Returns ``selected_keys`` as (first, last) ranges of ``ordered``, for runs over a partition range."""
    groups = (list(keys) for is_selected, keys in groupby(ordered, set(selected_keys).__contains__) if is_selected)
    return [(keys[0], keys[-1]) for keys in groups]


def range_tags(first: str, last: str) -> dict[str, str]:
    """Returns the tags of a run over the partitions from ``first`` to ``last``."""
    return {RANGE_START_TAG: first, RANGE_END_TAG: last}


def range_of(tags: Mapping[str, str]) -> tuple[str, str]:
    """Returns the first and last partition of a run with these tags, as Dagster shows them; empty texts if it shows
    none.

    The tags of a range decide. Each run of a job's backfill also has tags with the dimensions of the backfill's first
    partition, which mean nothing there.
    """
    first = tags.get(RANGE_START_TAG) or tags.get(PARTITION_TAG, "")
    return first, tags.get(RANGE_END_TAG) or first


def keys_of_range(first: str, last: str, dimensions: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Returns the partitions from ``first`` to ``last``, each as its keys by dimension. ``dimensions`` has all keys of
    each dimension. The result has every combination of the keys between the two ends in each dimension. It is empty if
    one of the keys was deleted, or if the dimensions differ."""
    firsts, lasts = first.split("|"), last.split("|")
    if not len(firsts) == len(lasts) == len(dimensions):
        return []
    return list(product(*map(select_range, dimensions, firsts, lasts)))


def select_range(ordered: Sequence[str], first: str, last: str) -> Sequence[str]:
    """Returns the keys from ``first`` to ``last``; none if one of them was deleted."""
    try:
        return ordered[ordered.index(first) : ordered.index(last) + 1]
    except ValueError:
        return ()  # keys were deleted since
