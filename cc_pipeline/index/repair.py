"""Computes key bounds of row groups that were published without any: reads the key column, and stores the bounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault, SourceRefuses
from cc_pipeline.index.catalog.schemas import KEY_COLUMN
from cc_pipeline.index.footers.decode import ColumnChunk, decode_footer
from cc_pipeline.index.footers.statistics import REPAIRED
from cc_pipeline.index.footers.store import CrawlFooters, FooterStore, KeyBounds, footer_digest
from cc_pipeline.index.parquet.decoding import ColumnLayout, decode_batches
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import ENVIRONMENT_KINDS, FaultKind, RangeFault
from cc_pipeline.transport.ranges import ByteRange


def read_bounds(
    layout: ColumnLayout, data: bytes, rows: int, *, source: str, offset: int
) -> tuple[bytes, bytes] | None:
    """Returns the smallest and largest of the ``rows`` values of a column chunk, ``None`` if all are null.

    ``data`` is the chunk with its dictionary, read at ``offset`` of ``source``. Raises ``DataFault``.
    """
    if layout.physical != "BYTE_ARRAY":
        raise DataFault(
            DataKind.UNSUPPORTED, source, offset, f"column {layout.name} has type {layout.physical}, not text"
        )
    low: bytes | None = None
    high: bytes | None = None
    for batch in decode_batches(layout, data, rows, source=source, offset=offset):
        extremes = pc.min_max(batch.cast(pa.large_binary())).as_py()
        if extremes["min"] is not None:
            low = extremes["min"] if low is None else min(low, extremes["min"])
            high = extremes["max"] if high is None else max(high, extremes["max"])
    return None if low is None or high is None else (low, high)


def known_bounds(footers: CrawlFooters) -> dict[tuple[str, int], KeyBounds]:
    """Returns the stored bounds of the current files in ``footers``, by path and row group."""
    # row groups of a file mostly have the same version of it
    is_current: dict[tuple[str, int, str], bool] = {}
    valid_bounds = {}
    for bounds in footers.read_bounds():
        file = (bounds.path, bounds.size, bounds.footer)
        if file not in is_current:
            is_current[file] = _match_footers(bounds, footers)
        if is_current[file]:
            valid_bounds[bounds.path, bounds.row_group] = bounds
    return valid_bounds


def _match_footers(bounds: KeyBounds, footers: CrawlFooters) -> bool:
    """Whether the current file in ``footers`` is the one that was read."""
    entry = footers.entries.get(bounds.path)
    if entry is None or entry.failed or entry.file_size != bounds.size:
        return False
    try:
        return footer_digest(footers.footer(bounds.path)) == bounds.footer
    except DataFault:
        return False


def apply_bounds(row_groups: pa.Table, bounds: Mapping[tuple[str, int], KeyBounds]) -> pa.Table:
    """Returns ``row_groups`` with the stored key bounds for row groups without any."""
    if not bounds:
        return row_groups
    names = [f"{KEY_COLUMN}_{part}" for part in ("min", "max", "source")]
    rows = row_groups.select(["path", "row_group", *names]).to_pylist()
    for row in rows:
        repaired = bounds.get((row["path"], row["row_group"]))
        if repaired is not None and row[names[2]] is None:
            row.update(zip(names, (repaired.minimum, repaired.maximum, REPAIRED), strict=True))
    for name in names:
        index = row_groups.schema.get_field_index(name)
        field = row_groups.schema.field(index)
        row_groups = row_groups.set_column(index, field, pa.array([row[name] for row in rows], field.type))
    return row_groups


#: A repair stops after this many requests that failed because of the source, and not because of a file.
_MAX_SOURCE_FAULTS: int = 10


@dataclass(frozen=True, slots=True)
class UnboundedRowGroup:
    """A row group without key bounds, and the chunk that has to be read to find them."""

    path: str
    etag: str | None
    file_size: int | None
    footer: str
    row_group: int
    rows: int
    layout: ColumnLayout
    chunk: ColumnChunk


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The plan of a repair: ``row_groups`` to read and their ``bytes``. ``unrepairable`` ones cannot be repaired, with
    the reasons."""

    row_groups: tuple[UnboundedRowGroup, ...]
    bytes: int
    unrepairable: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True, slots=True)
class RepairReport:
    """The result of a repair; ``failed`` row groups (path, number, reason) still match every key."""

    repaired: int
    remaining: int
    failed: tuple[tuple[str, int, str], ...]
    requests: int
    bytes: int
    seconds: float


