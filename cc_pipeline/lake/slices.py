"""The state of slices: one row of the table ``slices`` for each slice and stage, whose append is the commit.

A stage appends its rows under new generations, and then a row that names them. That row is committed only if what it
was made from is still so: the row that it replaces, the content of the stage before, the target's definition and epoch.
So four page tables are of one run, and nothing is committed in part.

    CC-MAIN-2024-22  example.org  locate  seq 1  captures: generation 7301, 45 rows, content c01d…
    CC-MAIN-2024-22  example.org  fetch   seq 1  records: generation 9044, 45 rows, content 77e2…   from c01d…
    CC-MAIN-2024-22  example.org  fetch   seq 2  records: generation 2210, 45 rows, content 81ab…   from c01d…

A row counts while it has the greatest ``seq`` of its slice and stage, and the epoch of its target: a purge changes the
epoch (``target_definitions.py``). Rows of slices without a target have epoch 0.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from cc_pipeline.capture_columns import TIMESTAMP
from cc_pipeline.commoncrawl.slice_slugs import whole_slug
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake.content_digests import NOTHING
from cc_pipeline.lake.files import WrittenRows, write_rows
from cc_pipeline.lake.keyed import TRIES, Row, commit_fault, newest_rows, read_newest, update_rows, write_keyed
from cc_pipeline.lake.lake import REMOVED, SEQ, Lake, TableSpec
from cc_pipeline.lake.layout import StoredFile
from cc_pipeline.lake.ordered import find_group_starts
from cc_pipeline.lake.predicates import Where, scan
from cc_pipeline.lake.slice import VERSION, Metrics, Slice, Stage

#: The stage of a row that names generations which nobody may commit any more (``compaction.py``).
CONDEMNED: Final = "condemned"
#: Rows that are objects at a time.
_NOTES: Final = 10_000
#: How long a reader may take that pinned ``slices`` before the tables.
_READING: Final = timedelta(hours=1)
_STATE: Final = pa.struct([("generation", pa.int64()), ("rows", pa.int64()), ("content", pa.string())])
SLICES_SCHEMA: Final = pa.schema(
    [
        pa.field("crawl", pa.string(), nullable=False),
        pa.field("target", pa.string(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        SEQ,
        pa.field("input", pa.map_(pa.string(), pa.string())),
        pa.field("tables", pa.map_(pa.string(), _STATE)),
        pa.field("note", pa.string()),
        pa.field("details", pa.string()),
        pa.field("committed_at", TIMESTAMP),
        pa.field("attempt", pa.string()),
    ]
)
#: ``note`` and ``details`` are JSON: ``details`` is large and seldom read.
SLICES: Final = TableSpec(
    "slices",
    SLICES_SCHEMA,
    key=("crawl", "target", "stage", "epoch"),
    sort_by=("target", "stage", "epoch", "seq"),
)
_COLUMNS: Final = [name for name in SLICES_SCHEMA.names if name != "details"]
#: The column of ``targets`` that says which rows of ``slices`` count.
EPOCH: Final = pa.field("epoch", pa.int64())


@dataclass(frozen=True, slots=True)
class TableState:
    """The rows that a slice has in a table: their ``generation``, their number, and the digest of their content."""

    generation: int
    rows: int
    content: str = NOTHING


@dataclass(frozen=True, slots=True)
class SliceRow:
    """The state of one slice and stage. ``input`` has what the rows were made from, field by field; a plan compares it.
    ``tables`` is empty while nothing was made. ``note`` has values for people, as JSON; ``details`` the large ones,
    which are read on request alone."""

    slice_: Slice
    stage: str
    epoch: int
    seq: int
    input: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, TableState] = field(default_factory=dict)
    note: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] | None = None
    committed_at: datetime | None = None
    attempt: str = ""

    @property
    def content(self) -> str:
        """The digest of the content of all rows, which is an input of the next stage."""
        return "".join(state.content for state in self.tables.values())

    @property
    def metrics(self) -> Metrics:
        """``rows:TABLE`` and ``version:TABLE`` of each table: equal versions stand for equal content."""
        rows: Metrics = {f"rows:{table}": state.rows for table, state in self.tables.items()}
        return rows | {f"{VERSION}{table}": state.content for table, state in self.tables.items()}


class SlicesChanged(EnvironmentFault):
    """What ``slices`` were made from changed before they could be committed; the others of their group were
    committed. ``relocate``: the captures have to be located again, because a definition or the blocklist changed."""

    slices: frozenset[Slice] = frozenset()
    relocate = False


@dataclass(frozen=True, slots=True)
class Base:
    """What a commit was made from: the rows that it replaces, the ``epochs`` of the slices, and the state of an
    earlier stage whose rows were read (``expected``). ``find_changed`` gives slices whose definition or blocks changed
    since."""

    epochs: Mapping[Slice, int]
    replaced: Mapping[Slice, SliceRow]
    expected: Mapping[tuple[Slice, str], SliceRow] = field(default_factory=dict)
    find_changed: Callable[[Collection[Slice]], Collection[Slice]] = lambda slices: ()


def read_epochs(lake: Lake, slices: Iterable[Slice]) -> dict[Slice, int]:
    """The epoch of each slice's target; 0 for targets that are not defined."""
    slices = list(slices)
    by_slug = read_target_rows(lake, {whole_slug(slice_.target) for slice_ in slices})
    return {slice_: _epoch_of(by_slug, slice_.target) for slice_ in slices}


