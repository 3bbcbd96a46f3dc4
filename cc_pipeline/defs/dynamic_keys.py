"""The dynamic partition keys of an instance: checks their number, finds unknown keys, and deletes keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import dagster as dg

from cc_pipeline.automation import watch_list
from cc_pipeline.automation.known_keys import read_defined_slugs, read_known_crawls
from cc_pipeline.commoncrawl.crawls import index_is_built
from cc_pipeline.defs.home_namespace import OWN_HOME
from cc_pipeline.defs.partitions import explain_too_many
from cc_pipeline.errors import UserInputError
from cc_pipeline.workspace.workspace import Workspace

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


def find_unknown_keys(instance: dg.DagsterInstance, workspace: Workspace) -> tuple[list[str], list[str]]:
    """Returns the keys of targets that are not defined, not watched and have no data, and those of crawls that the
    source does not list and that have no data; no crawls while the list of crawls cannot be read.

    Raises ``UserInputError`` for a watch list with a wrong line, ``EnvironmentFault`` when the lake cannot be read.
    """
    watched = watch_list.read(workspace.settings.watch_list_path)
    meaningful_slugs = {*read_defined_slugs(workspace.lake), *(target.slug for target in watched)}
    targets = sorted({*OWN_HOME.target_keys(instance)} - meaningful_slugs)
    if workspace.crawl_list.note is not None:
        return targets, []
    crawls = {*OWN_HOME.crawl_keys(instance)} - read_known_crawls(workspace)
    # months of CC-NEWS and collections are in no list, and the files of their indexes may be there before anything else
    return targets, sorted(crawl for crawl in crawls if not index_is_built(crawl))


def delete_keys(instance: dg.DagsterInstance, *, targets: Collection[str] = (), crawls: Collection[str] = ()) -> None:
    """Deletes keys. Their events, which are names, counts and versions, are deleted with the runs that wrote them."""
    for name, keys in (("target", targets), ("crawl", crawls)):
        for key in keys:
            instance.delete_dynamic_partition(name, key)
