"""Which crawls to harvest and which partitions to extract: pure decisions over lists of what exists."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CrawlDecision:
    """``register`` become partitions, ``run`` are harvested; ``waiting`` are wanted but not published yet."""

    register: tuple[str, ...]
    run: tuple[str, ...]
    waiting: tuple[str, ...]


def select_crawls(listed: Sequence[str], selection: Sequence[str]) -> tuple[str, ...]:
    """Crawls of ``listed`` (newest first) that the configured selection means: ``newest``, ``all`` or ids."""
    if "all" in selection:
        return tuple(listed)
    wanted = {listed[0] if word == "newest" and listed else word for word in selection}
    return tuple(crawl for crawl in listed if crawl in wanted)


def decide_crawls(
    listed: Sequence[str],
    registered: Collection[str],
    requested: Collection[str],
    selection: Sequence[str],
    is_runnable: Callable[[str], bool],
    new_keys_per_tick: int,
) -> CrawlDecision:
    """What one tick of the sensor does.

    ``listed`` is newest first, ``registered`` are partitions already, ``requested`` crawls that a tick has
    asked to run before (the cursor). ``is_runnable`` is asked only for crawls that would run; it may cost a request.
    """
    new = tuple(crawl for crawl in listed if crawl not in registered)
    # oldest of the newest first, so that partitions appear in their own order
    register = tuple(reversed(new[:new_keys_per_tick]))
    here = {*registered, *register}
    candidates = [c for c in select_crawls(listed, selection) if c in here and c not in requested]
    run: list[str] = []
    waiting: list[str] = []
    for crawl in candidates[:new_keys_per_tick]:
        (run if is_runnable(crawl) else waiting).append(crawl)
    return CrawlDecision(register, tuple(run), tuple(waiting))


@dataclass(frozen=True, slots=True)
class BackfillDecision:
    """(crawl, domain) pairs. ``fresh`` ones may share a run. ``again`` ones failed before and run alone. ``left`` ones
    failed too often and are not run again."""

    fresh: tuple[tuple[str, str], ...]
    again: tuple[tuple[str, str], ...]
    left: tuple[tuple[str, str], ...]


def decide_backfill(
    missing: Iterable[tuple[str, str]],
    failures: Mapping[tuple[str, str], int],
    *,
    limit: int,
    retries: int,
    most_failures: int,
) -> BackfillDecision:
    """What one tick of the backfill asks for: at most ``limit`` pairs, of which at most ``retries`` failed before.

    One partition that fails makes its whole run fail. So a partition that failed is tried alone, and its neighbours
    succeed. After ``most_failures`` failures it is not tried again (the caller counts them over some time).
    """
    fresh: list[tuple[str, str]] = []
    again: list[tuple[str, str]] = []
    left: list[tuple[str, str]] = []
    for pair in missing:
        failed = failures.get(pair, 0)
        if failed >= most_failures:
            left.append(pair)
        elif failed and len(again) < min(retries, limit):
            again.append(pair)
        elif not failed and len(fresh) < limit:
            fresh.append(pair)
    return BackfillDecision(tuple(fresh[: limit - len(again)]), tuple(again), tuple(left))


def missing_partitions(
    crawls: Sequence[str],
    domains: Sequence[str],
    done: Collection[tuple[str, str]],
    busy: Collection[tuple[str, str]],
    limit: int | None = None,
) -> tuple[tuple[str, str], ...]:
    """At most ``limit`` (crawl, domain) pairs that are neither done nor being done, newest crawl first."""
    found: list[tuple[str, str]] = []
    for crawl in crawls:
        for domain in domains:
            if limit is not None and len(found) >= limit:
                return tuple(found)
            if (crawl, domain) not in done and (crawl, domain) not in busy:
                found.append((crawl, domain))
    return tuple(found)


def group_by_crawl(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Domains by crawl, in the order given."""
    grouped: dict[str, list[str]] = {}
    for crawl, domain in pairs:
        grouped.setdefault(crawl, []).append(domain)
    return grouped
