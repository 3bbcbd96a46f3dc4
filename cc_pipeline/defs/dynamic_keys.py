"""The dynamic partition keys of an instance: is there room for more, which mean nothing, and taking some away."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from cc_pipeline.automation.known_keys import KnownKeys
from cc_pipeline.commoncrawl.crawls import index_is_built
from cc_pipeline.defs.declared.collected import owns
from cc_pipeline.defs.flight import UNFINISHED
from cc_pipeline.defs.partitions import too_many
from cc_pipeline.defs.placement import OURS, Placement
from cc_pipeline.defs.run_notes import run_partitions
from cc_pipeline.errors import UserInputError


@dataclass(frozen=True, slots=True)
class StrangeKeys:
    """Keys that mean nothing, and why: domains that nobody defined and nothing was made of, crawls that no source
    lists. ``unjudged`` says why crawls were not looked at (empty: they were)."""

    domains: Mapping[str, str]
    crawls: Mapping[str, str]
    unjudged: str = ""


def refuse_too_many(instance: dg.DagsterInstance, *, domains: Iterable[str] = (), crawls: Iterable[str] = ()) -> None:
    """Raises ``UserInputError`` where these keys beside those registered would be more partitions than Dagster copes
    with. Keys that are there already are always let through."""
    known_crawls, known_domains = {*OURS.crawl_keys(instance)}, {*OURS.target_keys(instance)}
    every_crawl, every_domain = known_crawls | {*crawls}, known_domains | {*domains}
    if every_crawl == known_crawls and every_domain == known_domains:
        return
    refused = too_many(len(every_crawl), len(every_domain))
    if refused is not None:
        raise UserInputError(refused)


def unfinished_runs_of(
    instance: dg.DagsterInstance,
    domains: Collection[str],
    ordered: tuple[Sequence[str], Sequence[str]] | None = None,
    namespace: Placement = OURS,
) -> dict[str, list[str]]:
    """Ids of runs that have not ended, by which of these domains they have (those without any are left out).

    ``ordered`` are the keys that ranges of runs go by, if not those of now: of before some were deleted.
    """
    runs_by_domain: dict[str, list[str]] = {}
    runs = [run for run in instance.get_runs(dg.RunsFilter(statuses=list(UNFINISHED))) if owns(namespace, run)]
    for run_id, pairs in run_partitions(instance, runs, ordered, namespace).items():
        for domain in {domain for _, domain in pairs} & {*domains}:
            runs_by_domain.setdefault(domain, []).append(run_id)
    return runs_by_domain


def strange_keys(instance: dg.DagsterInstance, known_keys: KnownKeys) -> StrangeKeys:
    """The keys that mean nothing. Those that an unfinished run has are left out: it may define them yet."""
    unknown_domains = sorted({*OURS.target_keys(instance)} - known_keys.domains)
    running = unfinished_runs_of(instance, unknown_domains)
    # months of CC-NEWS and collections are in no list; files of their indexes may be there before anything else is
    unknown_crawls = {crawl for crawl in {*OURS.crawl_keys(instance)} - known_keys.crawls if not index_is_built(crawl)}
    crawls = sorted(unknown_crawls) if not known_keys.unjudged else []
    return StrangeKeys(
        {key: "nobody defined it, and nothing was made of it" for key in unknown_domains if key not in running},
        dict.fromkeys(crawls, "the source does not list it, and nothing was made of it"),
        known_keys.unjudged,
    )


def delete_keys(
    instance: dg.DagsterInstance,
    namespace: Placement = OURS,
    *,
    domains: Collection[str] = (),
    crawls: Collection[str] = (),
) -> None:
    """Takes keys away. Their events, which are names, counts and versions, go with the runs that wrote them."""
    for name, keys in (("target", domains), ("crawl", crawls)):
        for key in keys:
            instance.delete_dynamic_partition(namespace.of(name), key)
