"""What purging a target would take away: rows, stored bytes that no other target holds, exports; and what it cannot.

A purge that has begun leaves a note in the lake's place (``PurgeNote``), so that one that was killed goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.capture_columns import SLICE
from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.commoncrawl.slice_slugs import whole_slug, with_subset
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.lake.digests.digest import input_digest
from cc_pipeline.lake.lake import DigestsUnknown, Lake, TableSpec
from cc_pipeline.lake.slice import Slice, Stage, targets_by_crawl
from cc_pipeline.lake.snapshot import published_elsewhere
from cc_pipeline.lake.streaming import count_rows, stream_crawl, stream_rows
from cc_pipeline.lake.target_definitions import slugs_of
from cc_pipeline.records.leases import RUNS, leases_of, living
from cc_pipeline.records.places import PLACE_NAME, PlacesFound
from cc_pipeline.records.storage import STORED
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.workspace.tables import all_tables
from cc_pipeline.workspace.workspace import Workspace, export_prefix

_FOLDER: Final = "purges/"
_LONGEST: Final = 256 << 20
#: What to do about a table that may have rows of targets, and that nobody knows.
UNKNOWN_TABLE: Final = (
    "Install the extension that made it, or take it out of CC_PIPELINE_WITHOUT (cc-pipeline extensions lists those "
    "that are left out or broken). Where nobody needs the table, delete its folder."
)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PurgeNote:
    """``files`` (by crawl) are stored files with records that are to go; ``old`` those of them that no row named any
    more once they were dealt with, which only wait for their deletion. ``removed_at`` is when the rows were gone,
    ``begun`` names the receipt. ``plan`` is the digest of the plan that was begun with."""

    slug: str
    definition: str
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    old: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    crawls: tuple[str, ...] = ()
    removed_at: datetime | None = None
    begun: str = ""
    plan: str = ""

    @property
    def all_files(self) -> dict[str, tuple[str, ...]]:
        """Every stored file that has, or had, records that are to go, by crawl."""
        crawls = sorted({*self.files, *self.old})
        return {crawl: tuple(sorted({*self.files.get(crawl, ()), *self.old.get(crawl, ())})) for crawl in crawls}

    def with_files(self, files: Mapping[str, tuple[str, ...]]) -> PurgeNote:
        """With more files to deal with."""
        crawls = sorted({*self.files, *files})
        return replace(
            self, files={crawl: tuple(sorted({*self.files.get(crawl, ()), *files.get(crawl, ())})) for crawl in crawls}
        )

    def dealt_with(self, crawl: str, files: tuple[str, ...]) -> PurgeNote:
        """With these files of ``crawl`` among the old ones."""
        left = tuple(one for one in self.files.get(crawl, ()) if one not in set(files))
        old = tuple(sorted({*self.old.get(crawl, ()), *files}))
        return replace(self, files={**self.files, crawl: left}, old={**self.old, crawl: old})


def write_note(place: Transport, note: PurgeNote) -> None:
    """Writes the note down, in the place of the one before. Raises ``EnvironmentFault``."""
    at = None if note.removed_at is None else note.removed_at.isoformat()
    place.put(_key(note.slug), (json.dumps(asdict(note) | {"removed_at": at}) + "\n").encode())


def read_note(place: Transport, slug: str) -> PurgeNote | None:
    """The note of a purge that has begun and not ended. Raises ``EnvironmentFault``, also for a note that is none."""

    def of(noted: Any) -> PurgeNote:
        at = noted["removed_at"]
        return PurgeNote(
            str(noted["slug"]),
            str(noted["definition"]),
            {str(crawl): tuple(map(str, files)) for crawl, files in noted["files"].items()},
            {str(crawl): tuple(map(str, files)) for crawl, files in noted["old"].items()},
            tuple(map(str, noted["crawls"])),
            None if at is None else datetime.fromisoformat(at).astimezone(UTC),
            str(noted.get("begun", "")),
            str(noted.get("plan", "")),
        )

    advice = "It was not written by this version. Delete it, and purge the target again."
    return read_json(place, _key(slug), of, "does not say what a purge has begun", advice)


def read_json(place: Transport, key: str, of: Callable[[Any], T], trouble: str, advice: str) -> T | None:
    """What ``of`` makes of the JSON of an object of the lake; ``None`` where there is none. Raises
    ``EnvironmentFault`` with ``trouble`` and ``advice`` for one that ``of`` cannot take."""
    try:
        return of(json.loads(place.read_all(key, _LONGEST).data))
    except RangeFault as fault:
        if fault.kind is FaultKind.NOT_FOUND:
            return None
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EnvironmentFault(f"{place.source}/{key} {trouble}", advice) from error


def begun(place: Transport) -> list[PurgeNote]:
    """All purges that have begun and not ended. Raises ``EnvironmentFault``."""
    slugs = [one.key.removeprefix(_FOLDER).removesuffix(".json") for one in place.listing(_FOLDER)]
    notes = (read_note(place, slug) for slug in slugs if not slug.startswith("."))
    return [note for note in notes if note is not None]


def end_note(place: Transport, slug: str) -> None:
    """Removes the note. Raises ``EnvironmentFault``."""
    place.delete(_key(slug))


def _key(slug: str) -> str:
    return f"{_FOLDER}{slug}.json"


@dataclass(frozen=True, slots=True)
class StoredShare:
    """A stored file that rows of the target name: how many of its records, and bytes, no other target holds, and
    whether other targets' rows name the file."""

    file: str
    records: int
    bytes: int
    shared: bool


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """What would go. ``rows`` by table; ``files`` by crawl; ``kept`` records that ``holders``, other targets, hold too;
    ``exports`` files with ``export_bytes``; ``out_of_reach`` are sentences about copies that stay."""

    slug: str
    definition: str
    slices: tuple[Slice, ...]
    rows: Mapping[str, int]
    files: Mapping[str, tuple[StoredShare, ...]]
    kept: int
    holders: tuple[str, ...]
    exports: tuple[str, ...]
    export_bytes: int
    out_of_reach: tuple[str, ...]

    @property
    def digest(self) -> str:
        """A short digest of all that would go: of another plan it is another one."""
        files = {crawl: [asdict(one) for one in own] for crawl, own in self.files.items()}
        slices = [(one.crawl, one.target) for one in self.slices]
        return input_digest(
            {"slug": self.slug, "slices": slices, "rows": self.rows, "files": files, "kept": self.kept}
            | {"holders": self.holders, "exports": self.exports, "export_bytes": self.export_bytes}
        )

    @property
    def found_nothing(self) -> bool:
        """Whether nothing is here of the target but its definition, and what became of looking for it."""
        uncounted = {"targets", *(spec.name for spec in all_tables() if spec.has_row_a_slice)}
        held = sum(count for table, count in self.rows.items() if table not in uncounted)
        return not held and not self.exports

    @property
    def records(self) -> int:
        """Stored records that go."""
        return sum(one.records for own in self.files.values() for one in own)

    @property
    def bytes(self) -> int:
        """Their bytes."""
        return sum(one.bytes for own in self.files.values() for one in own)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What goes beside the rows, and what stays, for a person."""
        said = [
            f"{self.records:,} stored records ({self.bytes:,} bytes) that no other target holds: "
            f"{self.files_where(shared=False):,} files go, {self.files_where(shared=True):,} that others share are "
            "written again without them",
            "its definition, its line on the watch list, its partition key and what the UI has of its partitions",
        ]
        if self.exports:
            said.append(f"{len(self.exports):,} exported files ({self.export_bytes:,} bytes)")
        return (*said, *(f"stays: {text}" for text in self.out_of_reach))

    def files_where(self, *, shared: bool) -> int:
        """Files that are written again without these records (``shared``), or go whole."""
        return sum(one.shared == shared and one.records > 0 for own in self.files.values() for one in own)


def digest_of_all(plans: Sequence[PurgePlan]) -> str:
    """One digest of several plans, in any order; that of one plan alone is its own."""
    digests = sorted(plan.digest for plan in plans)
    return digests[0] if len(digests) == 1 else input_digest({"plans": digests})


def refuse_unseen(place: Transport, plans: Sequence[PurgePlan], digest: str) -> None:
    """Raises ``UserInputError`` unless ``digest`` is that of ``plans``, which a dry run shows: whoever gives it has
    seen what goes, and nothing else goes meanwhile. A purge that was killed goes on by the digest it was begun with."""
    killed = [read_note(place, plan.slug) for plan in plans if len(plans) == 1]
    begun = {note.plan for note in killed if note is not None and note.removed_at is None}
    if digest and digest in {digest_of_all(plans), *begun}:
        return
    names = ", ".join(plan.slug for plan in plans)
    if not digest:
        raise UserInputError(
            f"nothing was changed: to purge {names} without being asked (--yes alone is no answer to that), give the "
            "digest that a dry run shows of its plan"
        )
    raise UserInputError(
        f"nothing was changed: {digest[:80]!r} is not the plan of purging {names} as it is now; do a dry run again"
    )


def plan_purge(workspace: Workspace, slug: str, definition: str, *, files: bool = True) -> PurgePlan:
    """What purging ``slug`` would take away now; nothing is changed. Memory stays flat: stored records are numbers.

    Without ``files`` stored files are not looked at: enough to know whether the target found anything.
    Raises ``EnvironmentFault`` when the lake or its place cannot be read, and where it has tables that nobody knows.
    """
    lake = workspace.lake
    refuse_unknown_tables(lake)
    slices = slices_of_target(lake, slug)
    own = sorted({slug, *(one.target for one in slices)})
    crawls = sorted({one.crawl for one in slices})
    where = {"crawl": crawls, "target": own}
    rows = {spec.name: sum(count_rows(lake, spec.name, where, ["crawl"]).values()) for spec in purged_tables(lake)}
    rows["targets"] = len(slugs_of(lake, {slug}))
    stored: dict[str, tuple[StoredShare, ...]] = {}
    kept, holders = 0, set[str]()
    for crawl, targets in targets_by_crawl(slices).items() if files and rows["records"] else ():
        shares, also, others = _shares(lake, crawl, {slug, *targets})
        stored[crawl] = shares
        kept, holders = kept + also, holders | others
    exports = [one for crawl in crawls for one in workspace.place.listing(export_prefix(crawl, slug))]
    return PurgePlan(
        slug,
        definition,
        tuple(slices),
        rows,
        {crawl: shares for crawl, shares in stored.items() if shares},
        kept,
        tuple(sorted(holders)),
        tuple(one.key for one in exports),
        sum(one.size for one in exports),
        _out_of_reach(workspace, kept, sorted(holders)),
    )


def purged_tables(lake: Lake) -> list[TableSpec]:
    """The tables with rows of targets in crawls, in the order in which a purge empties them: against the way that a
    value travels, so that what is made from other rows goes before them."""
    return [spec for spec in reversed(lake.specs.values()) if spec.has_targets]


def find_unknown_tables(lake: Lake) -> dict[str, str]:
    """The tables in the lake that nothing says how to purge, each with why, and whose rows may be of targets: nobody
    declares or noted them, or they cannot be read. Raises ``EnvironmentFault`` where the lake cannot be listed."""
    found: dict[str, str] = {}
    for name in lake.other_tables():
        try:
            handle = lake.handle(TableSpec(name, pa.schema([])))
        except EnvironmentFault as fault:
            found[name] = f"it cannot be read ({fault.what})"
            continue
        if handle is None:
            # made, and never written to, by a process that was killed
            if lake.has_files(name):
                found[name] = "it has files and no log that names them"
        elif "target" in {field.name for field in handle.schema().fields}:
            found[name] = "no extension in use declares it, and the home has no note of it"
    return found


def refuse_unknown_tables(lake: Lake) -> None:
    """Raises ``EnvironmentFault`` where a table may have rows of targets that a purge would not find."""
    for name, why in find_unknown_tables(lake).items():
        raise EnvironmentFault(
            f"{lake.address(name)} may have rows of targets, and nothing says how they are removed: {why}",
            UNKNOWN_TABLE,
        )


def slices_of_target(lake: Lake, slug: str) -> list[Slice]:
    """Every slice that was ever made of a target, of its parts and of those it was divided into before."""
    found: set[Slice] = set()
    for spec in purged_tables(lake):
        if spec.has_row_a_slice:
            # written before the others, so a run that was killed may have left a row of no slice
            for batch in stream_rows(lake, spec.name, {}, SLICE):
                mine = batch.filter(pc.starts_with(batch.column("target"), slug)).to_pylist()
                found |= {Slice(row["crawl"], row["target"]) for row in mine if whole_slug(row["target"]) == slug}
        elif spec.stage is not None:
            found |= {one for one in _made_slices(lake, spec.name, spec.stage) if whole_slug(one.target) == slug}
    return sorted(found)


def _made_slices(lake: Lake, table: str, stage: Stage) -> Iterator[Slice]:
    try:
        made = [stage.slice_of(name) for name in lake.digest_names(table, stage.names_begin)]
    except DigestsUnknown:
        made = [Slice(*key) for key in count_rows(lake, table, {})]
    return (one for one in made if one is not None)


def being_fetched(workspace: Workspace, slug: str, crawls: Collection[str]) -> list[str]:
    """Those of ``crawls`` in which a running fetch, of whatever home, has the target (or does not say what it has)."""
    return [
        crawl
        for crawl in sorted(crawls)
        if any(
            held.targets is None or slug in map(whole_slug, held.targets) for held in living(workspace.storage, crawl)
        )
    ]


def slices_of_left_runs(workspace: Workspace, slugs: Collection[str]) -> list[Slice]:
    """What runs that were left, of whatever home, may have made of ``slugs``: one that was only stopped may be about to
    commit a slice that nobody else knows. Raises ``EnvironmentFault``."""
    found: set[Slice] = set()
    for run in leases_of(workspace.storage, RUNS)[1]:
        own = [slug for slug in slugs if not run.is_gone and run.is_about([slug])]
        parts = [part for several in workspace.parts(own).values() for part in several]
        found |= {Slice(c, with_subset(part, s)) for c in run.crawls for s in SUBSETS for part in parts}
    return sorted(found)


def rows_of_files(lake: Lake, crawl: str, files: Collection[str]) -> Iterator[pa.RecordBatch]:
    """``target`` and stored place of the rows of a crawl that name any of these stored files."""
    named = pa.array(sorted(files), pa.string())
    for batch in stream_crawl(lake, lake.pin("records"), crawl, ["target", *STORED]):
        mine = batch.filter(pc.is_in(batch.column("stored_file"), value_set=named))
        if mine.num_rows:
            yield mine


def as_places(rows: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """The stored places of rows under the names of places of captures, to number them (``records/places.py``)."""
    file, offset = (rows.column(name) for name in STORED[:2])
    if isinstance(rows, pa.Table):
        file, offset = file.combine_chunks(), offset.combine_chunks()
    return pa.RecordBatch.from_arrays([file, offset], names=list(PLACE_NAME))


def _shares(lake: Lake, crawl: str, own: Collection[str]) -> tuple[tuple[StoredShare, ...], int, set[str]]:
    """What ``own`` targets have of each stored file; how many of their records others have too; and which others."""
    found = PlacesFound()
    for rows in _stored_rows(lake, crawl, own):
        found.add(as_places(rows))
    places = found.places()
    if not len(places):
        return (), 0, set()
    names = [name for name in places.files if name is not None]
    number = {name: index for index, name in enumerate(names)}
    lengths, files = np.zeros(len(places), np.int64), np.zeros(len(places), np.int32)
    for rows in _stored_rows(lake, crawl, own):
        at = places.positions(as_places(rows))
        lengths[at] = rows.column("stored_length").to_numpy()
        files[at] = _numbers(rows.column("stored_file"), number)
    stays, shared, holders = np.zeros(len(places), bool), np.zeros(len(names), bool), set[str]()
    mine = pa.array(sorted(own), pa.string())
    for rows in rows_of_files(lake, crawl, names):
        others = rows.filter(pc.invert(pc.is_in(rows.column("target"), value_set=mine)))
        shared[_numbers(others.column("stored_file"), number)] = True
        at = places.positions(as_places(others))
        stays[at[at >= 0]] = True
        both = pc.unique(others.column("target").filter(pa.array(at >= 0)))
        holders |= {whole_slug(target) for target in both.to_pylist()}
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
    known = np.array([number[name] for name in coded.dictionary.to_pylist()], np.int64)
    return known[coded.indices.to_numpy(zero_copy_only=False)] if len(known) else np.zeros(0, np.int64)


def _out_of_reach(workspace: Workspace, kept: int, holders: Sequence[str]) -> tuple[str, ...]:
    settings = workspace.settings
    said = ["deliveries, copies of cc.duckdb and of exports, and backups of the home: delete them there"]
    if kept:
        named = ", ".join(holders[:5]) + (" …" if len(holders) > 5 else "")
        said.append(f"{kept:,} of its records that other targets hold too ({named}): purge those as well")
    if settings.lake_is_apart and (others := published_elsewhere(workspace.place, settings.home)):
        when = max(others.values())
        said.append(
            f"cc.duckdb of {len(others):,} other homes on this lake: each keeps what it shows until it publishes again,"
            f" or 30 days from its last publication (the newest is of {when:%Y-%m-%d %H:%M} UTC)"
        )
    if workspace.lake.pin("source_files").rows:
        said.append("pages of the same sites in files that were read whole (cc-pipeline files add)")
    return tuple(said)
