"""Repair: key bounds of row groups whose writer left none, by reading their key column once.

Thirteen crawls of 2017 and 2018 have no statistics at all. The deprecated fields are used while decoding, where
they prove something; what remains is read here, some 23 MB a row group, and never again: the bounds are kept
beside the footers and ``crawl_tables`` puts them in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from cc_pipeline.errors import DataFault, EnvironmentFault
from cc_pipeline.extraction.harvest import RangeReader
from cc_pipeline.index.catalog_tables import KEY_COLUMN
from cc_pipeline.index.footer_store import CrawlFooters, FooterStore
from cc_pipeline.index.footers import ColumnChunk, FooterRows, codec_number, decode_footer
from cc_pipeline.index.parquet_assemble import ColumnLayout
from cc_pipeline.index.statistics_repair import KeyBounds, RepairLog, read_bounds
from cc_pipeline.transport.faults import ENVIRONMENT_KINDS, FaultKind, RangeFault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes

#: This many requests lost to the place, not to a file, end a repair.
_SICK: int = 10


@dataclass(frozen=True, slots=True)
class RowGroupWithout:
    """A row group without key bounds, and the chunk that has to be read to find them."""

    path: str
    etag: str | None
    row_group: int
    rows: int
    layout: ColumnLayout
    chunk: ColumnChunk


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What a repair would read: ``row_groups``, their ``bytes``; ``hopeless`` cannot be repaired, with reasons."""

    row_groups: tuple[RowGroupWithout, ...]
    bytes: int
    hopeless: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair did; ``failed`` row groups (path, number, reason) stay "may match"."""

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
        assert isinstance(group, RowGroupWithout)
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
            self.failed.append((group.path, group.row_group, "all its keys are null"))
            return
        self.log.add(KeyBounds(group.path, group.etag, group.row_group, *bounds))
        self.repaired += 1

    def _fault(self, group: RowGroupWithout, fault: RangeFault) -> None:
        self.failed.append((group.path, group.row_group, f"{fault.kind.value}: {fault.detail}"))
        self.lost += fault.kind in ENVIRONMENT_KINDS
        if fault.kind is FaultKind.BREAKER_OPEN or self.lost >= _SICK:
            raise EnvironmentFault(
                f"the repair stopped at {group.path}: {fault.kind.value}, {fault.detail}",
                "What was read is kept; run again and it goes on from there.",
            ) from fault


def plan_repair(crawl: str, index_files: Sequence[str], store: FooterStore) -> RepairPlan:
    """The row groups of a crawl that have no key bounds, from the stored footers alone."""
    footers = store.read(crawl)
    known = RepairLog(footers.folder).read()
    found: list[RowGroupWithout] = []
    hopeless: list[tuple[str, int, str]] = []
    for path, etag, rows in _decoded(index_files, footers):
        for group in rows.row_groups:
            bounds = known.get((path, group.row_group))
            if group.statistics[KEY_COLUMN].source is not None or not group.rows:
                continue
            if bounds is not None and bounds.etag == etag:
                continue
            chunk = group.chunks.get(KEY_COLUMN)
            column = rows.schema.column(KEY_COLUMN)
            if chunk is None or column is None:
                hopeless.append((path, group.row_group, f"it has no column {KEY_COLUMN}"))
            elif chunk.encrypted or chunk.elsewhere:
                hopeless.append((path, group.row_group, f"column {KEY_COLUMN} is encrypted or in another file"))
            else:
                layout = ColumnLayout(KEY_COLUMN, column.physical, column.repetition, codec_number(chunk.codec))
                found.append(RowGroupWithout(path, etag, group.row_group, group.rows, layout, chunk))
    return RepairPlan(tuple(found), sum(group.chunk.size for group in found), tuple(hopeless))


def repair_row_groups(
    crawl: str,
    index_files: Sequence[str],
    transport: RangeReader,
    store: FooterStore,
    *,
    most: int | None = None,
    concurrency: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> RepairReport:
    """Reads the key column of every row group without bounds (at most ``most`` of them) and keeps the bounds.

    One request a row group. A row group that cannot be read is reported and left as it is. Raises
    ``EnvironmentFault`` when the place is sick; what was read is kept, and the next call goes on from there.
    """
    started = time.monotonic()
    plan = plan_repair(crawl, index_files, store)
    chosen = plan.row_groups if most is None else plan.row_groups[:most]
    run = _Run(RepairLog(store.crawl_folder(crawl)), failed=list(plan.hopeless))
    asked = (ByteRange(group.path, group.chunk.offset, group.chunk.size, group.etag, group) for group in chosen)
    for outcome in transport.read_many(asked, concurrency):
        run.take(outcome)
        if on_progress is not None:
            on_progress(run.requests, len(chosen))
    return RepairReport(
        crawl,
        run.repaired,
        len(plan.row_groups) + len(plan.hopeless) - run.repaired,
        tuple(run.failed),
        run.requests,
        run.bytes,
        time.monotonic() - started,
    )


def _decoded(index_files: Sequence[str], footers: CrawlFooters) -> Iterator[tuple[str, str | None, FooterRows]]:
    for path in dict.fromkeys(index_files):
        if path in footers:
            entry = footers.entries[path]
            try:
                footer = footers.footer(path)
                yield path, entry.etag, decode_footer(footer, entry.file_size or 0, path, (KEY_COLUMN,), (KEY_COLUMN,))
            except DataFault:
                continue  # crawl_tables reports it
