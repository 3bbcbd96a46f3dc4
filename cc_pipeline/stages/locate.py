"""Locating: from targets to captures, committed per crawl, with the price of their fetch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline import progress
from cc_pipeline.commoncrawl.crawls import ARC_CRAWLS
from cc_pipeline.commoncrawl.filters import Filters
from cc_pipeline.commoncrawl.parts import whole_slug
from cc_pipeline.commoncrawl.target import Target, version_of
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.index.btree.files import ABOUT, index_folder
from cc_pipeline.index.locator import LookupResult
from cc_pipeline.index.lookup import IndexSources, look_up
from cc_pipeline.keys import CAPTURE_ORDER
from cc_pipeline.lake.digests import input_digest
from cc_pipeline.records.plan import FetchPrice, price_of
from cc_pipeline.stages.fetch import fetched_otherwise
from cc_pipeline.stages.gate import places_of_targets, refuse_dear
from cc_pipeline.stages.indexing.catalog import follow_catalog
from cc_pipeline.stages.lookups import catalog_gaps, commit_lookups, index_complete, lookups_of
from cc_pipeline.stages.sets.carried import in_commits, in_passes, what_is_known
from cc_pipeline.stages.sets.set_parts import is_divided, retire_others, summed
from cc_pipeline.stages.slice import HARVEST, LOCATE, Figures, Slice, StageReport, slices_of, written
from cc_pipeline.stages.tables import CAPTURES_SCHEMA
from cc_pipeline.stages.targets import definitions
from cc_pipeline.stages.workspace import Workspace


def index_sources(workspace: Workspace, crawl: str) -> IndexSources:
    """The indexes of ``crawl`` in a workspace."""
    settings = workspace.settings
    return IndexSources(
        workspace.index_place(crawl),
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
    sources = index_sources(workspace, crawl)
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

    Of a set whose members changed, those that are new are looked up, and a part of it without a change stays.
    Raises ``UserInputError`` for keys that have no definition and cannot be given one, and, once the captures are
    committed, for a fetch that would cost more than the settings allow; ``IndexIncomplete`` when files of the index
    were not read and no other index has the crawl; ``EnvironmentFault`` when the index cannot be read.
    """
    started = time.monotonic()
    parts = workspace.parts(slugs)
    wanted, stale = to_locate(workspace, crawl, parts)
    requests = size = done = rows_written = 0
    notes: dict[str, None] = {}
    if stale:
        follow_catalog(workspace, crawl)
    for some in in_passes(workspace, stale):
        progress.report("locate", done, len(stale), crawl)
        known = what_is_known(workspace, some, lambda version: _digests(workspace, crawl, version))
        found = captures_of(workspace, crawl, [one.asked for one in known.values() if one.asked is not None])
        requests, size, notes = requests + found.requests, size + found.bytes, notes | dict.fromkeys(found.notes)
        made_from = {s: wanted[s] if found.gaps is None else _with_gaps(wanted[s]) for s in some}
        captures = {slice_: one.with_new(found.captures) for slice_, one in known.items()}
        for together in in_commits(made_from):
            mine = {slice_: captures[slice_] for slice_ in together}
            commit_lookups(workspace, together, found, {s: known[s].counted(table) for s, table in mine.items()}, mine)
            rows_written += LOCATE.commit(workspace.lake, together, {"captures": partial(_rows, mine)})
        done += len(some)
    if stale:
        progress.report("locate", done, len(stale), crawl)
    retire_others(workspace, LOCATE, crawl, parts, "lookups")
    every = [part for own in parts.values() for part in own]
    refuse_dear(workspace, crawl, fetched_otherwise(workspace, crawl, every))
    figures = _figures(workspace, crawl, parts, set(stale))
    return StageReport(
        LOCATE.label,
        rows=sum(int(own["rows:captures"]) for own in figures.values()),
        written=rows_written,
        bytes=size,
        requests=requests,
        seconds=time.monotonic() - started,
        fresh_slices=len(stale),
        reused_slices=len(wanted) - len(stale),
        notes=tuple(notes),
        per_target=figures,
    )


def to_locate(
    workspace: Workspace, crawl: str, parts: Mapping[str, Sequence[str]]
) -> tuple[dict[Slice, str], list[Slice]]:
    """The digest that each slice of ``parts`` (slices' targets by slug) would get, and those that are to be looked up.

    Keys that nobody defined are defined on the way. Raises as :func:`locate_captures` does before it looks anything up.
    """
    wanted = _digests(workspace, crawl, _versions(workspace, parts))
    return wanted, _stale(workspace, wanted)


