"""Computes key bounds of row groups that were published without any: reads the key column, and logs the bounds."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.atomic import sync
from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault, SourceRefuses
from cc_pipeline.index.catalog.schemas import KEY_COLUMN
from cc_pipeline.index.etag_aliases import RangeReader, same_files
from cc_pipeline.index.footers.decode import ColumnChunk, FooterRows, codec_number, decode_footer
from cc_pipeline.index.footers.statistics import REPAIRED
from cc_pipeline.index.footers.store import CrawlFooters, FooterEntry, FooterStore, footer_digest
from cc_pipeline.index.parquet.decoding import ColumnLayout, decode_batches
from cc_pipeline.transport.faults import ENVIRONMENT_KINDS, FaultKind, RangeFault, is_changed_etag
from cc_pipeline.transport.ranges import ByteRange, RangeBytes

#: Values decoded at a time, because a whole decoded column would be too large for memory.
_BATCH_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """The smallest and largest value of a column in one row group, read from the values themselves. ``size`` and
    ``footer`` (its digest) identify the file, since a source may send no ETags."""

    path: str
    etag: str | None
    row_group: int
    minimum: bytes
    maximum: bytes
    column: str = KEY_COLUMN
    size: int = -1
    footer: str = ""

    def match_footers(self, footers: CrawlFooters) -> bool:
        """Whether the current file in ``footers`` is the one that was read."""
        entry = footers.entries.get(self.path)
        if entry is None or entry.failed or entry.file_size != self.size or is_changed_etag(entry.etag, self.etag):
            return False
        try:
            return footer_digest(footers.footer(self.path)) == self.footer
        except DataFault:
            return False


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
    for batch in decode_batches(layout, data, rows, _BATCH_ROWS, source=source, offset=offset):
        extremes = pc.min_max(batch.cast(pa.large_binary())).as_py()
        if extremes["min"] is not None:
            low = extremes["min"] if low is None else min(low, extremes["min"])
            high = extremes["max"] if high is None else max(high, extremes["max"])
    return None if low is None or high is None else (low, high)


class RepairLog:
    """The log of bounds already read, one JSON line each, in a crawl's folder of the footer store."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "key-bounds.jsonl"

    def read(self) -> dict[tuple[str, int], KeyBounds]:
        """Returns the logged bounds, by path and row group; a line cut by a crash is left out."""
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return {}
        parsed_lines = (_parsed(line) for line in lines)
        return {(bounds.path, bounds.row_group): bounds for bounds in parsed_lines if bounds is not None}

    def add(self, bounds: KeyBounds) -> None:
        """Logs one row group's bounds. Raises ``EnvironmentFault`` if the disk refuses."""
        values = {
            "path": bounds.path,
            "etag": bounds.etag,
            "row_group": bounds.row_group,
            "column": bounds.column,
            "size": bounds.size,
            "footer": bounds.footer,
            "min": base64.b64encode(bounds.minimum).decode(),
            "max": base64.b64encode(bounds.maximum).decode(),
        }
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # a newline first, since a crash may have left half a line
            with self.path.open("ab") as handle:
                handle.write(b"\n" + json.dumps(values).encode())
                handle.flush()
                sync(handle.fileno())
        except OSError as error:
            raise EnvironmentFault(f"{self.path} cannot be written: {error}", "Check the home's disk.") from error


def known_bounds(footers: CrawlFooters) -> dict[tuple[str, int], KeyBounds]:
    """Returns the logged bounds of the current files in ``footers``, by path and row group."""
    logged_bounds = RepairLog(footers.folder).read()
    # row groups of a file mostly have the same version of it
    is_current: dict[tuple[str, str | None, int, str], bool] = {}
    valid_bounds = {}
    for place, bounds in logged_bounds.items():
        file = (bounds.path, bounds.etag, bounds.size, bounds.footer)
        if file not in is_current:
            is_current[file] = bounds.match_footers(footers)
        if is_current[file]:
            valid_bounds[place] = bounds
    return valid_bounds


def apply_bounds(row_groups: pa.Table, bounds: Mapping[tuple[str, int], KeyBounds]) -> pa.Table:
    """Returns ``row_groups`` with the logged key bounds for row groups without any."""
    names = [f"{KEY_COLUMN}_{part}" for part in ("min", "max", "source", "min_truncated", "max_truncated")]
    if not bounds or any(name not in row_groups.column_names for name in names):
        return row_groups
    columns = {name: row_groups[name].to_pylist() for name in names}
    places = zip(row_groups["path"].to_pylist(), row_groups["row_group"].to_pylist(), strict=True)
    changed = False
    for row, place in enumerate(places):
        repaired = bounds.get(place)
        if repaired is None or columns[names[2]][row] is not None:
            continue
        changed = True
        for name, value in zip(names, (repaired.minimum, repaired.maximum, REPAIRED, False, False), strict=True):
            columns[name][row] = value
    if not changed:
        return row_groups
    for name in names:
        index = row_groups.schema.get_field_index(name)
        field = row_groups.schema.field(index)
        row_groups = row_groups.set_column(index, field, pa.array(columns[name], field.type))
    return row_groups