def refuse_changed_epochs(lake: Lake, epochs: Mapping[Slice, int]) -> None:
    """Raises ``SlicesChanged`` if targets of slices were purged, or defined anew, since their ``epochs`` were read."""
    if changed := {slice_ for slice_, epoch in read_epochs(lake, epochs).items() if epoch != epochs[slice_]}:
        raise _build_change_error(changed, True)


def read_target_rows(lake: Lake, slugs: Collection[str]) -> dict[str, dict[str, Any]]:
    """The rows of ``targets`` with their epoch, by slug: those of removed targets too, which have no epoch."""
    spec = lake.specs["targets"]
    handle = lake.handle(spec)
    names = sorted({*slugs} - {""})
    if handle is None or not names:
        return {}
    rows = newest_rows(lake, spec, handle, {"slug": names}, [EPOCH.name]).to_pylist()
    return {row["slug"]: row | ({EPOCH.name: None} if row[REMOVED.name] else {}) for row in rows}


def _epoch_of(target_rows: Mapping[str, Mapping[str, Any]], target: str) -> int:
    """The epoch of a slice's ``target`` by the rows of targets."""
    row = target_rows.get(whole_slug(target))
    return 0 if row is None else row[EPOCH.name] or 0


def read_slice_rows(
    lake: Lake, slices: Collection[Slice], stages: Collection[Stage] = (), *, details: bool = False
) -> dict[tuple[Slice, str], SliceRow]:
    """The rows that count, by slice and label of the stage (default: of all stages). Raises ``EnvironmentFault``."""
    if not slices:
        return {}
    columns = SLICES_SCHEMA.names if details else _COLUMNS
    newest = read_newest(lake, SLICES.name, _where(slices), columns)
    labels = {stage.label for stage in stages}
    requested = set(slices)
    rows = [row for row in parse_rows(newest) if row.slice_ in requested and (not labels or row.stage in labels)]
    # the targets after the slices: a purge that began in between hides the rows
    by_slug = read_target_rows(lake, {whole_slug(row.slice_.target) for row in rows})
    return {(row.slice_, row.stage): row for row in rows if row.epoch == _epoch_of(by_slug, row.slice_.target)}


def list_slices(lake: Lake, stage: Stage, where: Mapping[str, str | Sequence[str]] | None = None) -> list[Slice]:
    """The slices of ``stage`` that were made (of a crawl or of targets, if ``where`` says so), in order."""
    rows = current_rows(lake, where, ["tables"])
    rows = rows.filter(pc.equal(rows["stage"], stage.label))
    rows = rows.filter(pc.is_valid(_generations_of(rows, stage.main_table)))
    return sorted(Slice(*pair) for pair in zip(rows["crawl"].to_pylist(), rows["target"].to_pylist(), strict=True))


def stream_slice_rows(
    lake: Lake,
    stages: Collection[Stage],
    where: Mapping[str, str | Sequence[str]] | None = None,
    *,
    details: bool = False,
) -> Iterator[SliceRow]:
    """The rows of ``stages`` that count, of all slices or of those ``where`` names: one state, a batch of objects at a
    time. Raises ``EnvironmentFault``."""
    rows = current_rows(lake, where, SLICES_SCHEMA.names if details else _COLUMNS)
    labels = pa.array([stage.label for stage in stages])
    for batch in rows.filter(pc.is_in(rows["stage"], labels)).to_batches(max_chunksize=_NOTES):
        yield from parse_rows(pa.Table.from_batches([batch]))


