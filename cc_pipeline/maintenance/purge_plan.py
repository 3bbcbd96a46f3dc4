"""The plan of a purge: what it deletes (rows, stored bytes that no other target has), and what it leaves."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

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
class StoredShare:
    """A stored file that rows of the target name: the numbers of its ``records`` and ``bytes`` that no other target
    has, and whether rows of other targets name the file (``shared``)."""

    file: str
    records: int
    bytes: int
    shared: bool


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """The plan of a purge: ``rows`` by table; ``files`` by crawl; ``kept_records`` records that ``holders``, other
    targets, have too. ``out_of_reach`` are sentences about copies that it cannot delete."""

    slug: str
    definition: str
    slices: tuple[Slice, ...]
    rows: Mapping[str, int]
    files: Mapping[str, tuple[StoredShare, ...]]
    kept_records: int
    holders: tuple[str, ...]
    out_of_reach: tuple[str, ...]

    @property
    def digest(self) -> str:
        """A short digest of everything that would be deleted."""
        files = {crawl: [asdict(share) for share in shares] for crawl, shares in self.files.items()}
        slices = [(slice_.crawl, slice_.target) for slice_ in self.slices]
        return compute_input_digest(
            {"slug": self.slug, "slices": slices, "rows": self.rows, "files": files, "kept": self.kept_records}
            | {"holders": self.holders}
        )

    @property
    def is_empty(self) -> bool:
        """Whether the home has at most the definition of the target, and the results of its lookups."""
        return not any(count for table, count in self.rows.items() if table != "targets")

    @property
    def records(self) -> int:
        """The number of stored records that are deleted."""
        return sum(share.records for shares in self.files.values() for share in shares)

    @property
    def bytes(self) -> int:
        """The bytes of these records."""
        return sum(share.bytes for shares in self.files.values() for share in shares)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences on what is deleted besides the rows, and on what is kept."""
        lines = [
            f"{format_count(self.records, 'stored record')} ({self.bytes:,} bytes) that only this target uses: "
            f"{format_count(self.count_files(shared=False), 'file', 'are')} deleted, "
            f"{format_count(self.count_files(shared=True), 'shared file', 'are')} rewritten without these records",
            "its definition, its line on the watch list, its partition key and its partitions in the UI",
        ]
        return (*lines, *(f"kept: {text}" for text in self.out_of_reach))

    def count_files(self, *, shared: bool) -> int:
        """Counts the files that are rewritten without these records (``shared``), or deleted."""
        return sum(share.shared == shared and share.records > 0 for shares in self.files.values() for share in shares)


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
    stored: dict[str, tuple[StoredShare, ...]] = {}
    kept_count, holders = 0, set[str]()
    for crawl, targets in group_targets_by_crawl(slices).items() if files and rows["records"] else ():
        shares, shared_count, other_slugs = _count_shares(lake, crawl, {slug, *targets})
        stored[crawl] = shares
        kept_count, holders = kept_count + shared_count, holders | other_slugs
    return PurgePlan(
        slug,
        definition,
        tuple(slices),
        rows,
        {crawl: shares for crawl, shares in stored.items() if shares},
        kept_count,
        tuple(sorted(holders)),
        _describe_copies(workspace, kept_count, sorted(holders)),
    )


def find_unknown_tables(lake: Lake) -> dict[str, tuple[str, str]]:
    """Returns the tables that may have rows of targets and that no purge knows, each with the reason and what to do:
    they are not declared, or cannot be read. Raises ``EnvironmentFault`` if the lake cannot be listed."""
    reasons: dict[str, tuple[str, str]] = {}
    for name in lake.other_tables():
        try:
            handle = lake.handle(TableSpec(name, pa.schema([])))
        except EnvironmentFault as fault:
            reasons[name] = f"the table cannot be read ({fault.problem})", fault.advice
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


def rows_of_files(lake: Lake, crawl: str, files: Collection[str]) -> Iterator[pa.RecordBatch]:
    """Yields ``target`` and stored location of the rows of a crawl that name any of these stored files."""
    file_names = pa.array(sorted(files), pa.string())
    for batch in stream_crawl(lake, "records", crawl, ["target", *STORED]):
        file_rows = batch.filter(pc.is_in(batch.column("stored_file"), value_set=file_names))
        if file_rows.num_rows:
            yield file_rows


def as_places(rows: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """Returns the stored locations of rows under the column names of captures, so that they can be numbered."""
    file, offset = (rows.column(name) for name in STORED[:2])
    if isinstance(rows, pa.Table):
        file, offset = file.combine_chunks(), offset.combine_chunks()
    return pa.RecordBatch.from_arrays([file, offset], names=list(PLACE_NAME))


def _count_shares(lake: Lake, crawl: str, slugs: Collection[str]) -> tuple[tuple[StoredShare, ...], int, set[str]]:
    """Returns the shares of ``slugs`` targets in stored files, the number of shared records, and the other targets."""
    places_found = LocationCollector()
    for rows in _stored_rows(lake, crawl, slugs):
        places_found.add(as_places(rows))
    places = places_found.places()
    if not len(places):
        return (), 0, set()
    names = [name for name in places.files if name is not None]
    number = {name: index for index, name in enumerate(names)}
    lengths, files = np.zeros(len(places), np.int64), np.zeros(len(places), np.int32)
    for rows in _stored_rows(lake, crawl, slugs):
        positions = places.positions(as_places(rows))
        lengths[positions] = rows.column("stored_length").to_numpy()
        files[positions] = _numbers(rows.column("stored_file"), number)
    stays, shared, holders = np.zeros(len(places), bool), np.zeros(len(names), bool), set[str]()
    own_slugs = pa.array(sorted(slugs), pa.string())
    for rows in rows_of_files(lake, crawl, names):
        other_rows = rows.filter(pc.invert(pc.is_in(rows.column("target"), value_set=own_slugs)))
        shared[_numbers(other_rows.column("stored_file"), number)] = True
        positions = places.positions(as_places(other_rows))
        stays[positions[positions >= 0]] = True
        sharing_targets = pc.unique(other_rows.column("target").filter(pa.array(positions >= 0)))
        holders |= {whole_slug(target) for target in sharing_targets.to_pylist()}
    counts = np.bincount(files[~stays], minlength=len(names))
    sizes = np.bincount(files[~stays], weights=lengths[~stays], minlength=len(names))
    shares = [
        StoredShare(name, int(counts[index]), int(sizes[index]), bool(shared[index]))
        for name, index in sorted(number.items())
    ]
    return tuple(shares), int(np.count_nonzero(stays)), holders


def _stored_rows(lake: Lake, crawl: str, targets: Collection[str]) -> Iterator[pa.RecordBatch]:
    where = {"crawl": crawl, "target": sorted(targets)}
    for batch in stream_rows(lake, "records", where, ["target", *STORED]):
        rows = batch.filter(pc.is_valid(batch.column("stored_file")))
        if rows.num_rows:
            yield rows


def _numbers(names: pa.Array, number: Mapping[str, int]) -> Any:
    coded = pc.dictionary_encode(names)
    numbers = np.array([number[name] for name in coded.dictionary.to_pylist()], np.int64)
    return numbers[coded.indices.to_numpy(zero_copy_only=False)] if len(numbers) else np.zeros(0, np.int64)


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
