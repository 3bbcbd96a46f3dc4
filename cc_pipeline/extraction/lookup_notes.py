"""Notes on look-ups, so that nothing is looked up twice: how each slice was located, over which gaps of the index, and
which captures are carried over, so that only new members of a set are asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.matching import MemberIndex
from cc_pipeline.commoncrawl.slice_slugs import SEPARATOR, part_from, whole_slug
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.extraction.located import Answer, Located, Summed, urls
from cc_pipeline.extraction.standing import Lookup, stand
from cc_pipeline.harvesting.catalog import catalog_gaps
from cc_pipeline.index.gaps import IndexGaps
from cc_pipeline.index.locator import GIVEN
from cc_pipeline.lake.slice import LOCATE, Slice, note_slices, slices_of, targets_by_crawl
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.lake.target_definitions import definitions
from cc_pipeline.workspace.workspace import Workspace

#: Members that one look-up asks for, and slices that one commit writes: what a killed run loses at most.
_MEMBERS_AT_ONCE: Final = 16_384
_SLICES_AT_ONCE: Final = 256


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a slice's look-up: the index (``by``, with its version and ``size``), the version of the slice's
    definition, the gaps it was located over, and how its rows are read."""

    by: str
    index: str
    definition: str
    gaps: IndexGaps | None
    answer: Answer = field(default_factory=Answer)
    size: int | None = None


def commit_lookups(
    workspace: Workspace, made_from: Mapping[Slice, str], found: Mapping[Slice, Found], summed: Mapping[Slice, Summed]
) -> None:
    """Writes the notes of these look-ups with the totals of their captures, before the captures are committed with the
    digests ``made_from``."""
    now = datetime.now(UTC)
    rows = {
        slice_: {**_row(slice_, found[slice_], summed[slice_]), "made_from": digest, "looked_up_at": now}
        for slice_, digest in made_from.items()
    }
    note_slices(workspace.lake, "lookups", rows, but="looked_up_at")


def _row(slice_: Slice, found: Found, summed: Summed) -> dict[str, object]:
    gaps, price, members = found.gaps, summed.price, summed.members
    lacking = () if gaps is None else [row for row in gaps.by_subset if row[0] == slice_.subset]
    return {
        "located_by": found.by,
        "subsets": [slice_.subset],
        "complete": gaps is None,
        "index_files": None if gaps is None else sum(expected for _, _, expected in lacking),
        "unread_files": sum(unread for _, unread, _ in lacking),
        "unread": [] if gaps is None else [path for path, _ in gaps.files],
        "captures": summed.rows,
        "members": None if members is None else [{"member": m, "captures": n} for m, n in members.items()],
        "definition": found.definition,
        "index_version": found.index,
        "record_bytes": price.record_bytes,
        "fetch_bytes": price.bytes,
        "fetch_requests": price.requests,
        "index_size": found.size,
        "unlisted": summed.unlisted,
        "removal": summed.removal,
        "repeated": summed.repeated,
    }


def members_located(workspace: Workspace, slices: Collection[Slice]) -> dict[Slice, list[str]]:
    """The definitions of the members with which slices of sets were located, for slices whose note counts."""
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
    """The slices that were located over gaps in their index and not located again since."""
    rows = workspace.lake.read("lookups", columns=["crawl", "target", "complete"])
    named = [Slice(row["crawl"], row["target"]) for row in rows.filter(pc.invert(rows["complete"])).to_pylist()]
    stands = {slice_: one.lookup for slice_, one in stand(workspace, named, (LOCATE,)).items()}
    return {slice_: found for slice_, found in stands.items() if found is not None and not found.complete}


def index_complete(found: Lookup) -> str:
    """Whether the index of a look-up was complete, as text."""
    return "yes" if found.complete else f"no, {found.unread_files:,} of {found.index_files or 0:,} files unread"


def gap_notes(workspace: Workspace, crawls: Sequence[str], targets: Sequence[Target]) -> list[str]:
    """A sentence for each of ``crawls`` whose index has gaps: what they mean for the located ``targets``."""
    notes = []
    parts = workspace.rows_of([target.slug for target in targets])
    for gaps in catalog_gaps(workspace, crawls):
        slices = slices_of(gaps.crawl, [part for own in parts.values() for part in own])
        stands = stand(workspace, slices, (LOCATE,))
        lacking = [s for s, one in stands.items() if one.located and not (one.lookup and one.lookup.complete)]
        unsure = len({whole_slug(slice_.target) for slice_ in lacking})
        means = "another index, which is complete, was asked"
        if unsure:
            means = (
                f"captures in them are missing from {unsure:,} of {len(parts):,} targets; "
                "run the command again to look them up again"
            )
        notes.append(f"{gaps.what} could not be read: {means} ({gaps.named})")
    return notes


@dataclass(frozen=True, slots=True)
class Known:
    """A slice to be located: its target, the target to look up (``asked``; ``None``: none), and the members whose
    stored rows are ``kept``."""

    target: Target
    asked: Target | None
    kept: MemberIndex | None = None

    def not_kept(self, new: pa.Table) -> pa.Table:
        """The captures of ``new`` that are not kept already."""
        return new if self.kept is None else new.filter(_mask(self.kept, new, wanted=False))


