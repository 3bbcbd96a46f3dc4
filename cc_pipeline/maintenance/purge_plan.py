"""The plan of a purge: what it deletes (rows, stored bytes that no other target has), and what it leaves."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.capture_columns import SLICE
from cc_pipeline.commoncrawl.slice_slugs import whole_slug
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.lake.content_digests import compute_input_digest
from cc_pipeline.lake.lake import Lake, TableSpec
from cc_pipeline.lake.live_rows import read_states
from cc_pipeline.lake.predicates import Prefix
from cc_pipeline.lake.slice import Slice, group_targets_by_crawl
from cc_pipeline.lake.snapshot import find_other_publications
from cc_pipeline.lake.streaming import stream_crawl, stream_rows
from cc_pipeline.lake.target_definitions import find_defining_slugs
from cc_pipeline.progress import format_count
from cc_pipeline.records.locations import PLACE_NAME, LocationCollector
from cc_pipeline.records.storage import STORED
from cc_pipeline.workspace.workspace import Workspace

#: Advice for an unknown table that may have rows of targets.
_UNKNOWN_TABLE: Final = (
    "Another version of cc_pipeline made it: purge with that version. If the table is not needed, delete its folder."
)


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """The plan of a purge: ``rows`` by table; the number of stored ``records`` that no other target has, and their
    ``bytes``; ``kept_records`` that ``holders``, other targets, have too. ``out_of_reach`` are sentences about copies
    that it cannot delete."""

    slug: str
    definition: str
    slices: tuple[Slice, ...]
    rows: Mapping[str, int]
    records: int
    bytes: int
    kept_records: int
    holders: tuple[str, ...]
    out_of_reach: tuple[str, ...]

    @property
    def digest(self) -> str:
        """A short digest of everything that would be deleted."""
        return compute_input_digest({name: value for name, value in asdict(self).items() if name != "out_of_reach"})

    @property
    def is_empty(self) -> bool:
        """Whether the home has at most the definition of the target, and the results of its lookups."""
        return not any(count for table, count in self.rows.items() if table != "targets")

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences on what is deleted besides the rows, and on what is kept."""
        lines = [
            f"{format_count(self.records, 'stored record')} ({self.bytes:,} bytes) that only this target uses",
            "its definition, its line on the watch list, its partition key and its partitions in the UI",
        ]
        return (*lines, *(f"kept: {text}" for text in self.out_of_reach))


def combine_digests(plans: Sequence[PurgePlan]) -> str:
    """Returns one digest of several plans, in any order; for one plan, its own digest."""
    digests = sorted(plan.digest for plan in plans)
    return digests[0] if len(digests) == 1 else compute_input_digest({"plans": digests})


def require_plan_digest(plans: Sequence[PurgePlan], digest: str) -> None:
    """Raises ``UserInputError`` unless ``digest`` is that of ``plans``, as a dry run shows it: so nothing is deleted
    that the person has not seen. A killed purge has hidden everything, and needs none to continue."""
    if all(plan.is_empty for plan in plans) or (digest and digest == combine_digests(plans)):
        return
    names = ", ".join(plan.slug for plan in plans)
    if not digest:
        raise UserInputError(
            f"nothing was changed: a purge of {names} without confirmation needs --plan with the digest that --dry-run "
            "shows (--yes is not enough)"
        )
    raise UserInputError(
        f"nothing was changed: {digest[:80]!r} is not the digest of the current plan of {names}. Check the plan again "
        "with --dry-run, and give --plan the digest that it shows"
    )


def plan_purge(workspace: Workspace, slug: str, definition: str, *, files: bool = True) -> PurgePlan:
    """Plans the purge of ``slug``; nothing is changed. Memory stays flat: stored records are numbers.

    Without ``files`` stored files are not read: enough to know whether the target has captures.
    Raises ``EnvironmentFault`` if the lake cannot be read, and if it has unknown tables.
    """
    lake = workspace.lake
    refuse_unknown_tables(lake)
    states = read_states(lake, {"target": Prefix(slug)})
    states = states.filter(
        pa.array([whole_slug(target) == slug for target in states["target"].to_pylist()], pa.bool_())
    )
    slices = sorted({Slice(*key) for key in zip(*(states[name].to_pylist() for name in SLICE), strict=True)})
    by_table = states.group_by("table").aggregate([("rows", "sum")])
    counts = dict(zip(by_table["table"].to_pylist(), by_table["rows_sum"].to_pylist(), strict=True))
    rows = {spec.name: counts.get(spec.name, 0) for spec in lake.specs.values() if spec.has_targets}
    rows["targets"] = len(find_defining_slugs(lake, {slug}))
    stored = _Stored()
    for crawl, targets in group_targets_by_crawl(slices).items() if files and rows["records"] else ():
        _count_stored(lake, crawl, {slug, *targets}, stored)
    holders = sorted(stored.holders)
    return PurgePlan(
        slug,
        definition,
        tuple(slices),
        rows,
        stored.records,
        stored.bytes,
        stored.kept_records,
        tuple(holders),
        _describe_copies(workspace, stored.kept_records, holders),
    )


