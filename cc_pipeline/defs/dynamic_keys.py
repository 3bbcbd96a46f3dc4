"""The dynamic partition keys of an instance: checks their number, finds unknown keys, and deletes keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import dagster as dg

from cc_pipeline.automation.known_keys import KnownKeys
from cc_pipeline.commoncrawl.crawls import index_is_built
from cc_pipeline.defs.home_namespace import OWN_HOME, HomeNamespace
from cc_pipeline.defs.partitions import explain_too_many
from cc_pipeline.errors import UserInputError

#: States of a run that has not ended.
UNFINISHED = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


@dataclass(frozen=True, slots=True)
class UnknownKeys:
    """Unknown keys with the reason of each: targets that are not defined and have no data, crawls that no source lists.
    ``unchecked_reason`` is the reason why crawls were not checked (empty: they were)."""

    targets: Mapping[str, str]
    crawls: Mapping[str, str]
    unchecked_reason: str = ""


def refuse_too_many(instance: dg.DagsterInstance, *, targets: Iterable[str] = (), crawls: Iterable[str] = ()) -> None:
    """Raises ``UserInputError`` if the keys together with the registered ones would be more partitions than Dagster
    supports. Keys that are registered already are always accepted."""
    known_crawls, known_targets = {*OWN_HOME.crawl_keys(instance)}, {*OWN_HOME.target_keys(instance)}
    every_crawl, every_target = known_crawls | {*crawls}, known_targets | {*targets}
    if every_crawl == known_crawls and every_target == known_targets:
        return
    refused = explain_too_many(len(every_crawl), len(every_target))
    if refused is not None:
        raise UserInputError(refused)


def find_unknown_keys(instance: dg.DagsterInstance, known_keys: KnownKeys) -> UnknownKeys:
    """Returns the unknown keys."""
    # months of CC-NEWS and collections are in no list, and the files of their indexes may be there before anything else
    crawls = {crawl for crawl in {*OWN_HOME.crawl_keys(instance)} - known_keys.crawls if not index_is_built(crawl)}
    targets = sorted({*OWN_HOME.target_keys(instance)} - known_keys.domains)
    return UnknownKeys(
        dict.fromkeys(targets, "no target has this key, and it has no data"),
        dict.fromkeys(
            [] if known_keys.unchecked_reason else sorted(crawls),
            "the source does not list this crawl, and it has no data",
        ),
        known_keys.unchecked_reason,
    )


def delete_keys(
    instance: dg.DagsterInstance,
    namespace: HomeNamespace = OWN_HOME,
    *,
    targets: Collection[str] = (),
    crawls: Collection[str] = (),
) -> None:
    """Deletes keys. Their events, which are names, counts and versions, are deleted with the runs that wrote them."""
    for name, keys in (("target", targets), ("crawl", crawls)):
        for key in keys:
            instance.delete_dynamic_partition(namespace.qualify(name), key)