def read_notes(
    lake: Lake, stages: Collection[Stage], where: Mapping[str, str | Sequence[str]] | None = None
) -> Iterator[SliceRow]:
    """Of these rows, those that have a note."""
    return (row for row in stream_slice_rows(lake, stages, where) if row.note)


def current_rows(
    lake: Lake, where: Mapping[str, str | Sequence[str]] | None = None, columns: Sequence[str] = ()
) -> pa.Table:
    """The rows that count, of all slices or of those ``where`` names, as a table with the columns of the key, ``seq``
    and ``columns``. Memory grows by some hundred bytes a row."""
    spec = lake.specs[SLICES.name]
    names = [*spec.key, SEQ.name, *columns]
    rows = read_newest(lake, SLICES.name, where, list(dict.fromkeys(names)))
    return rows.filter(has_current_epoch(lake, rows))


def has_current_epoch(lake: Lake, rows: pa.Table, by_slug: dict[str, dict[str, Any]] | None = None) -> pa.ChunkedArray:
    """Whether the epoch of each row is that of its target; null if its target's definition was lost. ``by_slug`` are
    the rows of targets that the caller knows, and gets."""
    if not rows.num_rows:
        return pa.chunked_array([pa.array([], pa.bool_())])
    encoded = rows["target"].combine_chunks().dictionary_encode()
    targets = encoded.dictionary.to_pylist()
    by_slug = {} if by_slug is None else by_slug
    by_slug |= read_target_rows(lake, {whole_slug(target) for target in targets} - by_slug.keys())
    epochs = pa.array([_epoch_of(by_slug, target) for target in targets], pa.int64()).take(encoded.indices)
    is_equal = pc.equal(rows["epoch"].combine_chunks(), epochs)
    is_defined = pa.array([whole_slug(target) in by_slug for target in targets], pa.bool_()).take(encoded.indices)
    return pa.chunked_array([pc.if_else(pc.or_(is_equal, is_defined), is_equal, pa.scalar(None, pa.bool_()))])


def current_generations(lake: Lake, table: str, where: Mapping[str, str | Sequence[str]] | None = None) -> pa.Array:
    """The generations of ``table`` that count, of all slices or of those ``where`` names. Read them before the table's
    files are pinned."""
    if "target" not in lake.specs[table].slice_columns:
        where = {**(where or {}), "target": ""}  # a crawl may have rows of a hundred thousand targets
    return _generations_of(current_rows(lake, where, ["tables"]), table).drop_null()


@dataclass(frozen=True, slots=True)
class Liveness:
    """The generations of a table in a crawl that rows of ``slices`` name: those ``alive``, which count or were
    superseded within the last hour, so that a reader may still ask for them; those of ``purged`` targets, whose stored
    records may not be deleted yet; and the others, which are ``dead``."""

    alive: set[int]
    dead: set[int]
    purged: set[int]

    @property
    def every(self) -> set[int]:
        """All of them."""
        return self.alive | self.dead | self.purged


def read_liveness(lake: Lake, table: str, crawl: str) -> Liveness:
    """What the rows of ``slices`` say now about the generations of ``table`` in ``crawl``. Pin the table first."""
    rows, is_alive, is_purged = _judge_rows(lake, {"crawl": crawl})
    if not rows.num_rows:
        return Liveness(set(), set(), set())
    numbers = _generations_of(rows, table)
    # a generation that counts may have rows that were superseded: of other notes
    every, alive, purged = (
        {*generations.drop_null().to_pylist()}
        for generations in (numbers, *(numbers.filter(pa.array(mask)) for mask in (is_alive, is_purged)))
    )
    return Liveness(alive, every - alive - purged, purged - alive)


def read_purged(lake: Lake, where: Where | None = None) -> pa.Table:
    """The rows of ``slices`` of purged targets: all that were ever committed, with ``tables``, until
    :func:`remove_purged` takes them away."""
    purged = []
    # not all at once: the rows of all slices may be very many
    for crawl in lake.pin(SLICES.name).crawls or [""]:
        rows, _, is_purged = _judge_rows(lake, {**(where or {}), "crawl": crawl})
        purged.append(rows.filter(pa.array(is_purged, pa.bool_())))
    return pa.concat_tables(purged)


