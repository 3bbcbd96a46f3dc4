"""What the look-up before already found of a set: where only members came or went, no other is looked up again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.commoncrawl.members import MemberIndex
from cc_pipeline.commoncrawl.parts import SEPARATOR, part_from
from cc_pipeline.commoncrawl.target import Target
from cc_pipeline.extraction.held import came_by_old_keys, keys_to_be
from cc_pipeline.extraction.lookups import members_located
from cc_pipeline.extraction.slice import Slice
from cc_pipeline.extraction.targets import definitions
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.stages.workspace import Workspace

#: Members that one look-up asks for, and slices that one commit writes: what a killed run loses at most.
_MEMBERS_AT_ONCE: Final = 16_384
_SLICES_AT_ONCE: Final = 256
#: Rows whose URLs are Python's own texts at a time.
_AS_TEXTS: Final = 8_192


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
    workspace: Workspace,
    targets: Mapping[Slice, Target],
    carried: Collection[Slice],
    as_before: Collection[Slice] = (),
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


def _rows(workspace: Workspace, kept: Mapping[Slice, MemberIndex]) -> dict[Slice, pa.Table]:
    """The captures of slices of one crawl that any of their ``kept`` members takes."""
    own = {slice_.target: slice_ for slice_ in kept}
    where = {"crawl": [*{slice_.crawl for slice_ in kept}], "target": [*own]}
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
