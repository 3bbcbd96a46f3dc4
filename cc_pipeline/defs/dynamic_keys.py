"""The dynamic partition keys of an instance: checks their number, finds unknown keys, and deletes keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from cc_pipeline.automation.known_keys import KnownKeys
from cc_pipeline.commoncrawl.crawls import index_is_built
from cc_pipeline.defs.declared.collected_parts import owns
from cc_pipeline.defs.home_namespace import OWN_HOME, HomeNamespace
from cc_pipeline.defs.partitions import explain_too_many
from cc_pipeline.defs.partitions_in_flight import UNFINISHED
from cc_pipeline.defs.run_notes import run_partitions
from cc_pipeline.errors import UserInputError


@dataclass(frozen=True, slots=True)
class UnknownKeys:
    """Unknown keys with the reason of each: domains that are not defined and have no data, crawls that no source lists.
    ``unchecked_reason`` is the reason why crawls were not checked (empty: they were)."""

    domains: Mapping[str, str]
    crawls: Mapping[str, str]
    unchecked_reason: str = ""


def refuse_too_many(instance: dg.DagsterInstance, *, domains: Iterable[str] = (), crawls: Iterable[str] = ()) -> None:
    """Raises ``UserInputError`` if the keys together with the registered ones would be more partitions than Dagster
    supports. Keys that are registered already are always accepted."""
    known_crawls, known_domains = {*OWN_HOME.crawl_keys(instance)}, {*OWN_HOME.target_keys(instance)}
    every_crawl, every_domain = known_crawls | {*crawls}, known_domains | {*domains}
    if every_crawl == known_crawls and every_domain == known_domains:
        return
    refused = explain_too_many(len(every_crawl), len(every_domain))
    if refused is not None:
        raise UserInputError(refused)


def find_unfinished_runs(
    instance: dg.DagsterInstance,
    domains: Collection[str],
    ordered: tuple[Sequence[str], Sequence[str]] | None = None,
    namespace: HomeNamespace = OWN_HOME,
) -> dict[str, list[str]]:
    """Returns the ids of unfinished runs by domain, for those of ``domains`` that have any.

    ``ordered`` are the keys by which ranges of runs are resolved, if not the current ones: those from before a
    deletion.
    """
    runs_by_domain: dict[str, list[str]] = {}
    runs = [run for run in instance.get_runs(dg.RunsFilter(statuses=list(UNFINISHED))) if owns(namespace, run)]
    for run_id, pairs in run_partitions(instance, runs, ordered, namespace).items():
        for domain in {domain for _, domain in pairs} & {*domains}:
            runs_by_domain.setdefault(domain, []).append(run_id)
    return runs_by_domain


def find_unknown_keys(instance: dg.DagsterInstance, known_keys: KnownKeys) -> UnknownKeys:
    """Returns the unknown keys. Keys of an unfinished run are left out: the run may define them yet."""
    unknown_domains = sorted({*OWN_HOME.target_keys(instance)} - known_keys.domains)
    running = find_unfinished_runs(instance, unknown_domains)
    # months of CC-NEWS and collections are in no list, and the files of their indexes may be there before anything else
    unknown_crawls = {
        crawl for crawl in {*OWN_HOME.crawl_keys(instance)} - known_keys.crawls if not index_is_built(crawl)
    }
    crawls = sorted(unknown_crawls) if not known_keys.unchecked_reason else []
    return UnknownKeys(
        {key: "no target has this key, and it has no data" for key in unknown_domains if key not in running},
        dict.fromkeys(crawls, "the source does not list this crawl, and it has no data"),
        known_keys.unchecked_reason,
    )


def delete_keys(
    instance: dg.DagsterInstance,
    namespace: HomeNamespace = OWN_HOME,
    *,
    domains: Collection[str] = (),
    crawls: Collection[str] = (),
) -> None:
    """Deletes keys. Their events, which are names, counts and versions, are deleted with the runs that wrote them."""
    for name, keys in (("target", domains), ("crawl", crawls)):
        for key in keys:
            instance.delete_dynamic_partition(namespace.qualify(name), key)
