"""The interface of locators, the assignment of captures to targets, and the choice of an index by its cost.

Several kinds of index locate captures, and a lookup works the same with each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from cc_pipeline.advice import option
from cc_pipeline.commoncrawl.crawls import key_rule
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.commoncrawl.key_ranges import KeyRange, RangeSet
from cc_pipeline.commoncrawl.matching import MemberIndex
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.errors import UserInputError
from cc_pipeline.index.gaps import IndexGaps, index_advice
from cc_pipeline.index.locators import AUTO, KINDS, refuse_unknown_kind
from cc_pipeline.progress import format_count, human_bytes

#: The separator of names, and of versions, of indexes that answered together.
NAME_SEPARATOR: Final = "+"
#: The tree and ZipNum together, for crawls of the ARC years that have both: each has captures that the other misses.
UNION: Final = f"btree{NAME_SEPARATOR}zipnum"

#: Instead of an index's name: the user listed the captures, and no index was used.
NAMED_CAPTURES: Final = "given"

#: Bytes that cost about as much time as one request at a polite pace.
REQUEST_BYTES = 256 << 10

#: An estimate in bytes below which no other index is considered: its own estimate would cost about as much.
CHEAP = 64 << 20


#: Receives captures (``CAPTURE_SCHEMA``) of the target with a slug, as they are found.
CaptureSink: TypeAlias = Callable[[str, pa.Table], None]
#: The keys of a target in some index.
RangesOf: TypeAlias = Callable[[Target], Sequence[KeyRange]]


def surt_ranges(crawl: str, index: str) -> RangesOf:
    """Returns the function that gives the SURT key ranges of targets in the ``index`` (its kind) of a crawl."""
    return methodcaller("ranges_by", key_rule(crawl, index))


class TargetRouter:
    """Routes captures to the targets of one lookup, except those that a target's condition rules out. ``ranges`` are
    all keys to read; ``ranges_of`` returns those of a single target. Captures go into a ``sink``, or are collected."""

    def __init__(self, targets: Sequence[Target], ranges_of: RangesOf, sink: CaptureSink | None = None) -> None:
        self._slugs = [target.slug for target in targets]
        members = [(member, number) for number, target in enumerate(targets) for member in target.members or (target,)]
        self._conditions = [target.condition for target in targets]
        self._owners = [number for _, number in members]
        self._ranges = [ranges_of(member) for member, _ in members]
        self._index = MemberIndex([member for member, _ in members])
        self.ranges = RangeSet(keys for ranges in self._ranges for keys in ranges)
        self._tables: list[list[pa.Table]] = [[] for _ in targets]
        self._sink = sink

    def matching_targets(self, key: bytes, url: str, host: str | None) -> list[int]:
        """Returns the numbers of the targets that a row with this key and URL belongs to, each once."""
        owners: list[int] = []
        for member in self._index.find_members(url, host):
            owner = self._owners[member]
            if owner in owners:
                continue
            for keys in self._ranges[member]:
                if key in keys:
                    owners.append(owner)
                    break
        return owners

    def give(self, rows: pa.Table, targets_by_row: Sequence[Sequence[int]]) -> None:
        """Gives ``rows`` (``CAPTURE_SCHEMA``) to their targets; ``targets_by_row`` has the numbers of each row's."""
        pairs = [(taker, row) for row, target_numbers in enumerate(targets_by_row) for taker in target_numbers]
        if not pairs:
            return
        if len(pairs) == rows.num_rows and pairs[0][0] == pairs[-1][0] and len({taker for taker, _ in pairs}) == 1:
            # all is one target's: no copy is made
            self._keep(pairs[0][0], rows)
            return
        order = np.asarray(pairs, dtype=np.int64)
        order = order[np.argsort(order[:, 0], kind="stable")]
        sorted_rows = rows.take(pa.array(order[:, 1]))
        first = np.flatnonzero(np.concatenate(([True], order[1:, 0] != order[:-1, 0])))
        for start, end in zip(first.tolist(), [*first[1:].tolist(), len(order)], strict=True):
            self._keep(int(order[start, 0]), sorted_rows.slice(start, end - start))

    def _keep(self, number: int, rows: pa.Table) -> None:
        if (condition := self._conditions[number]) is not None:
            rows = condition.keep(rows)
        if self._sink is None:
            self._tables[number].append(rows)
        else:
            self._sink(self._slugs[number], rows)

    def captures(self) -> dict[str, pa.Table]:
        """Returns the collected captures of each target, by slug."""
        return {
            slug: pa.concat_tables(tables) if tables else CAPTURE_SCHEMA.empty_table()
            for slug, tables in zip(self._slugs, self._tables, strict=True)
        }


