"""Notes on lookups, so that nothing is looked up twice: how each slice was located, over which gaps of the index, and
which captures are carried over, so that only new members of a set are asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.matching import MemberIndex
from cc_pipeline.commoncrawl.slice_slugs import SEPARATOR, part_from, whole_slug
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.extraction.capture_buffer import CaptureBuffer, CaptureTotals, SliceLookup, read_urls
from cc_pipeline.extraction.slice_state import Lookup, parse_lookup, read_slice_states
from cc_pipeline.grouping import group_within
from cc_pipeline.harvesting.catalog import catalog_gaps
from cc_pipeline.index.gaps import IndexGaps
from cc_pipeline.index.locator import NAMED_CAPTURES
from cc_pipeline.lake.slice import LOCATE, Slice, slices_of
from cc_pipeline.lake.slices import read_notes, read_slice_rows
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.lake.target_definitions import read_definitions
from cc_pipeline.workspace.workspace import Workspace

#: Members that one lookup asks for, and slices that one commit writes: what a killed run loses at most.
_MEMBERS_AT_ONCE: Final = 16_384
_SLICES_AT_ONCE: Final = 256


@dataclass(frozen=True, slots=True)
class LookupSummary:
    """The result of a slice's lookup: the index (``located_by``, with its version), the version of the slice's
    definition, the gaps it was located over, and how its rows are read."""

    located_by: str
    index_version: str
    definition: str
    gaps: IndexGaps | None
    slice_lookup: SliceLookup = field(default_factory=SliceLookup)


def build_note(slice_: Slice, summary: LookupSummary, totals: CaptureTotals) -> dict[str, object]:
    """The note of a slice's lookup with the totals of its captures; see the columns of ``lookups``."""
    gaps, price = summary.gaps, totals.price
    subset_gaps = () if gaps is None else [row for row in gaps.by_subset if row[0] == slice_.subset]
    return {
        "located_by": summary.located_by,
        "subsets": [slice_.subset],
        "complete": gaps is None,
        "index_files": None if gaps is None else sum(expected for _, _, expected in subset_gaps),
        "unread_files": sum(unread for _, unread, _ in subset_gaps),
        "captures": totals.rows,
        "definition": summary.definition,
        "index_version": summary.index_version,
        "record_bytes": price.record_bytes,
        "fetch_bytes": price.bytes,
        "fetch_requests": price.requests,
        "unlisted": totals.unlisted_captures,
    }


def build_details(summary: LookupSummary, totals: CaptureTotals) -> dict[str, object] | None:
    """The part of that note that grows with a set's members or with unread files; ``None`` if it has neither."""
    unread = [] if summary.gaps is None else [path for path, _ in summary.gaps.files]
    if totals.members is None and not unread:
        return None
    members = (
        None if totals.members is None else [{"member": member, "captures": n} for member, n in totals.members.items()]
    )
    return {"unread": unread, "members": members}


def read_located_members(workspace: Workspace, slices: Collection[Slice]) -> dict[Slice, list[str]]:
    """The definitions of the members with which slices of sets were located."""
    rows = read_slice_rows(workspace.lake, slices, (LOCATE,), details=True)
    return {
        slice_: [member_note["member"] for member_note in row.details["members"]]
        for (slice_, _), row in rows.items()
        if row.details and row.details["members"] is not None
    }


def find_incomplete_slices(workspace: Workspace) -> dict[Slice, Lookup]:
    """The slices that were located over gaps in their index and not located again since."""
    rows = read_notes(workspace.lake, (LOCATE,))
    return {row.slice_: parse_lookup(row.note) for row in rows if row.tables and not row.note["complete"]}


def describe_completeness(lookup: Lookup) -> str:
    """Whether the index of a lookup was complete, as text."""
    if lookup.complete:
        return "yes"
    return f"no, {lookup.unread_files:,} of {lookup.index_files or 0:,} files could not be read"