def _judge_rows(lake: Lake, where: Where) -> tuple[pa.Table, Any, Any]:
    """All rows of ``slices`` in the order of their keys, and which of them count, or did within the last hour, and
    which are of purged targets."""
    spec = lake.specs[SLICES.name]
    handle = lake.handle(spec)
    names = [*spec.key, SEQ.name, REMOVED.name, "tables", "committed_at"]
    schema = pa.schema([spec.stored_schema.field(name) for name in names])
    rows = schema.empty_table() if handle is None else pa.Table.from_batches(scan(handle, schema, where), schema)
    if not rows.num_rows:
        return rows, np.zeros(0, bool), np.zeros(0, bool)
    rows = rows.take(pc.sort_indices(rows.drop_columns("tables"), [(n, "ascending") for n in (*spec.key, SEQ.name)]))
    rows = rows.combine_chunks()
    # a definition that was lost is restored: until then nothing of its target counts, and nothing is dropped
    has_epoch = has_current_epoch(lake, rows)
    is_lost = has_epoch.is_null().to_numpy()
    has_epoch = has_epoch.fill_null(False).to_numpy()
    starts = find_group_starts(pa.concat_batches(rows.select(list(spec.key)).to_batches()), spec.key)
    ends = np.append(starts[1:], rows.num_rows)
    is_newest = np.zeros(rows.num_rows, bool)
    is_newest[ends - 1] = True
    is_removed = np.repeat(rows[REMOVED.name].to_numpy()[ends - 1], ends - starts)
    # a row was superseded when the next one of its key was committed
    next_times = pa.concat_arrays([*rows["committed_at"].chunks, pa.nulls(1, TIMESTAMP)])[1:]
    since = pa.scalar(datetime.now(UTC) - _READING, TIMESTAMP)
    is_late = pc.fill_null(pc.greater(next_times, since), False).to_numpy(zero_copy_only=False)
    is_alive = (has_epoch & np.where(is_newest, ~is_removed, is_late)) | is_lost
    return rows, is_alive, ~has_epoch & ~is_lost & ~is_removed


def remove_purged(lake: Lake, crawl: str, purged: pa.Table) -> None:
    """Takes rows of :func:`read_purged` of ``crawl`` away, once their own rows are in no table any more. Rows that were
    committed since stay. Raises ``EnvironmentFault``."""
    names = [*SLICES.key, SEQ.name]
    purged_keys = {*zip(*(purged[name].to_pylist() for name in names), strict=True)}
    now = {REMOVED.name: True, "committed_at": datetime.now(UTC)}

    def build(stored: list[Row]) -> list[Row]:
        rows = [row for row in stored if tuple(row[name] for name in names) in purged_keys]
        return [{name: row[name] for name in SLICES.key} | now for row in rows]

    update_rows(lake, SLICES.name, {"crawl": crawl, "target": sorted({row[1] for row in purged_keys})}, build)


def _generations_of(rows: pa.Table, table: str) -> pa.Array:
    """The generation of ``table`` in each row; null where a row has none."""
    chunks = [
        pc.struct_field(pc.map_lookup(chunk, pa.scalar(table), "first"), "generation")
        for chunk in rows["tables"].chunks
    ]
    return pa.chunked_array(chunks, pa.int64()).combine_chunks()


def _where(slices: Iterable[Slice]) -> dict[str, list[str]]:
    return {
        "crawl": sorted({slice_.crawl for slice_ in slices}),
        "target": sorted({slice_.target for slice_ in slices}),
    }


def parse_rows(rows: pa.Table) -> Iterator[SliceRow]:
    """Rows of ``slices`` as objects; the column ``details`` may be missing."""
    for row in rows.to_pylist():
        tables = {name: TableState(**state) for name, state in row["tables"] or ()}
        details = row.get("details")
        yield SliceRow(
            Slice(row["crawl"], row["target"]),
            row["stage"],
            row["epoch"],
            row[SEQ.name],
            dict(row["input"] or ()),
            tables,
            json.loads(row["note"] or "{}"),
            None if details is None else json.loads(details),
            row["committed_at"],
            row["attempt"] or "",
        )


def draw_generations(slices: Iterable[Slice]) -> dict[Slice, int]:
    """A new generation for each slice: neighbours of a random number of 63 bits, which files store in few bits."""
    first = secrets.randbits(62)
    return {slice_: first + number for number, slice_ in enumerate(sorted(slices))}