def in_passes(workspace: Workspace, slices: Sequence[Slice]) -> Iterator[dict[Slice, Target]]:
    """Splits ``slices`` of one crawl into passes, each with the targets of one look-up."""
    slugs = list(dict.fromkeys(slice_.defined for slice_ in slices))
    single = workspace.targets([slug for slug in slugs if SEPARATOR not in slug])
    texts = definitions(workspace.lake, [slug for slug in slugs if SEPARATOR in slug])
    some: dict[Slice, Target] = {}
    size = 0
    for slice_ in slices:
        slug = slice_.defined
        target = single[slug] if slug in single else part_from(slug, texts[slug])
        some[slice_] = target
        size += max(1, len(target.members))
        if size >= _MEMBERS_AT_ONCE:
            yield some
            some, size = {}, 0
    if some:
        yield some


def in_commits(made_from: Mapping[Slice, str]) -> Iterator[dict[Slice, str]]:
    """Splits the digests into commits of a limited number of slices."""
    pairs = list(made_from.items())
    for first in range(0, len(pairs), _SLICES_AT_ONCE):
        yield dict(pairs[first : first + _SLICES_AT_ONCE])


def what_is_known(
    workspace: Workspace, targets: Mapping[Slice, Target], carried: Collection[Slice]
) -> dict[Slice, Known]:
    """Plans the look-ups of ``targets`` of one crawl. ``carried`` are slices that a complete and unchanged index
    located: only their members are carried over."""
    sets = [slice_ for slice_ in carried if targets[slice_].kind == "set"]
    before = {slice_: set(members) for slice_, members in members_located(workspace, sets).items()}
    kept = {
        slice_: MemberIndex([member for member in targets[slice_].members if member.written in members])
        for slice_, members in before.items()
    }
    found = {}
    for slice_, target in targets.items():
        found[slice_] = Known(target, target)
        if slice_ in kept:
            new = tuple(member for member in target.members if member.written not in before.get(slice_, ()))
            found[slice_] = Known(target, replace(target, members=new) if new else None, kept[slice_])
    return found


def keep_rows(workspace: Workspace, known: Mapping[Slice, Known], located: Located) -> dict[Slice, int]:
    """Carries over the rows of kept members. Returns how many, by slice that has such members."""
    kept = {slice_: one.kept for slice_, one in known.items() if one.kept is not None}
    count = dict.fromkeys(kept, 0)
    for slice_, rows in _rows(workspace, kept):
        located.add(slice_, rows)
        count[slice_] += rows.num_rows
    return count


def keep_what_was_there(
    workspace: Workspace, known: Mapping[Slice, Known], found: Collection[Slice], located: Located
) -> None:
    """Adds to ``located`` the captures that slices of one crawl had before this look-up. An index may remove them only
    if it named them and answers completely."""
    takers = {slice_: MemberIndex(known[slice_].target.members or [known[slice_].target]) for slice_ in found}
    for slice_, before in _rows(workspace, takers):
        located.add(slice_, before, before=True)


def keep_what_was_divided(
    workspace: Workspace,
    known: Mapping[Slice, Known],
    new: Collection[Slice],
    left: Collection[Slice],
    located: Located,
) -> None:
    """The same for the ``new`` slices of a set whose division changed: captures of its old slices (``left``) go to the
    slices that have their members now."""
    for subset in {slice_.subset for slice_ in left}:
        mine = [slice_ for slice_ in new if slice_.subset == subset]
        before = [slice_ for slice_ in left if slice_.subset == subset]
        pairs = [(slice_, member) for slice_ in mine for member in known[slice_].target.members]
        index = MemberIndex([member for _, member in pairs])
        targets = [slice_.target for slice_ in before]
        where = {"crawl": before[0].crawl, "target": targets}
        for batch in stream_rows(workspace.lake, "captures", where):
            rows = _listed(batch).drop_columns("target")
            taken: dict[Slice, list[int]] = {}
            for row, (url, host) in enumerate(urls(rows)):
                for slice_ in {pairs[number][0] for number in index.of(url or "", host)}:
                    taken.setdefault(slice_, []).append(row)
            for slice_, own in taken.items():
                located.add(slice_, rows.take(pa.array(own)), before=True)


def _rows(workspace: Workspace, kept: Mapping[Slice, MemberIndex]) -> Iterator[tuple[Slice, pa.Table]]:
    """The captures of slices of one crawl that an index named and that match any of the ``kept`` members."""
    own = {slice_.target: slice_ for slice_ in kept}
    where = {"crawl": [*{slice_.crawl for slice_ in kept}], "target": [*own]}
    # batch by batch: a slice may be a million captures, most of them of former members
    for batch in stream_rows(workspace.lake, "captures", where):
        rows = _listed(batch)
        for target in rows["target"].unique().to_pylist():
            slice_ = own[target]
            mine = rows.filter(pc.equal(rows["target"], target)).drop_columns("target")
            yield slice_, mine.filter(_mask(kept[slice_], mine))


def _listed(captures: pa.RecordBatch) -> pa.Table:
    """The rows of ``captures`` that an index named, and no person."""
    rows = pa.Table.from_batches([captures])
    return rows.filter(pc.not_equal(rows["located_by"], GIVEN))


def _mask(index: MemberIndex, captures: pa.Table, *, wanted: bool = True) -> pa.Array:
    """For each capture, whether any member of ``index`` matches it (or, unless ``wanted``, none does)."""
    return pa.array([bool(index.of(url or "", host)) == wanted for url, host in urls(captures)], pa.bool_())