def located_otherwise(workspace: Workspace, crawl: str, targets: Sequence[Target]) -> set[str]:
    """Slugs of ``targets`` that have to be located (again) in ``crawl``: they never were, or the members of a set or
    the index have changed since."""
    parts = workspace.parts([target.slug for target in targets])
    single = {target.slug: target.version for target in targets if not is_divided(parts, target.slug)}
    divided = {slug: own for slug, own in parts.items() if slug not in single}
    wanted = _digests(workspace, crawl, single | _versions(workspace, divided))
    here = LOCATE.made_from(workspace.lake, wanted.keys())
    # what lacks index files stays until they can be read: asking again would find the same holes
    return {whole_slug(s.target) for s, digest in wanted.items() if here[s] not in (digest, _with_gaps(digest))}


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


def _versions(workspace: Workspace, parts: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The version of each slice's definition; keys that nobody defined are defined on the way."""
    single = [slug for slug in parts if not is_divided(parts, slug)]
    known = definitions(
        workspace.lake, [part for slug, own in parts.items() if is_divided(parts, slug) for part in own]
    )
    versions = {slug: target.version for slug, target in workspace.targets(single).items()}
    return versions | {slug: version_of(text) for slug, text in known.items()}


def _digests(workspace: Workspace, crawl: str, versions: Mapping[str, str]) -> dict[Slice, str]:
    settings = workspace.settings
    shared = {
        "version": VERSION,
        "crawl": crawl,
        "index": index_version(workspace, crawl),
        "subsets": sorted(settings.subsets),
        "via": settings.via,
    }
    return {Slice(crawl, slug): LOCATE.digest(**shared, target=version) for slug, version in versions.items()}


def _rows(found: Mapping[Slice, pa.Table]) -> Iterator[pa.RecordBatch]:
    """Rows of the table ``captures`` in its order; no second table of them is made."""
    column = CAPTURES_SCHEMA.get_field_index("target")
    waiting: list[pa.Table] = []
    for slice_ in sorted(found):
        captures = found[slice_]
        order = pc.sort_indices(captures, [(name, "ascending") for name in CAPTURE_ORDER[1:]])
        for start in range(0, captures.num_rows, _ROWS_AT_ONCE):
            part = captures.take(order.slice(start, _ROWS_AT_ONCE))
            named = part.add_column(column, CAPTURES_SCHEMA.field(column), pa.repeat(slice_.target, part.num_rows))
            waiting.append(named.select(CAPTURES_SCHEMA.names).cast(CAPTURES_SCHEMA))
            if sum(one.num_rows for one in waiting) >= _ROWS_AT_ONCE:
                yield from pa.concat_tables(waiting).combine_chunks().to_batches()
                waiting = []
    if waiting:
        yield from pa.concat_tables(waiting).combine_chunks().to_batches()


def _figures(
    workspace: Workspace, crawl: str, parts: Mapping[str, Sequence[str]], made: Set[Slice]
) -> dict[str, Figures]:
    """Rows, and the price of fetching them all: so that a person can decide before the fetch. Of a divided set all rows
    count as written where those of any part were."""
    every = [part for own in parts.values() for part in own]
    places = places_of_targets(workspace, crawl, every)
    rows = lookups_of(workspace, slices_of(crawl, every))
    versions = LOCATE.versions(workspace.lake, slices_of(crawl, every))
    figures: dict[str, Figures] = {}
    for slug, own in parts.items():
        told = [index_complete(rows[Slice(crawl, part)]) for part in own if Slice(crawl, part) in rows]
        price = price_of(places[slug]) if slug in places else FetchPrice(0, 0, 0, 0, 0)
        figures[slug] = {
            "rows:captures": places[slug].num_rows if slug in places else 0,
            "record bytes": price.record_bytes,
            "fetch bytes": price.bytes,
            "fetch requests": price.requests,
            **summed([versions[Slice(crawl, part)] for part in own]),
        }
        figures[slug] |= written(figures[slug], any(slice_ in made for slice_ in slices_of(crawl, own)))
        if told:
            figures[slug]["index complete"] = max(told, key=len)
    return figures
