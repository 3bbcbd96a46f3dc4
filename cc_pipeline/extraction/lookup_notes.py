"""Nothing is looked up twice: how each slice was located, over which holes of the index, and what of its captures is
carried over, so that only new members of a set are asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.matching import MemberIndex
from cc_pipeline.commoncrawl.slice_slugs import SEPARATOR, part_from, whole_slug
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.extraction.reusable_records import came_by_old_keys, keys_to_be
from cc_pipeline.extraction.standing import Lookup, stand
from cc_pipeline.index.gaps import IndexGaps
from cc_pipeline.index.locator import BOTH, KINDS
from cc_pipeline.index.lookup import united
from cc_pipeline.indexing.catalog import catalog_gaps
from cc_pipeline.lake.slice import LOCATE, Slice, note_slices, slices_of, targets_by_crawl
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.lake.target_definitions import definitions
from cc_pipeline.records.range_plan import price_of
from cc_pipeline.workspace.workspace import Workspace

#: Members that one look-up asks for, and slices that one commit writes: what a killed run loses at most.
_MEMBERS_AT_ONCE: Final = 16_384
_SLICES_AT_ONCE: Final = 256
#: Rows whose URLs are Python's own texts at a time.
_AS_TEXTS: Final = 8_192


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


@dataclass(frozen=True, slots=True)
class Known:
    """A slice to be located: its target, what has to be ``asked`` for (``None``: nothing), and the rows of ``kept``
    members that the table has already."""

    target: Target
    asked: Target | None
    kept: MemberIndex | None = None
    rows: pa.Table | None = None

    def with_new(self, new: pa.Table | None) -> pa.Table:
        """The captures of the target, from those of what was asked for (``None``: nothing was). None is there twice."""
        if self.kept is None or self.rows is None:
            assert new is not None, "all was asked for"
            return new
        if new is None:
            return self.rows
        return pa.concat_tables([self.rows, new.filter(_mask(self.kept, new, wanted=False))])

    def counted(self, captures: pa.Table) -> dict[str, int] | None:
        """How many of ``captures`` each member of a set has; ``None`` for other targets."""
        if self.target.kind != "set":
            return None
        index = MemberIndex(self.target.members)
        counts = [0] * len(self.target.members)
        for url, host in _urls(captures):
            for number in index.of(url or "", host):
                counts[number] += 1
        return {member.written: count for member, count in zip(self.target.members, counts, strict=True)}


def in_passes(workspace: Workspace, slices: Sequence[Slice]) -> Iterator[dict[Slice, Target]]:
    """The targets of ``slices`` of one crawl, so many at a time as one look-up asks for."""
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
    """The same, so many slices at a time as one commit writes."""
    pairs = list(made_from.items())
    for first in range(0, len(pairs), _SLICES_AT_ONCE):
        yield dict(pairs[first : first + _SLICES_AT_ONCE])


def what_is_known(
    workspace: Workspace, targets: Mapping[Slice, Target], carried: Collection[Slice], as_before: Collection[Slice] = ()
) -> dict[Slice, Known]:
    """What has to be asked for ``targets`` of one crawl. ``carried`` are slices that were located whole, in the index
    as it is now: only members of these are carried over. ``as_before`` are those of them whose definition is that of
    before too, so that nothing is asked. Carried over are today's keys, but for records that came."""
    sets = [slice_ for slice_ in carried if targets[slice_].kind == "set"]
    before = {slice_: set(members) for slice_, members in members_located(workspace, sets).items()}
    kept = {
        slice_: MemberIndex([member for member in targets[slice_].members if member.written in members])
        for slice_, members in before.items()
    }
    kept |= {slice_: MemberIndex([targets[slice_]]) for slice_ in as_before if targets[slice_].kind != "set"}
    rows = _rows(workspace, kept)
    found = {}
    for slice_, target in targets.items():
        found[slice_] = Known(target, target)
        if slice_ in kept:
            new = tuple(member for member in target.members if member.written not in before.get(slice_, ()))
            found[slice_] = Known(target, replace(target, members=new) if new else None, kept[slice_], rows[slice_])
    return found


def with_what_stays(
    workspace: Workspace, known: Mapping[Slice, Known], found: Mapping[Slice, Found]
) -> tuple[dict[Slice, Found], int]:
    """The answers for slices of one crawl that were located before, with the captures there that they may not take
    away, and how many these are: only an index that named a capture, asked again and whole, can say that there is none.
    A capture that two name is as the one has it that tells more."""
    now, stayed = dict(found), 0
    for others in {_not_asked(one) for one in found.values()}:
        mine = [slice_ for slice_, one in found.items() if _not_asked(one) == others]
        takers = {slice_: MemberIndex(known[slice_].target.members or [known[slice_].target]) for slice_ in mine}
        for slice_, before in _rows(workspace, takers, others).items():
            if before.num_rows:
                one = found[slice_]
                every = united(*(_named_by(kind, rows) for kind in KINDS for rows in (one.captures, before)))
                now[slice_] = replace(one, captures=every, members=known[slice_].counted(every))
                stayed += every.num_rows - one.captures.num_rows
    return now, stayed


def _not_asked(found: Found) -> tuple[str, ...]:
    """The kinds of index of whose captures an answer says nothing."""
    asked = () if found.gaps is not None else found.by.split(BOTH)
    return tuple(kind for kind in KINDS if kind not in asked)


def _named_by(kind: str, captures: pa.Table) -> pa.Table:
    return captures.filter(pc.equal(captures["located_by"], kind))


def _rows(
    workspace: Workspace, kept: Mapping[Slice, MemberIndex], located_by: Sequence[str] = KINDS
) -> dict[Slice, pa.Table]:
    """The captures of slices of one crawl that any of their ``kept`` members takes (and that these indexes named)."""
    own = {slice_.target: slice_ for slice_ in kept}
    where = {"crawl": [*{slice_.crawl for slice_ in kept}], "target": [*own], "located_by": located_by}
    found: dict[Slice, list[pa.Table]] = {slice_: [] for slice_ in kept}
    # batch by batch: a slice may be a million captures, and most of them may be those of members that went
    for batch in stream_rows(workspace.lake, "captures", where):
        rows = pa.Table.from_batches([batch])
        for target in rows["target"].unique().to_pylist():
            mine = rows.filter(pc.equal(rows["target"], target)).drop_columns("target")
            found[own[target]].append(mine.filter(_mask(kept[own[target]], mine)))
    nothing = workspace.lake.specs["captures"].schema.empty_table().drop_columns("target")
    came = {crawl: came_by_old_keys(workspace.lake, crawl, [*own]) for crawl in where["crawl"]}
    return {
        slice_: _with_todays_keys(pa.concat_tables([nothing, *tables]), came[slice_.crawl])
        for slice_, tables in found.items()
    }


def _with_todays_keys(captures: pa.Table, came: pa.Array) -> pa.Table:
    column = captures.schema.get_field_index("warc_filename")
    return captures.set_column(column, captures.schema.field(column), keys_to_be(captures, came))


def _mask(index: MemberIndex, captures: pa.Table, *, wanted: bool = True) -> pa.Array:
    """For each capture whether any member of ``index`` takes it (or, unless ``wanted``, none)."""
    return pa.array([bool(index.of(url or "", host)) == wanted for url, host in _urls(captures)], pa.bool_())


def _urls(captures: pa.Table) -> Iterator[tuple[str | None, str | None]]:
    for batch in captures.select(["url", "url_host_name"]).to_batches(max_chunksize=_AS_TEXTS):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
