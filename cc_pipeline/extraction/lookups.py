"""How each partition was located: which index answered, and whether files of it could not be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.parts import whole_slug
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.extraction.slice import LOCATE, Slice, note_slices, slices_of
from cc_pipeline.index.catalog.catalog import open_catalog
from cc_pipeline.index.catalog.contents import catalog_exists
from cc_pipeline.index.gaps import IndexGaps, find_gaps
from cc_pipeline.index.locator import LookupResult
from cc_pipeline.stages.workspace import Workspace

#: Columns that say whether a look-up was complete.
_VERDICT: Final = ["crawl", "target", "located_by", "complete", "index_files", "unread_files", "made_from"]


def catalog_gaps(workspace: Workspace, crawls: Sequence[str]) -> list[IndexGaps]:
    """The holes in the index of each of ``crawls``, in the settings' subsets, as the catalog knows them."""
    settings = workspace.settings
    if not catalog_exists(settings.catalog_path):
        return []
    with open_catalog(settings.catalog_path) as catalog:
        found = [find_gaps(catalog, crawl, settings.subsets) for crawl in crawls]
    return [gaps for gaps in found if gaps is not None]


def commit_lookups(
    workspace: Workspace,
    made_from: Mapping[Slice, str],
    found: LookupResult,
    members: Mapping[Slice, Mapping[str, int] | None],
    captures: Mapping[Slice, pa.Table],
) -> None:
    """Writes down how these slices were looked up, before their captures are committed with the same digests.

    ``members`` are those of sets, by definition, with the captures of each.
    """
    now = datetime.now(UTC)
    gaps = found.gaps
    row = {
        "located_by": found.index or "",
        "subsets": sorted(workspace.settings.subsets),
        "complete": gaps is None,
        "index_files": None if gaps is None else gaps.expected,
        "unread_files": 0 if gaps is None else gaps.unread,
        "unread": [] if gaps is None else [path for path, _ in gaps.files],
        "looked_up_at": now,
    }
    rows = {}
    for slice_, digest in made_from.items():
        rows[slice_] = {**row, "captures": captures[slice_].num_rows, "made_from": digest}
        counted = members[slice_]
        if counted is not None:
            rows[slice_]["members"] = [{"member": name, "captures": count} for name, count in counted.items()]
    note_slices(workspace.lake, "lookups", rows, but="looked_up_at")


def members_located(workspace: Workspace, slices: Sequence[Slice]) -> dict[Slice, tuple[str, list[str]]]:
    """Of slices of sets that were located whole: what their captures were made from, and the members' definitions."""
    if not slices:
        return {}
    where = {"crawl": list({one.crawl for one in slices}), "target": [one.target for one in slices]}
    rows = workspace.lake.read("lookups", where, ["crawl", "target", "complete", "made_from", "members"])
    rows = rows.filter(pc.and_(rows["complete"], pc.is_valid(rows["members"])))
    return {
        slice_: (row["made_from"], [one["member"] for one in row["members"]])
        for slice_, row in _counting(workspace, rows).items()
    }


def lookups_of(workspace: Workspace, slices: Sequence[Slice]) -> dict[Slice, Mapping[str, Any]]:
    """The row of each slice whose captures are those of that look-up; slices located by earlier versions have none."""
    if not slices:
        return {}
    where = {"crawl": list({one.crawl for one in slices}), "target": [one.target for one in slices]}
    return _counting(workspace, workspace.lake.read("lookups", where, _VERDICT))


def incomplete_slices(workspace: Workspace) -> dict[Slice, Mapping[str, Any]]:
    """Every slice that was located over holes in its index and has not been located again since."""
    rows = workspace.lake.read("lookups", columns=_VERDICT)
    return _counting(workspace, rows.filter(pc.invert(rows["complete"])))


def index_complete(row: Mapping[str, Any]) -> str:
    """Whether the index of a look-up was whole, in words."""
    if row["complete"]:
        return "yes"
    return f"no, {row['unread_files']:,} of {row['index_files']:,} files unread"


def gap_notes(workspace: Workspace, crawls: Sequence[str], targets: Sequence[Target]) -> list[str]:
    """A sentence for each of ``crawls`` whose index has holes: what that means for ``targets``, located before."""
    notes = []
    parts = workspace.parts([target.slug for target in targets])
    for gaps in catalog_gaps(workspace, crawls):
        slices = slices_of(gaps.crawl, [part for own in parts.values() for part in own])
        rows = lookups_of(workspace, slices)
        lacking = [slice_ for slice_ in slices if slice_ not in rows or not rows[slice_]["complete"]]
        unsure = len({whole_slug(slice_.target) for slice_ in lacking})
        means = "another index was asked, which is whole"
        if unsure:
            means = (
                f"captures in them are missing from {unsure:,} of {len(parts):,} targets; "
                "run the command again to ask for them again"
            )
        notes.append(f"{gaps.what} could not be read: {means} ({gaps.named})")
    return notes


def _counting(workspace: Workspace, table: pa.Table) -> dict[Slice, Mapping[str, Any]]:
    """The rows that captures of now were made from: a run killed between two commits leaves others."""
    rows = {Slice(row["crawl"], row["target"]): row for row in table.to_pylist()}
    here = LOCATE.made_from(workspace.lake, rows.keys())
    return {slice_: row for slice_, row in rows.items() if here[slice_] == row["made_from"]}