@dataclass(frozen=True, slots=True)
class LookupEstimate:
    """The estimated cost of a lookup. ``bytes`` and ``requests`` are upper bounds.

    ``likely_bytes`` is an estimate for a small target, if the bound is far above it. ``index`` is the chosen index, and
    ``reason`` the reason in words. Both are ``None`` in a locator's own estimate. ``notes`` are sentences for the user.
    """

    files: int
    row_groups: int
    requests: int
    bytes: int
    notes: tuple[str, ...] = ()
    likely_bytes: int | None = None
    index: str | None = None
    reason: str | None = None

    @property
    def expected_bytes(self) -> int:
        """The estimate for a small target if there is one, else the upper bound."""
        return self.bytes if self.likely_bytes is None else self.likely_bytes


@dataclass(frozen=True, slots=True)
class LookupResult:
    """Captures per target slug (``CAPTURE_SCHEMA``; every slug asked for is present), and what the lookup cost.

    ``requests``, ``bytes`` and ``seconds`` are the cost. ``index`` is the index that answered, and ``reason`` the
    reason for its choice, in words; both are ``None`` in a locator's own answer. ``index_version`` identifies the index
    if only a request can tell. ``gaps`` are index files that could not be read, if that is allowed. ``notes`` are
    sentences for the user. ``segments``: if captures went into a sink, those that only a B-tree names count only if
    they are in one of these (``None``: always)."""

    captures: Mapping[str, pa.Table]
    requests: int
    bytes: int
    seconds: float
    notes: tuple[str, ...] = field(default=())
    index: str | None = None
    reason: str | None = None
    gaps: IndexGaps | None = None
    index_version: str = ""
    segments: frozenset[str] | None = None


class Locator(Protocol):
    """Finds the captures of targets in one crawl.

    ``subsets`` are names of ``SUBSETS``. A locator that cannot tell subsets apart (the 2012 B-tree) serves ``warc``
    only. Faults are raised (``DataFault``, ``EnvironmentFault``): an answer is complete or an error. Captures that go
    into a ``sink`` as they are found are not in the answer; after an error they must be dropped.
    """

    name: str

    def price(self, crawl: str, subsets: Sequence[str], targets: Sequence[Target]) -> LookupEstimate: ...

    def locate(
        self, crawl: str, subsets: Sequence[str], targets: Sequence[Target], sink: CaptureSink | None = None
    ) -> LookupResult: ...


class NoSuchIndex(UserInputError):
    """Neither this home nor the source has the requested index of a crawl, or any."""


def weight(price: LookupEstimate) -> int:
    """Returns an estimate as one number of bytes, requests included."""
    return price.expected_bytes + price.requests * REQUEST_BYTES


def choose(
    available: Mapping[str, Callable[[], Locator]],
    crawl: str,
    subsets: Sequence[str],
    targets: Sequence[Target],
    via: str = "auto",
) -> tuple[Locator, str]:
    """Returns the locator to use, and the reason in words.

    ``available`` maps the kind of each index of this crawl to a function that opens its locator. ``via`` names the kind
    to use. ``auto`` takes the columnar index, unless it is expensive and another one cheaper (old crawls have no page
    index, so whole columns are read). Raises ``NoSuchIndex`` for an index that the crawl does not have.
    """
    refuse_unknown_kind(via, (UNION,))
    names = [name for name in (UNION, *KINDS) if name in available]
    if not names:
        raise NoSuchIndex(f"no index of {crawl} can be used here. {index_advice(crawl)}")
    if via != AUTO:
        if via not in names:
            raise NoSuchIndex(
                f"no {via} index of {crawl} can be used here; {option(index=None)} can name: {', '.join(names)}"
            )
        return available[via](), f"{via}, as requested"
    first = available[names[0]]()
    if first.name == UNION:
        return first, f"{UNION}, since each has captures that the other lacks"
    if len(names) == 1:
        return first, f"{first.name}, the only index"
    price = first.price(crawl, subsets, targets)
    if weight(price) <= CHEAP:
        return first, f"{first.name}, {_estimate(price)}"
    second = available[names[1]]()
    second_price = second.price(crawl, subsets, targets)
    cheapest = second if weight(second_price) < weight(price) else first
    return cheapest, f"{cheapest.name} ({first.name} {_estimate(price)}, {second.name} {_estimate(second_price)})"


def _estimate(price: LookupEstimate) -> str:
    return f"estimated at {format_count(price.requests, 'request')} and {human_bytes(price.expected_bytes)}"