def find_unknown_tables(lake: Lake) -> dict[str, tuple[str, str]]:
    """Returns the tables that may have rows of targets and that no purge knows, each with the reason and what to do:
    they are not declared, or cannot be read. Raises ``EnvironmentFault`` if the lake cannot be listed."""
    reasons: dict[str, tuple[str, str]] = {}
    for name in lake.other_tables():
        try:
            handle = lake.handle(TableSpec(name, pa.schema([])))
        except EnvironmentFault as fault:
            reasons[name] = f"the table cannot be read ({fault.problem})", str(fault.advice)
            continue
        if handle is None:
            reasons[name] = "the table has files, but no log that names the files", _UNKNOWN_TABLE
        elif "target" in {field.name for field in handle.schema().fields}:
            reasons[name] = "this version of cc_pipeline does not know the table", _UNKNOWN_TABLE
    return reasons


def refuse_unknown_tables(lake: Lake) -> None:
    """Raises ``EnvironmentFault`` if a table may have rows of targets that a purge would not find."""
    for name, (reason, advice) in find_unknown_tables(lake).items():
        raise EnvironmentFault(
            f"no target can be purged: {lake.address(name)} may have rows of targets that a purge cannot find: "
            f"{reason}",
            advice,
        )


@dataclass(slots=True)
class _Stored:
    """As in :class:`PurgePlan`."""

    records: int = 0
    bytes: int = 0
    kept_records: int = 0
    holders: set[str] = field(default_factory=set)


def _count_stored(lake: Lake, crawl: str, slugs: Collection[str], stored: _Stored) -> None:
    """Adds the stored records of ``slugs`` in ``crawl``."""
    collector = LocationCollector()
    for rows in _stream_stored(lake, crawl, slugs):
        collector.add(_as_places(rows))
    places = collector.places()
    lengths, is_shared = np.zeros(len(places), np.int64), np.zeros(len(places), bool)
    for rows in _stream_stored(lake, crawl, slugs):
        lengths[places.positions(_as_places(rows))] = rows.column("stored_length").to_numpy()
    own_slugs = pa.array(sorted(slugs), pa.string())
    for rows in stream_crawl(lake, "records", crawl, ["target", *STORED]) if len(places) else ():
        other_rows = rows.filter(pc.invert(pc.is_in(rows.column("target"), value_set=own_slugs)))
        positions = places.positions(_as_places(other_rows))
        is_shared[positions[positions >= 0]] = True
        sharing_targets = other_rows.column("target").filter(pa.array(positions >= 0)).unique()
        stored.holders |= {whole_slug(target) for target in sharing_targets.to_pylist()}
    stored.records += int(np.count_nonzero(~is_shared))
    stored.bytes += int(lengths[~is_shared].sum())
    stored.kept_records += int(np.count_nonzero(is_shared))


def _as_places(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The stored locations of rows under the column names of captures, so that they can be numbered."""
    return pa.RecordBatch.from_arrays([rows.column(name) for name in STORED[:2]], names=list(PLACE_NAME))


def _stream_stored(lake: Lake, crawl: str, targets: Collection[str]) -> Iterator[pa.RecordBatch]:
    where = {"crawl": crawl, "target": sorted(targets)}
    for batch in stream_rows(lake, "records", where, STORED):
        yield batch.filter(pc.is_valid(batch.column("stored_file")))


def _describe_copies(workspace: Workspace, kept_count: int, holders: Sequence[str]) -> tuple[str, ...]:
    settings = workspace.settings
    lines = ["deliveries, exports, copies of cc.duckdb, backups of the home: delete them yourself"]
    if kept_count:
        names = ", ".join(holders[:5]) + (" …" if len(holders) > 5 else "")
        lines.append(
            f"{format_count(kept_count, 'record')} that other targets use too ({names}): to delete them, purge those "
            "targets as well"
        )
    if other_homes := find_other_publications(workspace.place, settings.home):
        last_published = max(other_homes.values())
        lines.append(
            f"cc.duckdb of {format_count(len(other_homes), 'other home')} on this lake: each shows the rows until its "
            "home publishes again, or 30 days after its last publication (the newest is of "
            f"{last_published:%Y-%m-%d %H:%M} UTC)"
        )
    if workspace.lake.pin("source_files").rows:
        lines.append("pages of the same sites in files of your own (cc-pipeline files add)")
    return tuple(lines)
