"""Locating: from targets to captures, committed per crawl, with the price of their fetch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline import progress
from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
from cc_pipeline.commoncrawl.filters import Filters
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.index.btree.files import ABOUT, index_folder
from cc_pipeline.index.locator import LookupResult
from cc_pipeline.index.lookup import IndexSources, look_up
from cc_pipeline.keys import CAPTURE_ORDER, PLACE
from cc_pipeline.lake.digests import input_digest
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.records.plan import FetchPrice, check_budget, price_of
from cc_pipeline.stages.lookups import catalog_gaps, commit_lookups, index_complete, lookups_of
from cc_pipeline.stages.slice import HARVEST, LOCATE, Figures, Slice, StageReport, slices_of
from cc_pipeline.stages.tables import CAPTURES_SCHEMA
from cc_pipeline.stages.workspace import Workspace


def index_sources(workspace: Workspace) -> IndexSources:
    """The indexes of a workspace."""
    settings = workspace.settings
    return IndexSources(
        workspace.transport,
        catalog=settings.catalog_path,
        url_indexes=settings.home / "url-index",
        footers=settings.footers_path,
        cache=settings.cache_path / "page-indexes",
        max_gaps=settings.max_index_gaps,
    )


def captures_of(
    workspace: Workspace,
    crawl: str,
    targets: Sequence[Target],
    *,
    via: str | None = None,
    filters: Filters | None = None,
) -> LookupResult:
    """The captures of ``targets`` in ``crawl`` and the settings' subsets, complete or an error."""
    settings = workspace.settings
    sources = index_sources(workspace)
    return look_up(crawl, settings.subsets, targets, sources, via=via or settings.via, filters=filters)


def index_version(workspace: Workspace, crawl: str) -> str:
    """A digest of the indexes that a look-up in ``crawl`` would use. The same digest means the same answers.

    Raises ``EnvironmentFault`` for a crawl with a columnar index that has not been harvested.
    """
    built = index_folder(workspace.settings.home / "url-index", crawl) / ABOUT
    parts: dict[str, object] = {"built": built.read_text("utf-8") if built.exists() else None}
    parts["row_groups"] = workspace.lake.digest("row_groups", HARVEST.digest_name(Slice(crawl)))
    if crawl not in ARC_CRAWLS and parts["row_groups"] is None:
        raise EnvironmentFault(
            f"the index of {crawl} has not been harvested",
            "First materialize row_groups of the crawl (the harvest_crawl job).",
        )
    return input_digest(parts)


#: Captures that are written at a time.
_ROWS_AT_ONCE = 20_000

#: Raised when the same inputs would give other rows.
VERSION = "1"


