"""Lookups: find the captures of targets in a crawl with the cheapest index, and compare the answers of two indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.conditions import OPEN
from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
from cc_pipeline.commoncrawl.paths import describe_faulty_lines, parse_valid_segments, refuse_faulty_list, segments_key
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.errors import DataFault, UserInputError
from cc_pipeline.index.btree.locator import CRAWL_2012
from cc_pipeline.index.catalog.catalog import Catalog
from cc_pipeline.index.gaps import IndexGaps, find_gaps, index_incomplete, missing_harvest
from cc_pipeline.index.locator import UNION, CaptureSink, Locator, LookupEstimate, LookupResult, choose, weight
from cc_pipeline.index.locators import AUTO, BTREE, PARQUET, ZIPNUM
from cc_pipeline.index.opening import IndexSearch, find_btree, find_columnar, find_zipnum
from cc_pipeline.index.zipnum.cluster_cache import Clusters
from cc_pipeline.progress import format_count
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault, whole_files

_PLACE = ("warc_filename", "warc_record_offset")


class UnionLocator:
    """Queries ``tree`` and ``zipnum`` for the same captures. A capture that both name is there once, as in ``zipnum``:
    with time, status and type. A fault of either is raised, since half of an answer is none."""

    name = UNION

    def __init__(self, tree: Locator, zipnum: Locator) -> None:
        self._tree = tree
        self._zipnum = zipnum

    def price(self, crawl: str, subsets: Sequence[str], targets: Sequence[Target]) -> LookupEstimate:
        """Estimates the cost of both."""
        tree_estimate, zipnum_estimate = (index.price(crawl, subsets, targets) for index in (self._tree, self._zipnum))
        return LookupEstimate(
            tree_estimate.files + zipnum_estimate.files,
            tree_estimate.row_groups + zipnum_estimate.row_groups,
            tree_estimate.requests + zipnum_estimate.requests,
            tree_estimate.bytes + zipnum_estimate.bytes,
            (*tree_estimate.notes, *zipnum_estimate.notes),
        )

    def locate(
        self, crawl: str, subsets: Sequence[str], targets: Sequence[Target], sink: CaptureSink | None = None
    ) -> LookupResult:
        """Returns every capture of every target, per slug; a ``sink`` gets captures of both indexes twice. Raises
        ``DataFault`` and ``EnvironmentFault``."""
        zipnum_result, tree_result = (
            index.locate(crawl, subsets, targets, sink) for index in (self._zipnum, self._tree)
        )
        return LookupResult(
            {slug: united(table, tree_result.captures[slug]) for slug, table in zipnum_result.captures.items()},
            zipnum_result.requests + tree_result.requests,
            zipnum_result.bytes + tree_result.bytes,
            zipnum_result.seconds + tree_result.seconds,
            (*zipnum_result.notes, *tree_result.notes),
            gaps=zipnum_result.gaps or tree_result.gaps,
        )


def united(*tables: pa.Table) -> pa.Table:
    """Joins the captures of all tables, each location once, from the first table that has it."""
    captures = pa.concat_tables(tables)
    seen: set[tuple[str, int]] = set()
    new = []
    for place in zip(*(captures[name].to_pylist() for name in _PLACE), strict=True):
        new.append(place not in seen)
        seen.add(place)
    return captures.filter(pa.array(new, pa.bool_()))


#: The names of columns of captures that the columnar index calls differently.
_READ_AS = {"domain": "url_host_registered_domain"}


@dataclass(frozen=True, slots=True)
class IndexSources:
    """The locations of the indexes, ``None`` for missing ones.

    ``transport`` leads to the bucket, ``catalog`` opens the row-group catalog, ``footers`` is the folder of harvested
    footers, ``cache`` a folder for page indexes. ``columns`` are the columns to read of the columnar index (``None``:
    all). ``max_gaps`` is the share of a subset's index files that may be unread in an answer, from 0 to 1.
    ``clusters`` are the open ZipNum indexes.
    """

    transport: Transport
    catalog: Callable[[], Catalog] | None = None
    columns: tuple[str, ...] | None = None
    footers: Path | None = None
    cache: Path | None = None
    max_gaps: float = 0.0
    clusters: Clusters = field(default_factory=Clusters)


def look_up(
    crawl: str,
    subsets: Sequence[str],
    targets: Sequence[Target],
    sources: IndexSources,
    *,
    via: str = "auto",
    max_bytes: int | None = None,
    sink: CaptureSink | None = None,
) -> LookupResult:
    """Returns the captures of every target in ``crawl``: all of them, or an error is raised.

    Captures that do not fit memory go into ``sink`` as they are found. With ``UNION``, captures that both indexes name
    are then given twice.

    In the result, ``index`` and ``reason`` name the index and why it was used. ``notes`` are sentences for the user:
    the index, subsets it does not cover, the number of captures whose condition is undecided. ``gaps`` are index
    files, or members of a ZipNum index, that could not be read. For files ``auto`` then uses another complete index.
    Else the captures of the gaps are missing from the result, as far as ``sources.max_gaps`` allows.

    Raises ``UserInputError`` when the crawl does not have the index ``via``, or when it would read more than
    ``max_bytes``; ``IndexIncomplete`` for gaps that are not allowed; ``DataFault`` and ``EnvironmentFault`` from
    reading the index.
    """
    sources = _with_condition_columns(sources, targets)
    with _open(crawl, subsets, sources, via) as search:
        locator, reason, gaps = _choose(search, targets)
        if max_bytes is not None and (price := weight(locator.price(crawl, subsets, targets))) > max_bytes:
            raise UserInputError(
                f"the lookup would read about {price / 1e6:,.0f} MB, more than the {max_bytes / 1e6:,.0f} MB allowed"
            )
        index_names: set[str] = set()
        noting_sink = None if sink is None else partial(_noting, sink, index_names)
        try:
            result = locator.locate(crawl, subsets, targets, noting_sink)
        except RangeFault as fault:
            locator, reason = _replace_locator(search, fault)
            result = locator.locate(crawl, subsets, targets, noting_sink)
        if result.gaps is not None:
            if not result.gaps.allowed(sources.max_gaps):
                raise index_incomplete([result.gaps])
            gaps = result.gaps
        for table in result.captures.values():
            index_names.update(pc.unique(table["located_by"]).to_pylist())
        result = replace(result, notes=(f"index: {reason}", *search.notes, *result.notes))
        if crawl == CRAWL_2012 and BTREE in index_names:
            result = _drop_other_segments(result, sources.transport)
    return replace(
        result,
        notes=(*result.notes, *_undecided_notes(result.captures)),
        index=locator.name,
        reason=reason,
        gaps=gaps,
        index_version=search.open_indexes[locator.name].version,
    )


def _with_condition_columns(sources: IndexSources, targets: Sequence[Target]) -> IndexSources:
    """Returns ``sources`` that also read the columns which the conditions of ``targets`` need."""
    if sources.columns is None:
        return sources
    needed = [column for target in targets if target.condition for column in target.condition.columns]
    read = [_READ_AS.get(column, column) for column in needed]
    return replace(sources, columns=tuple(dict.fromkeys((*sources.columns, *read))))


def _replace_locator(search: IndexSearch, fault: RangeFault) -> tuple[Locator, str]:
    """Returns ZipNum and the reason, if ``auto`` chose an index whose files the source sends only as a whole. Raises
    every other ``fault``."""
    if search.via != AUTO or fault.kind is not FaultKind.WHOLE_OBJECT or ZIPNUM not in search.open_indexes:
        raise fault
    reason = f"zipnum, since the source sends {fault.key} only as a whole ({fault.detail})"
    return search.open_indexes[ZIPNUM].open(), reason


def _drop_other_segments(result: LookupResult, transport: Transport) -> LookupResult:
    """Returns ``result`` without captures that only a tree names, in segments that the crawl of 2012 does not list."""
    segments, list_notes = _valid_segments(transport)
    counted = {slug: table.filter(counts_for_segments(table, segments)) for slug, table in result.captures.items()}
    outside = sum(table.num_rows - counted[slug].num_rows for slug, table in result.captures.items())
    notes = (*result.notes, *list_notes, *outside_notes(outside))
    return replace(result, captures=counted, notes=notes, segments=segments)


def _undecided_notes(captures: Mapping[str, pa.Table]) -> tuple[str, ...]:
    """Returns a note on captures whose condition the index cannot decide."""
    count = sum(pc.sum(pc.starts_with(table["condition_match"], OPEN)).as_py() or 0 for table in captures.values())
    if not count:
        return ()
    return (
        f"the index cannot decide whether {format_count(count, 'capture', 'meet')} the condition: their pages decide "
        "it when they are parsed",
    )


def price_lookup(
    crawl: str, subsets: Sequence[str], targets: Sequence[Target], sources: IndexSources, *, via: str = "auto"
) -> LookupEstimate:
    """Estimates the cost of ``look_up``; ``index`` and ``reason`` name the index. Raises as ``look_up``."""
    with _open(crawl, subsets, sources, via) as search:
        locator, reason, _ = _choose(search, targets)
        estimate = locator.price(crawl, subsets, targets)
    return replace(estimate, index=locator.name, reason=reason)


@contextmanager
def open_locators(
    crawl: str, subsets: Sequence[str], sources: IndexSources, via: str = "auto"
) -> Iterator[dict[str, Callable[[], Locator]]]:
    """Maps the name of each index of ``crawl`` to a function that opens its locator; closes all when the block ends.

    The columnar index is included if all of ``subsets`` were harvested. In the ARC years only the indexes that ``via``
    allows are searched for.
    """
    with _open(crawl, subsets, sources, via) as search:
        yield search.available


def _choose(search: IndexSearch, targets: Sequence[Target]) -> tuple[Locator, str, IndexGaps | None]:
    """Returns the locator to use, the reason in words, and the gaps that its answer will have."""
    available, missing_subsets = search.available, search.missing_subsets
    crawl, subsets, via = search.crawl, search.subsets, search.via
    if missing_subsets and (via == PARQUET or (via == AUTO and not available)):
        raise missing_harvest(crawl, missing_subsets)
    columnar = search.catalog if via in (AUTO, PARQUET) else None
    gaps = None if columnar is None else find_gaps(columnar, crawl, subsets)
    if gaps is None:
        locator, reason = choose(available, crawl, subsets, targets, via)
        unasked = (
            f" (parquet is not harvested for {' and '.join(missing_subsets)})"
            if missing_subsets and via == AUTO
            else ""
        )
        return locator, reason + unasked, None
    if via == AUTO and ZIPNUM in available:
        return available[ZIPNUM](), f"zipnum, which is complete, since {gaps.summary} could not be read", None
    if PARQUET not in available or not gaps.allowed(search.sources.max_gaps):
        raise index_incomplete([gaps])
    return available[PARQUET](), f"parquet, although {gaps.summary} could not be read", gaps


@contextmanager
def _open(crawl: str, subsets: Sequence[str], sources: IndexSources, via: str) -> Iterator[IndexSearch]:
    with ExitStack() as stack:
        stack.enter_context(_ranges_needed())
        search = IndexSearch(crawl, tuple(subsets), sources, via, stack)
        # the most detailed first: a later one may depend on those found
        for kind, find in ((PARQUET, find_columnar), (ZIPNUM, find_zipnum), (BTREE, find_btree)):
            if (opened := find(search)) is not None:
                search.open_indexes[kind] = opened
        if crawl in ARC_CRAWLS and {ZIPNUM, BTREE} <= search.open_indexes.keys():
            tree, zipnum = search.open_indexes[BTREE], search.open_indexes[ZIPNUM]
            search.open_indexes[UNION] = replace(zipnum, open=lambda: UnionLocator(tree.open(), zipnum.open()))
        yield search


@contextmanager
def _ranges_needed() -> Iterator[None]:
    """Turns the fault of an index file that comes whole into an error of the source."""
    try:
        yield
    except RangeFault as fault:
        if fault.kind is not FaultKind.WHOLE_OBJECT:
            raise
        raise whole_files(fault) from fault


def _noting(sink: CaptureSink, index_names: set[str], slug: str, rows: pa.Table) -> None:
    """Passes ``rows`` on to the sink, and notes the indexes that named them."""
    index_names.update(pc.unique(rows["located_by"]).to_pylist())
    sink(slug, rows)


def _valid_segments(transport: Transport) -> tuple[frozenset[str] | None, tuple[str, ...]]:
    """Returns the segments that the crawl of 2012 itself lists (others were never completed), and notes."""
    key = segments_key(CRAWL_2012)

    try:
        data = transport.read_all(key).data
    except RangeFault as fault:
        if fault.kind is not FaultKind.NOT_FOUND:
            raise
        return None, (f"the source has no {key}, the list of valid segments: captures of all segments are used",)
    faults: list[DataFault] = []
    segments = parse_valid_segments(data, key, faults=faults)
    refuse_faulty_list(faults, len(segments))
    return frozenset(map(str, segments)), describe_faulty_lines(faults, key)


def counts_for_segments(
    captures: pa.Table | pa.RecordBatch, segments: frozenset[str] | None
) -> pa.Array | pa.ChunkedArray:
    """Returns a mask of the ``captures`` that count: those that only a tree names must be in one of ``segments``."""
    if segments is None:
        return pa.array([True] * captures.num_rows, pa.bool_())
    is_not_tree = pc.not_equal(captures["located_by"], BTREE)
    return pc.or_(is_not_tree, pc.is_in(captures["warc_segment"], pa.array(sorted(segments), pa.string())))


def outside_notes(count: int) -> tuple[str, ...]:
    """Returns notes on so many captures of other segments."""
    return (
        (f"{format_count(count, 'capture', 'are')} left out: {segments_key(CRAWL_2012)} does not list the segments",)
        if count
        else ()
    )