def describe_gaps(workspace: Workspace, crawls: Sequence[str], targets: Sequence[Target]) -> list[str]:
    """A sentence for each of ``crawls`` whose index has gaps: what they mean for the located ``targets``."""
    notes = []
    parts = workspace.rows_of([target.slug for target in targets])
    for crawl in crawls:
        slices = slices_of(crawl, [part for slugs in parts.values() for part in slugs])
        slice_states = read_slice_states(workspace, slices, (LOCATE,))
        incomplete = [
            slice_
            for slice_, slice_state in slice_states.items()
            if slice_state.located and not (slice_state.lookup and slice_state.lookup.complete)
        ]
        incomplete_targets = len({whole_slug(slice_.target) for slice_ in incomplete})
        consequence = "a complete index was used instead"
        if incomplete_targets:
            consequence = (
                f"captures in them are missing from {incomplete_targets:,} of {len(parts):,} targets; "
                "run the command again to look them up again"
            )
        gaps = catalog_gaps(workspace, [crawl])
        notes += [f"{gap.summary} could not be read: {consequence} ({gap.file_summary})" for gap in gaps]
        if incomplete_targets and not gaps:
            notes.append(f"blocks of the URL index of {crawl} could not be read: {consequence}")
    return notes


@dataclass(frozen=True, slots=True)
class LookupTask:
    """A slice to be located: its target, the target to look up (``requested_target``; ``None``: none), and the members
    whose stored rows are ``kept_members``."""

    target: Target
    requested_target: Target | None
    kept_members: MemberIndex | None = None

    def exclude_kept(self, new: pa.Table) -> pa.Table:
        """The captures of ``new`` that are not kept already."""
        return new if self.kept_members is None else new.filter(_match_members(self.kept_members, new, expected=False))


def split_into_passes(workspace: Workspace, slices: Sequence[Slice]) -> Iterator[dict[Slice, Target]]:
    """Splits ``slices`` of one crawl into passes, each with the targets of one lookup."""
    slugs = list(dict.fromkeys(slice_.definition_slug for slice_ in slices))
    single = workspace.targets([slug for slug in slugs if SEPARATOR not in slug])
    texts = read_definitions(workspace.lake, [slug for slug in slugs if SEPARATOR in slug])

    def target_of(slice_: Slice) -> Target:
        slug = slice_.definition_slug
        return single[slug] if slug in single else part_from(slug, texts[slug])

    pairs = ((slice_, target_of(slice_)) for slice_ in slices)
    for group in group_within(pairs, (_MEMBERS_AT_ONCE,), lambda pair: (max(1, len(pair[1].members)),)):
        yield dict(group)


def split_into_commits(slices: Sequence[Slice]) -> Iterator[Sequence[Slice]]:
    """Splits slices into commits of a limited number of them."""
    for start in range(0, len(slices), _SLICES_AT_ONCE):
        yield slices[start : start + _SLICES_AT_ONCE]


def plan_lookups(
    workspace: Workspace, targets: Mapping[Slice, Target], reusable_slices: Collection[Slice]
) -> dict[Slice, LookupTask]:
    """Plans the lookups of ``targets`` of one crawl. ``reusable_slices`` are slices that a complete and unchanged
    index located: only their members are carried over."""
    sets = [slice_ for slice_ in reusable_slices if targets[slice_].kind == "set"]
    located_members = {slice_: set(members) for slice_, members in read_located_members(workspace, sets).items()}
    kept_members = {
        slice_: MemberIndex([member for member in targets[slice_].members if member.written in members])
        for slice_, members in located_members.items()
    }
    tasks = {}
    for slice_, target in targets.items():
        tasks[slice_] = LookupTask(target, target)
        if slice_ in kept_members:
            new_members = tuple(
                member for member in target.members if member.written not in located_members.get(slice_, ())
            )
            tasks[slice_] = LookupTask(
                target, replace(target, members=new_members) if new_members else None, kept_members[slice_]
            )
    return tasks