def locate_captures(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> StageReport:
    """Finds the captures of ``slugs`` in ``crawl``; targets whose inputs are unchanged stay.

    Raises ``UserInputError`` for keys that have no definition and cannot be given one, and for a fetch that would cost
    more than the settings allow; ``IndexIncomplete`` when files of the index were not read and no other index has the
    crawl; ``EnvironmentFault`` when the index cannot be read.
    """
    started = time.monotonic()
    targets = workspace.targets(slugs)
    wanted = _digests(workspace, crawl, targets)
    stale = _stale(workspace, wanted)
    requests = size = 0
    notes: tuple[str, ...] = ()
    if stale:
        progress.report("locate", 0, len(stale), crawl)
        found = captures_of(workspace, crawl, [targets[slice_.target] for slice_ in stale])
        requests, size, notes = found.requests, found.bytes, found.notes
        for slice_ in stale:
            _gate(workspace, slice_, found.captures[slice_.target])
        made_from = {s: wanted[s] if found.gaps is None else _with_gaps(wanted[s]) for s in stale}
        commit_lookups(workspace, made_from, found)
        LOCATE.commit(workspace.lake, made_from, {"captures": partial(_rows, found.captures)})
        progress.report("locate", len(stale), len(stale), crawl)
    figures = _figures(workspace, slices_of(crawl, slugs))
    return LOCATE.report(figures, stale, started, bytes=size, requests=requests, notes=notes)


def located_otherwise(workspace: Workspace, crawl: str, targets: Sequence[Target]) -> set[str]:
    """Slugs of ``targets`` that have to be located (again) in ``crawl``: they never were, or the members of a set or
    the index have changed since."""
    wanted = _digests(workspace, crawl, {target.slug: target for target in targets})
    here = LOCATE.made_from(workspace.lake, wanted.keys())
    # what lacks index files stays until they can be read: asking again would find the same holes
    return {s.target for s, digest in wanted.items() if here[s] not in (digest, _with_gaps(digest))}


def _stale(workspace: Workspace, wanted: Mapping[Slice, str]) -> list[Slice]:
    """Slices to look up: what was located over holes counts only as long as the settings allow these holes."""
    here = LOCATE.made_from(workspace.lake, wanted.keys())
    stale = [slice_ for slice_, digest in wanted.items() if here[slice_] != digest]
    partial = {slice_ for slice_ in stale if here[slice_] == _with_gaps(wanted[slice_])}
    if not partial:
        return stale
    gaps = catalog_gaps(workspace, sorted({slice_.crawl for slice_ in partial}))
    if not all(one.allowed(workspace.settings.max_index_gaps) for one in gaps):
        return stale
    return [slice_ for slice_ in stale if slice_ not in partial]


def _with_gaps(digest: str) -> str:
    """The digest of a slice that was located over holes in its index: never that of the whole answer."""
    return input_digest({"gaps": digest})


def _digests(workspace: Workspace, crawl: str, targets: Mapping[str, Target]) -> dict[Slice, str]:
    settings = workspace.settings
    shared = {
        "version": VERSION,
        "crawl": crawl,
        "index": index_version(workspace, crawl),
        "subsets": sorted(settings.subsets),
        "via": settings.via,
    }
    return {Slice(crawl, slug): LOCATE.digest(**shared, target=target.version) for slug, target in targets.items()}


def _rows(found: Mapping[str, pa.Table]) -> Iterator[pa.RecordBatch]:
    """Rows of the table ``captures`` in its order; no second table of them is made."""
    column = CAPTURES_SCHEMA.get_field_index("target")
    waiting: list[pa.Table] = []
    for slug in sorted(found):
        captures = found[slug]
        order = pc.sort_indices(captures, [(name, "ascending") for name in CAPTURE_ORDER[1:]])
        for start in range(0, captures.num_rows, _ROWS_AT_ONCE):
            part = captures.take(order.slice(start, _ROWS_AT_ONCE))
            named = part.add_column(column, CAPTURES_SCHEMA.field(column), pa.repeat(slug, part.num_rows))
            waiting.append(named.select(CAPTURES_SCHEMA.names).cast(CAPTURES_SCHEMA))
            if sum(one.num_rows for one in waiting) >= _ROWS_AT_ONCE:
                yield from pa.concat_tables(waiting).combine_chunks().to_batches()
                waiting = []
    if waiting:
        yield from pa.concat_tables(waiting).combine_chunks().to_batches()


def _gate(workspace: Workspace, slice_: Slice, captures: pa.Table) -> None:
    settings = workspace.settings
    check_budget(
        price_of(captures),
        max_bytes=settings.max_bytes,
        max_requests=settings.max_requests,
        what=f"{slice_.target} in {slice_.crawl}",
    )


def _figures(workspace: Workspace, slices: Sequence[Slice]) -> dict[Slice, Figures]:
    """Rows, and the price of fetching them all: so that a person can decide before the fetch."""
    if not slices:
        return {}
    crawl = slices[0].crawl
    targets = [slice_.target for slice_ in slices]
    places = _places(workspace, crawl, targets)
    rows = lookups_of(workspace, slices)
    return {
        slice_: _priced(places.get(slice_.target))
        | ({"index complete": index_complete(rows[slice_])} if slice_ in rows else {})
        for slice_ in dict.fromkeys(slices)
    }


def _places(workspace: Workspace, crawl: str, targets: Sequence[str]) -> dict[str, pa.Table]:
    """The places of each target's captures, some twenty bytes each: names of files are there once."""
    names = pa.dictionary(pa.int32(), pa.string())
    parts = []
    for batch in stream_rows(workspace.lake, "captures", {"crawl": crawl, "target": targets}, ["target", *PLACE]):
        own = pa.Table.from_batches([batch])
        for column in ("target", PLACE[0]):
            index = own.schema.get_field_index(column)
            own = own.set_column(index, column, own.column(column).cast(names))
        parts.append(own)
    if not parts:
        return {}
    rows = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    found = rows.column("target").combine_chunks()
    order = np.argsort(found.indices.to_numpy(), kind="stable")
    rows = rows.take(pa.array(order))
    ends = np.cumsum(np.bincount(found.indices.to_numpy(), minlength=len(found.dictionary)))
    starts = [0, *ends[:-1].tolist()]
    return {
        target: rows.slice(start, end - start)
        for target, start, end in zip(found.dictionary.to_pylist(), starts, ends.tolist(), strict=True)
    }


def _priced(captures: pa.Table | None) -> Figures:
    price = FetchPrice(0, 0, 0, 0, 0) if captures is None else price_of(captures)
    return {
        "rows:captures": 0 if captures is None else captures.num_rows,
        "record bytes": price.record_bytes,
        "fetch bytes": price.bytes,
        "fetch requests": price.requests,
    }
