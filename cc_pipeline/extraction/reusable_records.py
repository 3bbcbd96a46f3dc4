"""Finds stored records that a fetch can use again, whichever target they were fetched for, so that no record is fetched
twice; and slices whose stored bytes were lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.advice import advise
from cc_pipeline.capture_columns import SLICE
from cc_pipeline.commoncrawl.key_ranges import KeyRange, RangeSet
from cc_pipeline.commoncrawl.slice_slugs import defined_slug, subset_of, with_subset
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.lake.slice import PARSE, Slice, group_targets_by_crawl, slices_of
from cc_pipeline.lake.slices import invalidate_slices
from cc_pipeline.lake.streaming import stream_rows
from cc_pipeline.progress import format_count
from cc_pipeline.records.locations import PLACE_NAME, LocationIndex
from cc_pipeline.records.schema import HELD_SCHEMA
from cc_pipeline.records.storage import STORED, StoredSizes
from cc_pipeline.records.sweep import note
from cc_pipeline.workspace.workspace import Workspace

#: Lowest key, the key behind the highest (``None``: to the end), slug.
_Range = tuple[bytes, bytes | None, str]

#: A file of a crawl's archive and the offset in it.
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ReusableRecords:
    """Rows of ``records`` that may be used again, of any target (``HELD_SCHEMA``, in the order of their locations), and
    the stored files that they name."""

    rows: OrderedRows
    files: frozenset[str]


def find_reusable_records(
    workspace: Workspace,
    crawl: str,
    targets: Sequence[str],
    places: LocationIndex,
    scratch: Path,
    distrusted: Collection[Place] = (),
) -> ReusableRecords:
    """The rows of ``crawl`` that captures of ``targets``, at ``places``, can take over. Each stored file is looked at
    once.

    Only targets whose key ranges overlap can share captures, so only their rows are read. ``distrusted`` are captures
    whose stored bytes exist and are wrong. Read them under a lease. Raises ``EnvironmentFault`` if the lake's store
    cannot be listed.
    """
    where = {"crawl": crawl, "target": find_overlapping(workspace, targets)}
    sizes = StoredSizes(workspace.storage, crawl)
    rows = OrderedRows(HELD_SCHEMA, PLACE_NAME, scratch)
    files: set[str | None] = set()
    for batch in stream_rows(workspace.lake, "records", where, HELD_SCHEMA.names):
        matching = batch.filter(places.contains(batch))
        is_unusable = sizes.lost(matching)
        if distrusted:
            is_unusable = pc.or_(
                is_unusable,
                pc.and_(pc.is_valid(matching.column("stored_file")), _match_locations(matching, distrusted)),
            )
        usable = _drop_unusable(matching, is_unusable)
        rows.add(usable)
        files.update(pc.unique(usable.column("stored_file")).to_pylist())
    return ReusableRecords(rows, frozenset(name for name in files if name is not None))


def _drop_unusable(rows: pa.RecordBatch, is_unusable: pa.Array) -> pa.RecordBatch:
    """Drops records whose bytes are unusable. Rows of captures that are not fetched stay, without their bytes: their
    asks count on."""
    columns = [
        pc.if_else(is_unusable, pa.scalar(None, field.type), rows.column(field.name))
        if field.name in STORED
        else rows.column(field.name)
        for field in rows.schema
    ]
    is_usable_or_unfetched = pc.or_(pc.invert(is_unusable), pc.not_equal(rows.column("outcome"), "fetched"))
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema).filter(is_usable_or_unfetched)


def find_overlapping(workspace: Workspace, slugs: Collection[str]) -> list[str]:
    """The slugs of all targets that can share captures with ``slugs``, these themselves included. Parts of sets are
    targets of their own here.

    Targets without a definition are not among them. Raises ``EnvironmentFault`` when the lake cannot be read.
    """
    ranges = _read_ranges(workspace.lake)
    overlapping_slugs = set(slugs)
    for subset in {subset_of(slug) for slug in slugs}:
        # captures of two subsets are never the same
        requested_slugs = {defined_slug(slug) for slug in slugs if subset_of(slug) == subset}
        requested_ranges = RangeSet(KeyRange(start, end) for start, end, slug in ranges if slug in requested_slugs)
        overlapping_slugs |= {
            with_subset(slug, subset) for start, end, slug in ranges if requested_ranges.touches(start, end)
        }
    return sorted(overlapping_slugs)


def find_sharing(lake: Lake) -> set[str]:
    """The slugs of all targets that can share captures with another one. Raises ``EnvironmentFault``."""
    sharing_slugs: set[str] = set()
    furthest: tuple[bytes | None, str] | None = None
    for start, end, slug in sorted(_read_ranges(lake), key=lambda key_range: (key_range[0], key_range[2])):
        if furthest is not None and furthest[1] != slug and (furthest[0] is None or start < furthest[0]):
            sharing_slugs |= {slug, furthest[1]}
        # ranges of one target are disjoint, so what reaches furthest is all that the next can meet
        if furthest is None or (furthest[0] is not None and (end is None or end > furthest[0])):
            furthest = (end, slug)
    return sharing_slugs


def _read_ranges(lake: Lake) -> list[_Range]:
    """The key ranges of all targets."""
    rows = lake.read("targets", columns=["slug", "ranges"]).combine_chunks()
    ranges = rows["ranges"].combine_chunks()
    slugs = rows["slug"].combine_chunks().take(pc.list_parent_indices(ranges))
    ends = pc.list_flatten(ranges)
    columns = (pc.struct_field(ends, "start"), pc.struct_field(ends, "end"), slugs)
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def count_lost_records(
    workspace: Workspace, slices: Collection[Slice], distrusted: Collection[Place] = ()
) -> dict[Slice, int]:
    """The slices with rows whose bytes do not exist (or are not trusted), each with how many."""
    lost_records: Counter[Slice] = Counter()
    for crawl, rows in read_lost_rows(workspace, slices, distrusted):
        for row in rows.group_by("target").aggregate([([], "count_all")]).to_pylist():
            lost_records[Slice(crawl, row["target"])] += row["count_all"]
    return lost_records


def note_superseded(workspace: Workspace, slices: Sequence[Slice], new: Collection[str], now: float) -> None:
    """Notes the stored files that ``slices`` of one crawl name now and that their new rows do not: those name ``new``.
    Call it before the commit. Raises ``EnvironmentFault``."""
    for crawl, targets in group_targets_by_crawl(slices).items():
        old_files: set[str | None] = set()
        where = {"crawl": crawl, "target": targets}
        for batch in stream_rows(workspace.lake, "records", where, ["target", "stored_file"]):
            old_files.update(pc.unique(batch.column("stored_file")).to_pylist())
        note(workspace.storage, crawl, [name for name in old_files if name is not None and name not in new], now)


def forget_failed_pages(workspace: Workspace, slices: Collection[Slice], distrusted: Collection[Place] = ()) -> None:
    """Marks pages of ``slices`` to be parsed again that failed while the bytes of their records were lost.

    Pages that were parsed before that stay. Raises ``EnvironmentFault``.
    """
    by_crawl: dict[str, list[pa.Table]] = {}
    for crawl, rows in read_lost_rows(workspace, slices, distrusted):
        by_crawl.setdefault(crawl, []).append(rows)
    for crawl, parts in by_crawl.items():
        lost = pa.concat_tables(parts)
        targets = lost.column("target").unique().to_pylist()
        columns = [*SLICE, *PLACE_NAME, "disposition"]
        failed_slugs: set[str] = set()
        for batch in stream_rows(workspace.lake, PARSE.main_table, {"crawl": crawl, "target": targets}, columns):
            failed = pa.Table.from_batches([batch.filter(pc.equal(batch.column("disposition"), "FAILURE"))])
            if failed.num_rows:
                failed = failed.join(lost, ["target", *PLACE_NAME], join_type="left semi")
                failed_slugs.update(failed.column("target").to_pylist())
        invalidate_slices(workspace.lake, PARSE, slices_of(crawl, sorted(failed_slugs)))


def describe_lost_records(lost: Mapping[Slice, int]) -> tuple[str, ...]:
    """The note of a fetch on slices that had lost bytes."""
    count = sum(lost.values())
    return (
        (f"the bytes of {format_count(count, 'stored record')} were missing or wrong, and were fetched again",)
        if count
        else ()
    )


def build_lost_fault(crawl: str, lost: Mapping[Slice, int]) -> EnvironmentFault:
    """The fault for stored records whose bytes do not exist, with the command that fetches them again."""
    targets = sorted({slice_.partition.target for slice_ in lost})
    names = ", ".join(targets[:5]) + (" …" if len(targets) > 5 else "")
    return EnvironmentFault(
        f"the bytes of {format_count(sum(lost.values()), 'stored record')} of {names} in {crawl} are missing in the "
        "lake",
        advise("doctor", repair=True, sentence="Fetch them again: {}"),
    )


def read_lost_rows(
    workspace: Workspace, slices: Collection[Slice], distrusted: Collection[Place] = ()
) -> Iterator[tuple[str, pa.Table]]:
    """Yields crawls and rows of ``slices`` whose bytes do not exist or are not trusted: target, location, stored
    file."""
    for crawl, targets in group_targets_by_crawl(slices).items():
        sizes = StoredSizes(workspace.storage, crawl)
        columns = ["target", *PLACE_NAME, *STORED]
        for batch in stream_rows(workspace.lake, "records", {"crawl": crawl, "target": targets}, columns):
            rows = batch.filter(pc.is_valid(batch.column("stored_file")))
            is_unusable = sizes.lost(rows)
            if distrusted:
                is_unusable = pc.or_(is_unusable, _match_locations(rows, distrusted))
            lost = rows.filter(is_unusable)
            if lost.num_rows:
                yield crawl, pa.Table.from_batches([lost]).select(["target", *PLACE_NAME, "stored_file"])


def _match_locations(rows: pa.RecordBatch, places: Collection[Place]) -> pa.Array:
    place_set = set(places)
    columns = (rows.column(name).to_pylist() for name in PLACE_NAME)
    return pa.array([place in place_set for place in zip(*columns, strict=True)], pa.bool_())
