"""Locating: from targets to captures and the plan of their fetch, committed together per crawl."""

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
from cc_pipeline.index.locate import IndexSources, locate, price
from cc_pipeline.index.locator import LookupPrice, LookupResult
from cc_pipeline.lake.digests import input_digest
from cc_pipeline.records.plan import check_budget, plan_ranges, plan_table, price_ranges
from cc_pipeline.stages.report import StageReport
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
    )


def look_up(
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
    return locate(crawl, settings.subsets, targets, sources, via=via or settings.via, filters=filters)


def price_up(workspace: Workspace, crawl: str, targets: Sequence[Target], *, via: str | None = None) -> LookupPrice:
    """What :func:`look_up` would read."""
    settings = workspace.settings
    return price(crawl, settings.subsets, targets, index_sources(workspace), via=via or settings.via)


def index_version(workspace: Workspace, crawl: str) -> str:
    """A digest of the indexes that would answer for ``crawl``; the same digest means the same answers.

    Raises ``EnvironmentFault`` for a crawl with a columnar index that has not been harvested.
    """
    built = index_folder(workspace.settings.home / "url-index", crawl) / ABOUT
    parts: dict[str, object] = {"built": built.read_text("utf-8") if built.exists() else None}
    parts["row_groups"] = workspace.lake.digest("row_groups", row_groups_digest_name(crawl))
    if crawl not in ARC_CRAWLS and parts["row_groups"] is None:
        raise EnvironmentFault(
            f"the index of {crawl} has not been harvested",
            "Materialize row_groups for it (the harvest_crawl job) first.",
        )
    return input_digest(parts)


def row_groups_digest_name(crawl: str) -> str:
    """The name under which the digest of a crawl's row groups is committed."""
    return f"row_groups:{crawl}"


#: Raised when the same inputs would give other rows.
VERSION = "1"


def locate_captures(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> StageReport:
    """Finds the captures of ``slugs`` in ``crawl`` and plans their fetch; targets whose inputs are unchanged stay.

    Raises ``UserInputError`` for keys nobody defined and for plans above the budget gate, ``EnvironmentFault``
    when the index cannot be read.
    """
    started = time.monotonic()
    targets = workspace.targets(slugs)
    wanted = _digests(workspace, crawl, targets)
    here = located(workspace, crawl, slugs)
    stale = [slug for slug in slugs if here[_name(crawl, slug)] != wanted[slug]]
    requests = size = 0
    notes: tuple[str, ...] = ()
    if stale:
        progress.report("locate", 0, len(stale), crawl)
        found = look_up(workspace, crawl, [targets[slug] for slug in stale])
        requests, size, notes = found.requests, found.bytes, found.notes
        captures = _with_target(found.captures, stale)
        for slug in stale:
            _gate(workspace, crawl, slug, captures)
        slices = [{"crawl": crawl, "target": slug} for slug in stale]
        digests = {_name(crawl, slug): wanted[slug] for slug in stale}
        # the plan goes last: its digest is the one that says both are here
        if not workspace.lake.holds("captures", digests):
            workspace.lake.commit("captures", captures, slices, digests)
        workspace.lake.commit("fetch_plan", plan_table(captures), slices, digests)
        progress.report("locate", len(stale), len(stale), crawl)
    per_target = _per_target(workspace, crawl, slugs)
    rows = sum(int(values["rows:captures"]) for values in per_target.values())
    written = sum(int(per_target[slug]["rows:captures"]) for slug in stale)
    return StageReport(
        "locate",
        rows=rows,
        written=written,
        bytes=size,
        requests=requests,
        seconds=time.monotonic() - started,
        fresh_slices=len(stale),
        reused_slices=len(slugs) - len(stale),
        notes=notes,
        per_target=per_target,
    )


def located_otherwise(workspace: Workspace, crawl: str, targets: Sequence[Target]) -> set[str]:
    """Slugs of ``targets`` whose captures in ``crawl`` are not from the inputs there are now: a set's members
    changed, or the index did, or they were never located."""
    wanted = _digests(workspace, crawl, {target.slug: target for target in targets})
    here = located(workspace, crawl, list(wanted))
    return {slug for slug, digest in wanted.items() if here[_name(crawl, slug)] != digest}


def located(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> dict[str, str | None]:
    """By digest name, what the captures and the plan of each slug were made from; ``None`` where not from the same.

    The plan alone does not tell: a run with other settings may have been killed after it had replaced the captures.
    """
    return workspace.lake.agreed(("captures", "fetch_plan"), [_name(crawl, slug) for slug in slugs])


def locate_digest_name(crawl: str, slug: str) -> str:
    """The name under which a slice's digest is committed."""
    return _name(crawl, slug)


def _name(crawl: str, slug: str) -> str:
    return f"locate:{crawl}:{slug}"


def _digests(workspace: Workspace, crawl: str, targets: dict[str, Target]) -> dict[str, str]:
    settings = workspace.settings
    shared = {
        "stage": "locate",
        "version": VERSION,
        "crawl": crawl,
        "index": index_version(workspace, crawl),
        "subsets": sorted(settings.subsets),
        "via": settings.via,
    }
    return {slug: input_digest(shared | {"target": target.version}) for slug, target in targets.items()}


def _with_target(found: Mapping[str, pa.Table], slugs: Sequence[str]) -> pa.Table:
    tables = []
    for slug in slugs:
        table = found[slug]
        tables.append(
            table.add_column(0, CAPTURES_SCHEMA.field("target"), pa.array([slug] * table.num_rows, pa.string()))
        )
    return pa.concat_tables(tables).select(CAPTURES_SCHEMA.names).cast(CAPTURES_SCHEMA)


def _gate(workspace: Workspace, crawl: str, slug: str, captures: pa.Table) -> None:
    settings = workspace.settings
    own = captures.filter(pc.equal(captures["target"], slug))
    check_budget(
        price_ranges(plan_ranges(own), own),
        max_bytes=settings.max_bytes,
        max_requests=settings.max_requests,
        what=f"{slug} in {crawl}",
    )


def _per_target(workspace: Workspace, crawl: str, slugs: Sequence[str]) -> dict[str, dict[str, int | float | str]]:
    where = {"crawl": crawl, "target": list(slugs)}
    captures = workspace.lake.read("captures", where, ["target", "warc_record_length"])
    plan = workspace.lake.read("fetch_plan", where, ["target", "range_length"])
    figures: dict[str, dict[str, int | float | str]] = {
        slug: {"rows:captures": 0, "rows:fetch_plan": 0, "record bytes": 0, "planned bytes": 0} for slug in slugs
    }
    for row in captures.group_by("target").aggregate([("warc_record_length", "sum"), ([], "count_all")]).to_pylist():
        figures[row["target"]] |= {
            "rows:captures": row["count_all"],
            "record bytes": row["warc_record_length_sum"] or 0,
        }
    for row in plan.group_by("target").aggregate([("range_length", "sum"), ([], "count_all")]).to_pylist():
        figures[row["target"]] |= {"rows:fetch_plan": row["count_all"], "planned bytes": row["range_length_sum"] or 0}
    return figures