def carry_over_members(
    workspace: Workspace, tasks: Mapping[Slice, LookupTask], buffer: CaptureBuffer
) -> dict[Slice, int]:
    """Carries over the rows of kept members. Returns how many, by slice that has such members."""
    kept_members = {slice_: task.kept_members for slice_, task in tasks.items() if task.kept_members is not None}
    row_counts = dict.fromkeys(kept_members, 0)
    for slice_, rows in _read_captures(workspace, kept_members):
        buffer.add(slice_, rows)
        row_counts[slice_] += rows.num_rows
    return row_counts


def add_previous_captures(
    workspace: Workspace, tasks: Mapping[Slice, LookupTask], slices: Collection[Slice], buffer: CaptureBuffer
) -> None:
    """Adds to ``buffer`` the captures that slices of one crawl had before this lookup. An index may remove them only
    if it named them and answers completely."""
    member_indexes = {slice_: MemberIndex(tasks[slice_].target.members or [tasks[slice_].target]) for slice_ in slices}
    for slice_, previous_rows in _read_captures(workspace, member_indexes):
        buffer.add(slice_, previous_rows, was_stored=True)


def add_captures_of_former_parts(
    workspace: Workspace,
    tasks: Mapping[Slice, LookupTask],
    new_slices: Collection[Slice],
    obsolete_slices: Collection[Slice],
    buffer: CaptureBuffer,
) -> None:
    """The same for ``new_slices`` of a set whose division changed: captures of its old slices
    (``obsolete_slices``) go to the slices that have their members now."""
    for subset in {slice_.subset for slice_ in obsolete_slices}:
        subset_slices = [slice_ for slice_ in new_slices if slice_.subset == subset]
        former_slices = [slice_ for slice_ in obsolete_slices if slice_.subset == subset]
        pairs = [(slice_, member) for slice_ in subset_slices for member in tasks[slice_].target.members]
        index = MemberIndex([member for _, member in pairs])
        targets = [slice_.target for slice_ in former_slices]
        where = {"crawl": former_slices[0].crawl, "target": targets}
        for batch in stream_rows(workspace.lake, "captures", where):
            rows = _exclude_named(batch).drop_columns("target")
            rows_by_slice: dict[Slice, list[int]] = {}
            for row, (url, host) in enumerate(read_urls(rows)):
                for slice_ in {pairs[number][0] for number in index.find_members(url or "", host)}:
                    rows_by_slice.setdefault(slice_, []).append(row)
            for slice_, row_numbers in rows_by_slice.items():
                buffer.add(slice_, rows.take(pa.array(row_numbers)), was_stored=True)


def _read_captures(
    workspace: Workspace, member_indexes: Mapping[Slice, MemberIndex]
) -> Iterator[tuple[Slice, pa.Table]]:
    """The captures of slices of one crawl that an index named and that match any of the ``member_indexes`` members."""
    slices_by_slug = {slice_.target: slice_ for slice_ in member_indexes}
    where = {"crawl": [*{slice_.crawl for slice_ in member_indexes}], "target": [*slices_by_slug]}
    # batch by batch: a slice may be a million captures, most of them of former members
    for batch in stream_rows(workspace.lake, "captures", where):
        rows = _exclude_named(batch)
        for target in rows["target"].unique().to_pylist():
            slice_ = slices_by_slug[target]
            slice_rows = rows.filter(pc.equal(rows["target"], target)).drop_columns("target")
            yield slice_, slice_rows.filter(_match_members(member_indexes[slice_], slice_rows))


def _exclude_named(captures: pa.RecordBatch) -> pa.Table:
    """The rows of ``captures`` that an index named, and no person."""
    rows = pa.Table.from_batches([captures])
    return rows.filter(pc.not_equal(rows["located_by"], NAMED_CAPTURES))


def _match_members(index: MemberIndex, captures: pa.Table, *, expected: bool = True) -> pa.Array:
    """For each capture, whether any member of ``index`` matches it (or, unless ``expected``, none does)."""
    return pa.array(
        [bool(index.find_members(url or "", host)) == expected for url, host in read_urls(captures)], pa.bool_()
    )
