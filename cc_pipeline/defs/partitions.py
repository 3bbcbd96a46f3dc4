"""Keys of partitions, and the tags of runs over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, product
from typing import Any, Final, TypeAlias

import dagster as dg

#: What a step over partitions has: that of the assets, or of an op over listed partitions.
StepContext: TypeAlias = dg.AssetExecutionContext | dg.OpExecutionContext

#: Tags of a run over one partition, and over a range of them (Dagster's names).
PARTITION_TAG = "dagster/partition"
RANGE_START_TAG = "dagster/asset_partition_range_start"
RANGE_END_TAG = "dagster/asset_partition_range_end"

#: Where the configuration of a job over listed partitions names them: targets by crawl.
LISTED: Final = "partitions"
#: Tag that says why a schedule asked for a run. ``watch``: a target is new on the watch list; ``backfill``: what is
#: missing in older crawls, or is parsed again; ``repair``: what failed before, and what a source did not give.
KIND_TAG = "cc_pipeline/kind"
#: How names of tags begin that the UI shows with a run, and not in lists of runs; and that it shows nowhere.
_NOT_IN_LISTS, _HIDDEN = "dagster/cc_pipeline_", ".dagster/cc_pipeline_"
#: Tag of the schedule's runs: what its tick asked for, and how long the rest will take, for a person.
LEFT_TAG = f"{_NOT_IN_LISTS}left"
#: Tag of a run that has tried all its partitions and is about to end: only its checks may go on. Its value is the id of
#: the run, since a run that repeats another has the tags of that one.
MADE_TAG = f"{_HIDDEN}made"
#: Which state of the tables a run is to publish.
STATE_TAG = f"{_HIDDEN}tables"
#: Which process a run of the command line lives in: its mark (``processes.py``).
PROCESS_TAG = f"{_HIDDEN}process"
#: Whose run it is, of a job in a code location that others have things in too: their jobs may have the same names.
HOME_TAG = f"{_HIDDEN}home"
#: The machine whose daemon gave a run to a code server: addresses of loopback are of that machine.
MACHINE_TAG = f"{_HIDDEN}launched_on"

#: Tag of a run: the engine (of the settings) that fetches its records and parses its pages. With it a run of the UI, or
#: a backfill, goes to another one than the UI's own setting says.
ENGINE_TAG = "cc_pipeline/engine"

#: Tag of a run whose checks look at everything, whatever they have seen before.
LOOK_TAG = "cc_pipeline/look"
EVERYTHING = "everything"

#: One run takes many partitions: starting a run costs seconds, a partition inside it costs milliseconds.
BACKFILL = dg.BackfillPolicy.multi_run(max_partitions_per_run=200)
#: Dagster copes with about 100,000 partitions an asset; beyond this, domains belong in named sets.
MAX_PARTITIONS = 90_000


def too_many(crawls: int, domains: int) -> str | None:
    """Returns why so many crawls and domains are too many partitions; ``None`` if they are not."""
    if crawls * domains <= MAX_PARTITIONS:
        return None
    return (
        f"{crawls:,} crawls × {domains:,} targets would be {crawls * domains:,} partitions, and Dagster copes with "
        f"{MAX_PARTITIONS:,}; put domains that belong together into a set (docs/targets.md), or take away what nobody "
        "needs: cc-pipeline targets remove, cc-pipeline automation clean"
    )


def room_for_crawls(crawls: int, domains: int) -> int:
    """Returns how many more crawls can be registered beside so many crawls and domains."""
    return max(0, MAX_PARTITIONS // max(1, domains) - crawls)


def partition_key(crawl: str, domain: str) -> str:
    """Returns the key of one partition."""
    return f"{crawl}|{domain}"


def config_of(op: str, keys: Iterable[str], **options: object) -> dict[str, Any]:
    """Returns the configuration of a run of ``op`` over the partitions ``keys``."""
    return {"ops": {op: {"config": {LISTED: by_crawl(keys), **options}}}}


def listed_keys(targets_by_crawl: Mapping[str, Iterable[str]]) -> list[str]:
    """Returns the keys of targets by crawl, each once."""
    keys = [partition_key(crawl, target) for crawl, targets in targets_by_crawl.items() for target in targets]
    return list(dict.fromkeys(keys))


def by_crawl(keys: Iterable[str]) -> dict[str, list[str]]:
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
    return list(product(*map(between, dimensions, firsts, lasts)))


def between(ordered: Sequence[str], first: str, last: str) -> Sequence[str]:
    """Returns the keys from ``first`` to ``last``; none if one of them was deleted."""
    try:
        return ordered[ordered.index(first) : ordered.index(last) + 1]
    except ValueError:
        return ()  # keys deleted since
