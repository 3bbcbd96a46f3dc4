"""What the lake holds of the captures that a stage wants: rows whose bytes are there, and slices that lost some."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.keys import SLICE
from cc_pipeline.records.lost import STORED, lost_mask
from cc_pipeline.records.outcomes import HELD_COLUMNS
from cc_pipeline.records.superseded import note
from cc_pipeline.stages.overlap import overlapping
from cc_pipeline.stages.slice import PARSE, Slice, targets_by_crawl
from cc_pipeline.stages.workspace import Workspace

_PLACE = ("warc_filename", "warc_record_offset")
#: A file of a crawl's archive and the offset in it.
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Held:
    """Rows of ``records`` that may be used again, of any target; the stored files that the wanted ones of them name;
    and how many rows of wanted captures were left out, because their bytes are gone or are not trusted."""

    rows: pa.Table
    files: frozenset[str]
    lost: int


def held_rows(workspace: Workspace, crawl: str, captures: pa.Table, distrusted: Collection[Place] = ()) -> Held:
    """The rows of ``crawl`` that the ``captures`` can take over; each stored file they name is looked at once.

    Only targets whose key ranges overlap can share captures, so only their rows are read.

    ``distrusted`` are captures whose stored bytes are there and wrong. Read them under a lease. Raises
    ``EnvironmentFault`` where the lake's place does not say what it has.
    """
    targets = overlapping(workspace, captures.column("target").unique().to_pylist())
    rows = workspace.lake.read("records", {"crawl": crawl, "target": targets}, HELD_COLUMNS)
    position = pa.array(np.arange(rows.num_rows))
    wanted = pc.unique(captures.column("warc_filename")).drop_null()
    near = pc.and_(pc.is_in(rows.column("warc_filename"), value_set=wanted), pc.is_valid(rows.column("stored_file")))
    mine = rows.select([*_PLACE, *STORED]).append_column("position", position).filter(near)
    mine = mine.join(captures.select(_PLACE).group_by(_PLACE).aggregate([]), list(_PLACE), join_type="left semi")
    bad = lost_mask(mine, workspace.storage, crawl)
    if distrusted:
        bad = pc.or_(bad, _among(mine, distrusted))
    sound = mine.filter(pc.invert(bad))
    lost = mine.filter(bad)
    if lost.num_rows:
        rows = rows.filter(pc.invert(pc.is_in(position, value_set=lost.column("position").combine_chunks())))
    return Held(rows, frozenset(sound.column("stored_file").unique().to_pylist()), lost.num_rows)


def slices_that_lost(
    workspace: Workspace, slices: Collection[Slice], distrusted: Collection[Place] = ()
) -> dict[Slice, int]:
    """Those of ``slices`` that have rows whose bytes are gone (or are not trusted), and how many."""
    lost: dict[Slice, int] = {}
    for crawl, rows in _lost_rows(workspace, slices, distrusted):
        for row in rows.group_by("target").aggregate([([], "count_all")]).to_pylist():
            lost[Slice(crawl, row["target"])] = row["count_all"]
    return lost


def note_superseded(workspace: Workspace, slices: Sequence[Slice], rows: pa.Table, now: float) -> None:
    """Writes down the stored files that ``slices`` of one crawl name and that ``rows``, which are to replace theirs, do
    not. Call it before the commit. Raises ``EnvironmentFault``."""
    new = set(rows.column("stored_file").unique().to_pylist())
    for crawl, targets in targets_by_crawl(slices).items():
        old = workspace.lake.read("records", {"crawl": crawl, "target": targets}, ["target", "stored_file"])
        note(workspace.storage, crawl, set(old.column("stored_file").unique().to_pylist()) - new - {None}, now)


def forget_failed_pages(workspace: Workspace, slices: Collection[Slice], distrusted: Collection[Place] = ()) -> None:
    """Has the pages of ``slices`` parsed again that failed while the bytes of their records were gone.

    Pages that were parsed before that are left alone. Raises ``EnvironmentFault``.
    """
    for crawl, lost in _lost_rows(workspace, slices, distrusted):
        targets = lost.column("target").unique().to_pylist()
        columns = [*SLICE, *_PLACE, "disposition"]
        pages = workspace.lake.read(PARSE.main_table, {"crawl": crawl, "target": targets}, columns)
        failed = pages.filter(pc.equal(pages.column("disposition"), "FAILURE"))
        failed = failed.join(lost.select(["target", *_PLACE]), ["target", *_PLACE], join_type="left semi")
        again = failed.column("target").unique().to_pylist()
        PARSE.forget(workspace.lake, [Slice(crawl, target) for target in again])


def lost_note(lost: Mapping[Slice, int]) -> tuple[str, ...]:
    """What a fetch says of the slices that had lost bytes."""
    count = sum(lost.values())
    return (f"the bytes of {count:,} stored records were gone or wrong, so they were fetched again",) if count else ()


def gone(crawl: str, lost: Mapping[Slice, int]) -> EnvironmentFault:
    """The fault that says what is gone and what brings it back."""
    named = ", ".join(sorted(slice_.target for slice_ in lost)[:5]) + (" …" if len(lost) > 5 else "")
    return EnvironmentFault(
        f"the bytes of {sum(lost.values()):,} stored records of {named} in {crawl} are gone from the lake's place",
        "Fetch them again: cc-pipeline run for these targets, or cc-pipeline doctor --repair for all that is lost.",
    )


def _lost_rows(
    workspace: Workspace, slices: Collection[Slice], distrusted: Collection[Place] = ()
) -> list[tuple[str, pa.Table]]:
    """Crawl by crawl, the rows of ``slices`` whose bytes are gone or not trusted: target and place."""
    found = []
    for crawl, targets in targets_by_crawl(slices).items():
        columns = ["target", *_PLACE, *STORED]
        rows = workspace.lake.read("records", {"crawl": crawl, "target": targets}, columns)
        rows = rows.filter(pc.is_valid(rows.column("stored_file")))
        bad = lost_mask(rows, workspace.storage, crawl)
        if distrusted:
            bad = pc.or_(bad, _among(rows, distrusted))
        lost = rows.filter(bad)
        if lost.num_rows:
            found.append((crawl, lost.select(["target", *_PLACE])))
    return found


def _among(rows: pa.Table, places: Collection[Place]) -> pa.Array:
    chosen = set(places)
    columns = (rows.column(name).to_pylist() for name in _PLACE)
    return pa.array([place in chosen for place in zip(*columns, strict=True)], pa.bool_())
