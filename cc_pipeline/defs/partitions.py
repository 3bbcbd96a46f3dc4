"""Keys of partitions, their limits, and the partitions of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import dagster as dg

from cc_pipeline.advice import ANY, advise
from cc_pipeline.errors import UserInputError

#: The context of a step over partitions: that of the assets, or of an op over listed partitions.
StepContext: TypeAlias = dg.AssetExecutionContext | dg.OpExecutionContext

#: Tag of a run with the reason of the sensor that started it: ``watch``, ``repair`` or ``backfill``.
KIND_TAG: Final = "cc_pipeline/kind"
#: Tag of a run or a backfill: the engine that fetches its records and parses its pages.
ENGINE_TAG: Final = "cc_pipeline/engine"
#: One run takes many partitions: starting a run costs seconds, a partition in it milliseconds. More would wait long
#: until the run is planned, with six events a partition. Dagster puts assets into one run if they have equal policies:
#: no other asset has this number, so dependents get runs of their own.
BACKFILL: Final = dg.BackfillPolicy.multi_run(max_partitions_per_run=50)
#: The most partitions in a run of listed partitions.
MAX_PARTITIONS_PER_RUN: Final = 200
#: Dagster supports about 100,000 partitions per asset; with more, domains belong in named sets.
MAX_PARTITIONS: Final = 90_000
_RANGE_START: Final = "dagster/asset_partition_range_start"
_RANGE_END: Final = "dagster/asset_partition_range_end"


def partition_key(crawl: str, target: str) -> str:
    """Returns the key of one partition."""
    return f"{crawl}|{target}"


def split_key(key: str) -> tuple[str, str]:
    """Returns crawl and target of a partition key."""
    crawl, _, target = key.partition("|")
    return crawl, target


def group_by_crawl(keys: Iterable[str]) -> dict[str, list[str]]:
    """Groups keys by crawl: the targets of each, each once, in the order of the keys."""
    targets_by_crawl: dict[str, list[str]] = {}
    for crawl, target in map(split_key, dict.fromkeys(keys)):
        targets_by_crawl.setdefault(crawl, []).append(target)
    return targets_by_crawl


def listed_keys(targets_by_crawl: Mapping[str, Iterable[str]]) -> list[str]:
    """Returns the keys of targets by crawl, each once."""
    keys = [partition_key(crawl, target) for crawl, targets in targets_by_crawl.items() for target in targets]
    return list(dict.fromkeys(keys))


def read_run_keys(context: dg.AssetExecutionContext) -> list[str]:
    """Returns the keys of a step's partitions.

    In a backfill of a job over two dimensions, ``context.partition_keys`` is the backfill's first partition alone, so
    the range of the run comes first. Raises ``UserInputError`` for a run without partitions.
    """
    tags, partitions = context.run.tags, context.assets_def.partitions_def
    if _RANGE_START in tags and isinstance(partitions, dg.MultiPartitionsDefinition):
        key_range = dg.PartitionKeyRange(tags[_RANGE_START], tags[_RANGE_END])
        return [*partitions.get_partition_keys_in_range(key_range, dynamic_partitions_store=context.instance)]
    if not (context.has_partition_key or context.has_partition_key_range):
        raise UserInputError("the run names no partition\nChoose some in the UI, or launch the job extract_targets")
    return [*context.partition_keys]


def explain_too_many(crawls: int, targets: int) -> str | None:
    """Returns why so many crawls and targets are too many partitions; ``None`` if they are not."""
    if crawls * targets <= MAX_PARTITIONS:
        return None
    return (
        f"{crawls:,} crawls × {targets:,} targets would be {crawls * targets:,} partitions, and Dagster supports "
        f"{MAX_PARTITIONS:,}. Put domains that belong together into a set (docs/targets.md), or delete targets that "
        f"nobody needs ({advise('targets remove', ANY, purge=True)})"
    )


def room_for_crawls(crawls: int, targets: int) -> int:
    """Returns how many more crawls can be registered beside so many crawls and targets."""
    return max(0, MAX_PARTITIONS // max(1, targets) - crawls)
