"""How each slice was located: which index answered, and whether files of it could not be read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.parts import whole_slug
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.extraction.slice import LOCATE, Slice, note_slices, slices_of, targets_by_crawl
from cc_pipeline.extraction.standing import Lookup, stand
from cc_pipeline.index.gaps import IndexGaps
from cc_pipeline.records.plan import price_of
from cc_pipeline.stages.indexing.catalog import catalog_gaps
from cc_pipeline.stages.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Found:
    """What a look-up gave of a slice: its ``captures``, ``by`` which index (of which version), for which version of its
    definition, the captures of each member of a set, and the holes it was located over."""

    captures: pa.Table
    by: str
    index: str
    definition: str
    members: Mapping[str, int] | None
    gaps: IndexGaps | None


def commit_lookups(workspace: Workspace, made_from: Mapping[Slice, str], found: Mapping[Slice, Found]) -> None:
    """Writes down how these slices were looked up, before their captures are committed with the digests
    ``made_from``."""
    now = datetime.now(UTC)
    rows = {
        slice_: {**_row(slice_, one), "made_from": made_from[slice_], "looked_up_at": now}
        for slice_, one in found.items()
    }
    note_slices(workspace.lake, "lookups", rows, but="looked_up_at")


def _row(slice_: Slice, found: Found) -> dict[str, object]:
    gaps, price = found.gaps, price_of(found.captures)
    lacking = () if gaps is None else [row for row in gaps.by_subset if row[0] == slice_.subset]
    return {
        "located_by": found.by,
        "subsets": [slice_.subset],
        "complete": gaps is None,
        "index_files": None if gaps is None else sum(expected for _, _, expected in lacking),
        "unread_files": sum(unread for _, unread, _ in lacking),
        "unread": [] if gaps is None else [path for path, _ in gaps.files],
        "captures": found.captures.num_rows,
        "members": None if found.members is None else [{"member": m, "captures": n} for m, n in found.members.items()],
        "definition": found.definition,
        "index_version": found.index,
        "record_bytes": price.record_bytes,
        "fetch_bytes": price.bytes,
        "fetch_requests": price.requests,
    }


def members_located(workspace: Workspace, slices: Collection[Slice]) -> dict[Slice, list[str]]:
    """The definitions of the members that slices of sets were located with, of those whose note counts."""
    found: dict[Slice, list[str]] = {}
    here = LOCATE.made_from(workspace.lake, slices)
    for crawl, targets in targets_by_crawl(slices).items():
        where = {"crawl": crawl, "target": targets}
        rows = workspace.lake.read("lookups", where, ["target", "made_from", "members"])
        for row in rows.filter(pc.is_valid(rows["members"])).to_pylist():
            if row["made_from"] == here[Slice(crawl, row["target"])]:
                found[Slice(crawl, row["target"])] = [one["member"] for one in row["members"]]
    return found


def incomplete_slices(workspace: Workspace) -> dict[Slice, Lookup]:
    """Every slice that was located over holes in its index and has not been located again since."""
    rows = workspace.lake.read("lookups", columns=["crawl", "target", "complete"])
    named = [Slice(row["crawl"], row["target"]) for row in rows.filter(pc.invert(rows["complete"])).to_pylist()]
    stands = {slice_: one.lookup for slice_, one in stand(workspace, named, (LOCATE,)).items()}
    return {slice_: found for slice_, found in stands.items() if found is not None and not found.complete}


def index_complete(found: Lookup) -> str:
    """Whether the index of a look-up was whole, in words."""
    return "yes" if found.complete else f"no, {found.unread_files:,} of {found.index_files or 0:,} files unread"


def gap_notes(workspace: Workspace, crawls: Sequence[str], targets: Sequence[Target]) -> list[str]:
    """A sentence for each of ``crawls`` whose index has holes: what that means for ``targets``, located before."""
    notes = []
    parts = workspace.rows_of([target.slug for target in targets])
    for gaps in catalog_gaps(workspace, crawls):
        slices = slices_of(gaps.crawl, [part for own in parts.values() for part in own])
        stands = stand(workspace, slices, (LOCATE,))
        lacking = [s for s, one in stands.items() if one.located and not (one.lookup and one.lookup.complete)]
        unsure = len({whole_slug(slice_.target) for slice_ in lacking})
        means = "another index was asked, which is whole"
        if unsure:
            means = (
                f"captures in them are missing from {unsure:,} of {len(parts):,} targets; "
                "run the command again to ask for them again"
            )
        notes.append(f"{gaps.what} could not be read: {means} ({gaps.named})")
    return notes