def plan_repair(crawl: str, index_files: Sequence[str], store: FooterStore) -> RepairPlan:
    """Returns the row groups of a crawl that have no key bounds, from the stored footers alone."""
    footers = store.read(crawl)
    stored_bounds = known_bounds(footers)
    repairable: list[UnboundedRowGroup] = []
    unrepairable: list[tuple[str, int, str]] = []
    for path in dict.fromkeys(index_files):
        if path not in footers:
            continue
        entry = footers.entries[path]
        try:
            footer = footers.footer(path)
            rows = decode_footer(footer, entry.file_size or 0, path, (KEY_COLUMN,), (KEY_COLUMN,))
        except DataFault:
            continue  # crawl_tables reports it
        file, column = (path, entry.etag, entry.file_size, footer_digest(footer)), rows.schema.column(KEY_COLUMN)
        for group in rows.row_groups:
            is_bounded = group.statistics[KEY_COLUMN].source is not None or (path, group.row_group) in stored_bounds
            if is_bounded or not group.rows:
                continue
            chunk = group.chunks.get(KEY_COLUMN)
            if chunk is None or column is None:
                unrepairable.append((path, group.row_group, f"the row group has no column {KEY_COLUMN}"))
            elif chunk.is_unreadable:
                unrepairable.append((path, group.row_group, f"column {KEY_COLUMN} is encrypted or in another file"))
            else:
                layout = ColumnLayout(KEY_COLUMN, column.physical, column.repetition, chunk.codec)
                repairable.append(UnboundedRowGroup(*file, group.row_group, group.rows, layout, chunk))
    return RepairPlan(tuple(repairable), sum(group.chunk.size for group in repairable), tuple(unrepairable))


def repair_row_groups(
    crawl: str,
    index_files: Sequence[str],
    transport: Transport,
    store: FooterStore,
    *,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> RepairReport:
    """Reads the key column of every row group without bounds and keeps the bounds.

    Sends one request per row group. A row group that cannot be read is reported and left as it is. Raises
    ``EnvironmentFault`` when the source fails. Bounds read until then stay, and the next call goes on from there.
    """
    started = time.monotonic()
    plan = plan_repair(crawl, index_files, store)
    failed = list(plan.unrepairable)
    repaired = requests = size = source_faults = 0
    ranges = (
        ByteRange(group.path, group.chunk.offset, group.chunk.size, group.etag, group, total=group.file_size)
        for group in plan.row_groups
    )
    for requests, outcome in enumerate(transport.read_many(ranges), start=1):
        group = outcome.tag
        assert isinstance(group, UnboundedRowGroup)
        if isinstance(outcome, RangeFault):
            failed.append((group.path, group.row_group, f"{outcome.kind.value}: {outcome.detail}"))
            source_faults += outcome.kind in ENVIRONMENT_KINDS
            if outcome.kind is FaultKind.REFUSED or source_faults >= _MAX_SOURCE_FAULTS:
                raise (SourceRefuses if isinstance(outcome, SourceRefuses) else EnvironmentFault)(
                    f"the repair of key bounds stopped at {group.path}: {outcome.kind.value}, {outcome.detail}",
                    "Repaired row groups are kept. Run the command again: the repair continues from there.",
                ) from outcome
        else:
            size += len(outcome.data)
            reason = _repair(group, outcome.data, crawl, store)
            repaired += not reason
            failed += [(group.path, group.row_group, reason)] if reason else []
        on_progress(requests, len(plan.row_groups))
    return RepairReport(
        repaired,
        len(plan.row_groups) + len(plan.unrepairable) - repaired,
        tuple(failed),
        requests,
        size,
        time.monotonic() - started,
    )


def _repair(group: UnboundedRowGroup, data: bytes, crawl: str, store: FooterStore) -> str:
    """Stores the bounds of the keys in ``data``. Returns the reason if there are none, else an empty text."""
    try:
        extremes = read_bounds(group.layout, data, group.rows, source=group.path, offset=group.chunk.offset)
    except DataFault as fault:
        return fault.reason
    if extremes is None:
        return "all keys of the row group are null"
    size = -1 if group.file_size is None else group.file_size
    store.put_bounds(crawl, KeyBounds(group.path, group.row_group, *extremes, size=size, footer=group.footer))
    return ""
