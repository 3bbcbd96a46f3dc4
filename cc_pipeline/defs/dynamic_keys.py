"""The dynamic partition keys of an instance: checks their number, and deletes keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import dagster as dg

from cc_pipeline.defs.home_namespace import OWN_HOME
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


def delete_keys(instance: dg.DagsterInstance, targets: Collection[str]) -> None:
    """Deletes the keys of targets. Their events, which are names, counts and versions, are deleted with the runs that
    wrote them."""
    for key in targets:
        instance.delete_dynamic_partition("target", key)