def _parsed(line: bytes) -> KeyBounds | None:
    try:
        values = json.loads(line)
        low, high = (base64.b64decode(values[name], validate=True) for name in ("min", "max"))
        etag = values["etag"]
        return KeyBounds(
            str(values["path"]),
            None if etag is None else str(etag),
            int(values["row_group"]),
            low,
            high,
            str(values["column"]),
            int(values["size"]),
            str(values["footer"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


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

    crawl: str
    repaired: int
    remaining: int
    failed: tuple[tuple[str, int, str], ...]
    requests: int
    bytes: int
    seconds: float


@dataclass(slots=True)
class _Run:
    log: RepairLog
    repaired: int = 0
    lost: int = 0
    requests: int = 0
    bytes: int = 0
    failed: list[tuple[str, int, str]] = field(default_factory=list)

    def take(self, outcome: RangeBytes | RangeFault) -> None:
        group = outcome.tag
        assert isinstance(group, UnboundedRowGroup)
        self.requests += 1
        if isinstance(outcome, RangeFault):
            self._fault(group, outcome)
            return
        self.bytes += len(outcome.data)
        try:
            bounds = read_bounds(group.layout, outcome.data, group.rows, source=group.path, offset=group.chunk.offset)
        except DataFault as fault:
            self.failed.append((group.path, group.row_group, fault.reason))
            return
        if bounds is None:
            self.failed.append((group.path, group.row_group, "all keys of the row group are null"))
            return
        size = -1 if group.file_size is None else group.file_size
        read = KeyBounds(group.path, group.etag, group.row_group, *bounds, size=size, footer=group.footer)
        self.log.add(read)
        self.repaired += 1

    def _fault(self, group: UnboundedRowGroup, fault: RangeFault) -> None:
        self.failed.append((group.path, group.row_group, f"{fault.kind.value}: {fault.detail}"))
        self.lost += fault.kind in ENVIRONMENT_KINDS
        if fault.kind is FaultKind.BREAKER_OPEN or self.lost >= _MAX_SOURCE_FAULTS:
            raise (SourceRefuses if isinstance(fault, SourceRefuses) else EnvironmentFault)(
                f"the repair of key bounds stopped at {group.path}: {fault.kind.value}, {fault.detail}",
                "Repaired row groups are kept. Run the command again: the repair continues from there.",
            ) from fault


def plan_repair(crawl: str, index_files: Sequence[str], store: FooterStore) -> RepairPlan:
    """Returns the row groups of a crawl that have no key bounds, from the stored footers alone."""
    footers = store.read(crawl)
    stored_bounds = known_bounds(footers)
    repairable: list[UnboundedRowGroup] = []
    unrepairable: list[tuple[str, int, str]] = []
    for entry, rows in _decoded(index_files, footers):
        for group in rows.row_groups:
            path = entry.path
            if group.statistics[KEY_COLUMN].source is not None or not group.rows:
                continue
            if (path, group.row_group) in stored_bounds:
                continue
            chunk = group.chunks.get(KEY_COLUMN)
            column = rows.schema.column(KEY_COLUMN)
            if chunk is None or column is None:
                unrepairable.append((path, group.row_group, f"the row group has no column {KEY_COLUMN}"))
            elif chunk.is_encrypted or chunk.is_in_other_file:
                unrepairable.append((path, group.row_group, f"column {KEY_COLUMN} is encrypted or in another file"))
            else:
                layout = ColumnLayout(KEY_COLUMN, column.physical, column.repetition, codec_number(chunk.codec))
                file = (path, entry.etag, entry.file_size, footer_digest(footers.footer(path)))
                repairable.append(UnboundedRowGroup(*file, group.row_group, group.rows, layout, chunk))
    return RepairPlan(tuple(repairable), sum(group.chunk.size for group in repairable), tuple(unrepairable))


def repair_row_groups(
    crawl: str,
    index_files: Sequence[str],
    transport: RangeReader,
    store: FooterStore,
    *,
    max_groups: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> RepairReport:
    """Reads the key column of every row group without bounds (at most ``max_groups`` of them) and keeps the bounds.

    Sends one request per row group. A row group that cannot be read is reported and left as it is. Raises
    ``EnvironmentFault`` when the source fails. Bounds read until then stay, and the next call goes on from there.
    """
    started = time.monotonic()
    plan = plan_repair(crawl, index_files, store)
    selected_groups = plan.row_groups if max_groups is None else plan.row_groups[:max_groups]
    run = _Run(RepairLog(store.crawl_folder(crawl)), failed=list(plan.unrepairable))
    ranges = (
        ByteRange(group.path, group.chunk.offset, group.chunk.size, group.etag, group, total=group.file_size)
        for group in selected_groups
    )
    for outcome in same_files(transport, store).read_many(ranges):
        run.take(outcome)
        if on_progress is not None:
            on_progress(run.requests, len(selected_groups))
    return RepairReport(
        crawl,
        run.repaired,
        len(plan.row_groups) + len(plan.unrepairable) - run.repaired,
        tuple(run.failed),
        run.requests,
        run.bytes,
        time.monotonic() - started,
    )


def _decoded(index_files: Sequence[str], footers: CrawlFooters) -> Iterator[tuple[FooterEntry, FooterRows]]:
    for path in dict.fromkeys(index_files):
        if path in footers:
            entry = footers.entries[path]
            try:
                footer = footers.footer(path)
                yield entry, decode_footer(footer, entry.file_size or 0, path, (KEY_COLUMN,), (KEY_COLUMN,))
            except DataFault:
                continue  # crawl_tables reports it