def build_tables(
    stage: Stage, generations: Mapping[Slice, int], written: Mapping[str, WrittenRows]
) -> dict[Slice, dict[str, TableState]]:
    """The state of each slice in each table of ``stage``, after its rows were written."""
    return {
        slice_: {
            table: TableState(
                generation,
                written[table].rows.get(slice_.target, 0),
                written[table].contents.get(slice_.target, NOTHING),
            )
            for table in stage.tables
        }
        for slice_, generation in generations.items()
    }


def commit_slices(lake: Lake, rows: Sequence[SliceRow], base: Base) -> list[SliceRow]:
    """Commits the rows of slices, each with the next ``seq``, if nothing changed that they were made from. Returns them
    as they were committed.

    Raises ``SlicesChanged`` if some of them changed, after the others were committed; ``EnvironmentFault`` if the lake
    cannot be read or written.
    """
    attempt, now = secrets.token_hex(16), datetime.now(UTC)
    numbered = [
        replace(
            row,
            seq=base.replaced[row.slice_].seq + 1 if row.slice_ in base.replaced else 1,
            epoch=base.epochs[row.slice_],
            attempt=attempt,
            committed_at=now,
        )
        for row in rows
    ]
    written: tuple[list[SliceRow], list[StoredFile]] = ([], [])
    for _ in range(TRIES):
        with lake.fixed(SLICES.name) as handle:
            stored = _read_stored(lake, handle, numbered, base)
            committed = [row for row in numbered if getattr(stored.get(_key(row)), "attempt", "") == attempt]
            changed, is_redefined = ({}, False) if committed else _find_changed(lake, stored, numbered, base)
            safe = committed or [row for row in numbered if row.slice_ not in changed]
            if not committed and safe:
                if written[0] != safe:
                    written = safe, _write(lake, safe)
                if not lake.swap(SLICES.name, handle, written[1]):
                    continue
            if len(safe) < len(numbered):
                raise _build_change_error({row.slice_ for row in numbered} - {row.slice_ for row in safe}, is_redefined)
            return safe
    raise commit_fault(SLICES.name)


def _key(row: SliceRow) -> tuple[Slice, str, int]:
    return row.slice_, row.stage, row.epoch


def _read_stored(
    lake: Lake, handle: DeltaTable, rows: Sequence[SliceRow], base: Base
) -> dict[tuple[Slice, str, int], SliceRow]:
    """The newest rows of the slices, of all their stages, at the version of ``handle``; and those that condemn."""
    slices = {row.slice_ for row in rows} | {slice_ for slice_, _ in base.expected}
    where = _where([*slices, *(Slice(slice_.crawl) for slice_ in slices)])
    newest = newest_rows(lake, lake.specs[SLICES.name], handle, where)
    return {_key(row): row for row in parse_rows(newest)}


def _find_changed(
    lake: Lake, stored: Mapping[tuple[Slice, str, int], SliceRow], rows: Sequence[SliceRow], base: Base
) -> tuple[Collection[Slice], bool]:
    """The slices that changed since, and whether the definition or the blocks of any did."""
    epochs = read_epochs(lake, [row.slice_ for row in rows])
    redefined = {slice_ for slice_, epoch in epochs.items() if epoch != base.epochs[slice_]}
    redefined |= {*base.find_changed([row.slice_ for row in rows])}
    # not by content alone: rows of a generation that was superseded may have been dropped while they were read
    changed = {
        slice_
        for (slice_, label), read in base.expected.items()
        if (row := stored.get((slice_, label, base.epochs.get(slice_, 0)))) is None or row.tables != read.tables
    }
    condemned = {
        int(number)
        for row in stored.values()
        if row.stage == CONDEMNED and row.details
        for number in row.details["generations"]
    }
    for row in rows:
        replaced = base.replaced.get(row.slice_)
        current = stored.get(_key(row))
        old = {state.generation for state in replaced.tables.values()} if replaced else set()
        is_replaced = (current.seq if current else 0) != (replaced.seq if replaced else 0)
        if is_replaced or not condemned.isdisjoint({state.generation for state in row.tables.values()} - old):
            changed.add(row.slice_)
    return changed | redefined, bool(redefined)


