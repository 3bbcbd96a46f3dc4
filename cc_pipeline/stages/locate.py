"""Locating: from targets to captures, committed per crawl, with the price of their fetch."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

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
from cc_pipeline.keys import PLACE
from cc_pipeline.lake.digests import input_digest
from cc_pipeline.records.plan import check_budget, price_of
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
        captures = _with_target(found.captures, [slice_.target for slice_ in stale])
        for slice_ in stale:
            _gate(workspace, slice_, captures)
        made_from = {s: wanted[s] if found.gaps is None else _with_gaps(wanted[s]) for s in stale}
        commit_lookups(workspace, made_from, found)
        LOCATE.commit(workspace.lake, made_from, {"captures": captures})
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


def _with_target(found: Mapping[str, pa.Table], slugs: Sequence[str]) -> pa.Table:
    tables = []
    for slug in slugs:
        table = found[slug]
        tables.append(
            table.add_column(0, CAPTURES_SCHEMA.field("target"), pa.array([slug] * table.num_rows, pa.string()))
        )
    return pa.concat_tables(tables).select(CAPTURES_SCHEMA.names).cast(CAPTURES_SCHEMA)


def _gate(workspace: Workspace, slice_: Slice, captures: pa.Table) -> None:
    settings = workspace.settings
    check_budget(
        price_of(captures.filter(pc.equal(captures["target"], slice_.target))),
        max_bytes=settings.max_bytes,
        max_requests=settings.max_requests,
        what=f"{slice_.target} in {slice_.crawl}",
    )


def _figures(workspace: Workspace, slices: Sequence[Slice]) -> dict[Slice, Figures]:
    """Rows, and the price of fetching them all: so that a person can decide before the fetch."""
    if not slices:
        return {}
    crawl = slices[0].crawl
    where = {"crawl": crawl, "target": [slice_.target for slice_ in slices]}
    captures = workspace.lake.read("captures", where, ["target", *PLACE]).sort_by("target")
    places = dict.fromkeys(slices, (0, 0))
    start = 0
    # in the order of the table, which is sorted: each target's rows lie together
    for found in pc.value_counts(captures["target"]).to_pylist():
        places[Slice(crawl, found["values"])] = (start, found["counts"])
        start += found["counts"]
    rows = lookups_of(workspace, slices)
    return {
        slice_: _priced(captures.slice(*place))
        | ({"index complete": index_complete(rows[slice_])} if slice_ in rows else {})
        for slice_, place in places.items()
    }


def _priced(captures: pa.Table) -> Figures:
    price = price_of(captures)
    return {
        "rows:captures": captures.num_rows,
        "record bytes": price.record_bytes,
        "fetch bytes": price.bytes,
        "fetch requests": price.requests,
    }