def _write(lake: Lake, rows: Sequence[SliceRow]) -> list[StoredFile]:
    """Writes rows to files of ``slices``."""
    values = [
        {
            "crawl": row.slice_.crawl, "target": row.slice_.target, "stage": row.stage, "epoch": row.epoch,
            SEQ.name: row.seq, "input": dict(row.input), "committed_at": row.committed_at, "attempt": row.attempt,
            "tables": {name: {"generation": state.generation, "rows": state.rows, "content": state.content}
                       for name, state in row.tables.items()},
            "note": json.dumps(row.note, default=str),
            "details": None if row.details is None else json.dumps(row.details),
        }
        for row in rows
    ]  # fmt: skip
    return write_keyed(lake, lake.specs[SLICES.name], values)


def _build_change_error(slices: set[Slice], is_redefined: bool) -> SlicesChanged:
    slice_ = min(slices)
    target = slice_.partition.target or "its index"
    if is_redefined:
        problem = f"{target} in {slice_.crawl} was redefined, removed, blocked or unblocked during this run"
    else:
        problem = f"{target} in {slice_.crawl} was written by another run at the same time"
    error = SlicesChanged(problem, "Run it again: fetched records are kept and used.")
    error.slices, error.relocate = frozenset(slices), is_redefined
    return error


def commit_stage(
    lake: Lake,
    stage: Stage,
    inputs: Mapping[Slice, Mapping[str, str]],
    rows: Mapping[str, Iterable[pa.RecordBatch]],
    details: Mapping[Slice, Mapping[str, Any]] | None = None,
    base: Base | None = None,
) -> list[SliceRow]:
    """Replaces slices of one crawl by ``rows`` (by table), made from ``inputs``. Returns their new rows of ``slices``.

    The rows of slices follow each other by target. ``base`` is by default the state of now. Raises as
    :func:`commit_slices`, and any error of ``rows``.
    """
    if not inputs:
        return []
    base = read_base(lake, stage, inputs) if base is None else base
    generations = draw_generations(inputs)
    crawl = next(iter(inputs)).crawl
    by_target = {slice_.target: number for slice_, number in generations.items()}
    written = {table: write_rows(lake, table, crawl, rows[table], by_target) for table in stage.tables}
    return commit_written(lake, stage, inputs, written, generations, base, details=details or {})


def commit_written(
    lake: Lake,
    stage: Stage,
    inputs: Mapping[Slice, Mapping[str, str]],
    written: Mapping[str, WrittenRows],
    generations: Mapping[Slice, int],
    base: Base,
    *,
    notes: Mapping[Slice, Mapping[str, Any]] | None = None,
    details: Mapping[Slice, Mapping[str, Any] | None] | None = None,
) -> list[SliceRow]:
    """As :func:`commit_stage`, with rows that were written to files under ``generations``."""
    for table in stage.tables:
        lake.append(table, written[table].files)
    tables = build_tables(stage, generations, written)
    rows = [
        SliceRow(slice_, stage.label, 0, 0, input_, tables[slice_], (notes or {}).get(slice_, {}),
                 (details or {}).get(slice_))
        for slice_, input_ in inputs.items()
    ]  # fmt: skip
    return commit_slices(lake, rows, base)


def read_base(lake: Lake, stage: Stage, slices: Collection[Slice]) -> Base:
    """What a commit of ``slices`` replaces now."""
    rows = read_slice_rows(lake, slices, (stage,))
    return Base(read_epochs(lake, slices), {slice_: row for (slice_, _), row in rows.items()})


def find_stale(lake: Lake, stage: Stage, inputs: Mapping[Slice, Mapping[str, str]]) -> list[Slice]:
    """The slices that were not made from ``inputs``, in their order."""
    rows = read_slice_rows(lake, inputs.keys(), (stage,))
    return [
        slice_
        for slice_, input_ in inputs.items()
        if (row := rows.get((slice_, stage.label))) is None or row.input != input_ or not row.tables
    ]


def invalidate_slices(lake: Lake, stage: Stage, slices: Collection[Slice]) -> None:
    """Makes the next plan find ``slices`` to be made again by ``stage``, whatever their input; their rows count until
    then. Slices that another run commits meanwhile stay."""
    base = read_base(lake, stage, slices)
    rows = [replace(row, input={}) for row in base.replaced.values() if row.tables]
    if rows:
        with suppress(SlicesChanged):
            commit_slices(lake, rows, base)


def empty_slices(lake: Lake, stage: Stage, slices: Collection[Slice]) -> None:
    """Takes the rows of ``slices`` away: nothing counts any more. They may be of any crawls."""
    base = read_base(lake, stage, slices)
    if base.replaced:
        commit_slices(lake, [SliceRow(slice_, stage.label, 0, 0) for slice_ in base.replaced], base)
