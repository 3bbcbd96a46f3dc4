"""Builds the index of a crawl without a published one, archive file by archive file, after the cost was confirmed."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from cc_pipeline import interruption, progress
from cc_pipeline.advice import advise
from cc_pipeline.archive.gzip_members import Readable
from cc_pipeline.commoncrawl.crawls import index_is_built, news_month
from cc_pipeline.errors import DataFault, EnvironmentFault, Incomplete, SourceRefuses, UserInputError
from cc_pipeline.harvesting.archives import BuiltIndex, built_index
from cc_pipeline.index.archive_rows import BUILT_SCHEMA, ORDER, Row, Tally, index_rows, row_batch, write_shard
from cc_pipeline.index.gaps import index_advice
from cc_pipeline.index.shards import VERSION, Shard
from cc_pipeline.lake.content_digests import compute_input_digest
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.lake.slice import BUILT, Metrics, Slice, StageReport
from cc_pipeline.lake.slices import commit_stage, find_stale, read_slice_rows
from cc_pipeline.progress import format_count
from cc_pipeline.records.file_leases import is_orphaned_part_file
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.transport.read_ahead import PIECE, ReadAheadStream
from cc_pipeline.workspace.source_files import ARCHIVE, FAULTS, MAX_FAULT_ROWS, SourceFile
from cc_pipeline.workspace.workspace import Workspace, rate_now

_REVISITS: Final = "{:,} revisits are not indexed: a revisit has no page, only a reference to an earlier capture"
#: Files whose size is requested for the cost estimate; the others count with their average.
_ASKED_SIZES: Final = 12
#: Bytes of an archive file that one process indexes in a second; measured: some 25 MB/s.
_BYTES_PER_SECOND: Final = 20_000_000
#: Failed files in a row after which the build stops. Missing files do not count: the source answered, and the next
#: build would stop at the same files again.
_MAX_FAILURES_IN_ROW: Final = 3
#: Missing files after which a build of some of the files ends: each costs a request.
_MAX_ABSENT_FILES: Final = 100
_MAX_SHOWN: Final = 5
#: Rows sorted together, and between two checks for an interruption. A row has at most some 80 KB.
_BATCH_ROWS: Final = 256


@dataclass(frozen=True, slots=True)
class BuildEstimate:
    """The estimated cost of reading ``files`` of the ``total_files`` archive files of ``crawl``: ``bytes`` in
    ``requests``, which take at least ``seconds``. ``is_estimated`` is true if only some of the sizes are known."""

    crawl: str
    files: int
    total_files: int
    bytes: int
    requests: int
    seconds: float
    is_estimated: bool

    @property
    def summary(self) -> str:
        """The estimate in words."""
        built_files = self.total_files - self.files
        size = progress.human_bytes(self.bytes)
        span = f"{self.seconds / 3600:,.1f} hours" if self.seconds >= 3600 else f"{self.seconds / 60:,.0f} minutes"
        progress_text = f" ({built_files:,} of {self.total_files:,} are done)" if built_files else ""
        return (
            f"to index {self.crawl}, {format_count(self.files, 'archive file', 'have')} to be read "
            f"whole{progress_text}: "
            f"{'about ' if self.is_estimated else ''}{size} in {format_count(self.requests, 'request')}, {span} or more"
        )


@dataclass(slots=True)
class _BuildCounts:
    """The counts of a build."""

    files: list[Shard] = field(default_factory=list)
    rows: int = 0
    revisits: int = 0
    faults: int = 0
    notes: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def estimate_build(workspace: Workspace, index: BuiltIndex, max_files: int | None = None) -> BuildEstimate:
    """Estimates the cost of building the missing files of ``index``, at most ``max_files`` of them.

    Requests the sizes of at most a dozen files, or two dozen if the first ones are missing. Raises
    ``EnvironmentFault`` if the source does not answer.
    """
    missing = index.missing
    planned_shards = missing[:max_files]
    sizes, are_sizes_complete = _sizes(workspace, index.crawl, planned_shards)
    if len(planned_shards) < len(missing) and None in sizes:
        # later files are built in place of missing ones
        later_sizes, _ = _sizes(workspace, index.crawl, missing[len(planned_shards) :])
        sizes, are_sizes_complete = [*sizes, *later_sizes], False
    known_sizes = [size for size in sizes if size is not None]
    size = sum(known_sizes)
    requests = sum(map(_pieces, known_sizes)) + len(known_sizes)
    if not are_sizes_complete:
        size = round(size / max(1, len(known_sizes)) * len(planned_shards))
        requests = _pieces(size) + 2 * len(planned_shards)
    rate = rate_now(workspace)
    seconds = max(size / _BYTES_PER_SECOND, requests / rate if rate else 0.0)
    return BuildEstimate(
        index.crawl, len(planned_shards), len(index.shards), size, requests, seconds, not are_sizes_complete
    )


def _sizes(workspace: Workspace, crawl: str, shards: Sequence[Shard]) -> tuple[list[int | None], bool]:
    """Returns the sizes of at most a dozen archive files, ``None`` for a missing one, and whether these are all."""
    step = max(1, math.ceil(len(shards) / _ASKED_SIZES))
    sizes: list[int | None] = []
    for shard in shards[::step]:
        try:
            info = workspace.archives(crawl).head(shard.filename)
        except RangeFault as fault:
            raise EnvironmentFault(
                f"the size of {shard.filename} cannot be read ({fault.kind.value}: {fault.detail})",
                "Check the source and the network, then run it again.",
            ) from fault
        sizes.append(None if info is None else info.size or 0)
    return sizes, step == 1


def _pieces(size: int) -> int:
    return -(-size // PIECE)


def needs_yes(workspace: Workspace, price: BuildEstimate) -> bool:
    """Whether the user must confirm the cost: for a month always, for the user's own files only above the cost limit of
    a fetch."""
    settings = workspace.settings
    if not price.files:
        return False
    return news_month(price.crawl) is not None or price.bytes > settings.max_bytes


def refuse_unpriced(price: BuildEstimate) -> None:
    """Raises ``UserInputError`` with the cost and the command that confirms it."""
    raise UserInputError(
        f"{price.summary}. To confirm: {advise('index build', crawl=price.crawl, yes=True)} (--max-files 10 for a "
        "first part; a stopped build continues where it stopped)"
    )


def refuse_published(crawl: str) -> None:
    """Raises ``UserInputError`` for a crawl whose index is not built here, with what to do instead."""
    if not index_is_built(crawl):
        raise UserInputError(f"the index of {crawl} is published and not built here. {index_advice(crawl)}")


def build_index(workspace: Workspace, crawl: str, *, max_files: int | None = None) -> StageReport:
    """Builds the missing files of the index of ``crawl``, at most ``max_files`` of them. The caller asked whether the
    cost is agreed to. A file that the source does not have is skipped, and the next is built instead, up to a bound.

    Each file is complete or absent, and stays once it is written. An unreadable part of an archive file becomes a row
    of ``source_faults``; the records around it are indexed. Raises ``UserInputError`` for a crawl with a published
    index; ``Incomplete`` if the source did not give some files, after all others were built; ``EnvironmentFault`` if
    it does not answer, or the disk or the lake store fails.
    """
    refuse_published(crawl)
    started = time.monotonic()
    index = built_index(workspace, crawl)
    missing = index.missing
    planned_count = len(missing[:max_files])
    source = workspace.archives(crawl).stats
    requests, read = source.requests, source.bytes
    counts = _BuildCounts()
    _index_missing(workspace, crawl, missing, planned_count, counts)
    _drop_superseded(workspace, index)
    if counts.failed:
        raise Incomplete(
            f"{len(counts.failed):,} of {len(index.shards):,} archive files of {crawl} could not be read: "
            f"{'; '.join(counts.failed[:_MAX_SHOWN])}",
            "Files that could be read are indexed. To read the failed files again, run the same command.",
        )
    spent = workspace.archives(crawl).stats
    return StageReport(
        BUILT.label,
        rows=len(index.shards) - len(index.missing) + len(counts.files),
        written=len(counts.files),
        bytes=spent.bytes - read,
        requests=spent.requests - requests,
        seconds=time.monotonic() - started,
        fresh_slices=len(counts.files),
        reused_slices=len(index.shards) - len(index.missing),
        notes=(*counts.notes, *([_REVISITS.format(counts.revisits)] if counts.revisits else [])),
        per_target={crawl: _metrics(index, counts)},
    )


def _index_missing(
    workspace: Workspace, crawl: str, missing: Sequence[Shard], planned_count: int, counts: _BuildCounts
) -> None:
    """Indexes ``planned_count`` of the files, without those that the source does not have, and adds to ``counts``.
    Raises ``EnvironmentFault`` when the source refuses, or fails for many files in a row."""
    in_a_row = tried = absent = 0
    for number, shard in enumerate(missing):
        # every file that was read counts, also without a result: the estimate included it
        if tried == planned_count or (planned_count < len(missing) and absent > _MAX_ABSENT_FILES):
            break
        interruption.check()
        position = tried if planned_count < len(missing) else number
        progress.report("index archives", position, planned_count, shard.filename.rpartition("/")[2])
        try:
            _index_one(workspace, crawl, shard, counts)
            in_a_row = 0
            tried += 1
        except _ArchiveFileFault as lost:
            counts.failed.append(f"{shard.filename} ({lost.reason})")
            tried += not lost.absent
            absent += lost.absent
            in_a_row += not lost.absent
            if lost.stops or in_a_row == _MAX_FAILURES_IN_ROW:
                raise _stopped(
                    SourceRefuses if lost.stops else EnvironmentFault, crawl, counts, planned_count
                ) from lost
    progress.report("index archives", planned_count, planned_count)


def _metrics(index: BuiltIndex, counts: _BuildCounts) -> Metrics:
    return {
        "archive files": len(index.shards),
        "indexed before": len(index.shards) - len(index.missing),
        "indexed now": len(counts.files),
        "to be indexed": len(index.missing) - len(counts.files),
        "captures indexed now": counts.rows,
        "revisits, not indexed": counts.revisits,
        "parts that could not be read": counts.faults,
    }


class _ArchiveFileFault(Exception):
    """An archive file that the source did not give completely: ``reason``, whether it is ``absent`` there, and whether
    the build ``stops`` because no other file will come either."""

    def __init__(self, reason: str, *, absent: bool = False, stops: bool = False) -> None:
        self.reason = reason
        self.absent = absent
        self.stops = stops
        super().__init__(reason)


def _stopped(family: type[EnvironmentFault], crawl: str, counts: _BuildCounts, planned_count: int) -> EnvironmentFault:
    return family(
        f"building the index of {crawl} stopped after {len(counts.files):,} of {planned_count:,} files: "
        f"{'; '.join(counts.failed[-_MAX_FAILURES_IN_ROW:])}",
        "Indexed files are kept. Check the source and the network, then run the same command again.",
    )


def _index_one(workspace: Workspace, crawl: str, shard: Shard, counts: _BuildCounts) -> None:
    """Reads one archive file and writes its index to the lake store, unless another process has done so meanwhile."""
    if workspace.place.exists(shard.key):
        return
    place = workspace.archives(crawl)
    try:
        info = place.head(shard.filename)
    except RangeFault as fault:
        raise _as_file_fault(fault) from fault
    if info is None:
        raise _ArchiveFileFault("the source does not have the file", absent=True)
    if not info.size:
        raise _ArchiveFileFault("the file is empty, or the source does not tell its size", absent=True)
    tally, faults = Tally(), list[DataFault]()
    with ExitStack() as stack:
        folder = stack.enter_context(workspace.scratch_folder("built-index"))
        rows = OrderedRows(BUILT_SCHEMA, ORDER, folder)
        with ReadAheadStream(place, shard.filename, info.size, info.etag) as stream:
            try:
                _read(stream, shard, rows, tally, faults)
            except EnvironmentFault as fault:
                if stream.fault is None:
                    raise
                raise _as_file_fault(stream.fault) from fault
        index_metadata = {
            "version": VERSION,
            "crawl": crawl,
            "archive file": shard.filename,
            "bytes": info.size,
            "records": dict(tally.records),
            "faults": tally.faults,
        }
        path = folder / "index.parquet"
        write_shard(rows.drain(), index_metadata, path)
        # first, so that after a kill in between the file is read again, with its faults
        _commit_faults(workspace, crawl, shard, faults)
        # another process may have written the same bytes meanwhile: its object stays, with the ETag that readers know
        workspace.place.put(shard.key, path, only_if_absent=True)
    # memory of sorting and writing would stay reserved until the process ends
    pa.default_memory_pool().release_unused()
    counts.files.append(shard)
    counts.rows += tally.rows
    counts.revisits += tally.records["revisit"]
    counts.faults += tally.faults
    counts.notes += [str(fault) for fault in faults[: max(0, _MAX_SHOWN - len(counts.notes))]]


def _read(stream: Readable, shard: Shard, rows: OrderedRows, tally: Tally, faults: list[DataFault]) -> None:
    batch: list[Row] = []
    for row_or_fault in index_rows(stream, shard.filename, shard.segment, tally):
        if not tally.rows % _BATCH_ROWS:
            interruption.check()
        if not isinstance(row_or_fault, DataFault):
            batch.append(row_or_fault)
        elif len(faults) < MAX_FAULT_ROWS:
            faults.append(row_or_fault)
        if len(batch) == _BATCH_ROWS:
            rows.add(row_batch(batch))
            batch = []
    if batch:
        rows.add(row_batch(batch))


def _as_file_fault(fault: RangeFault) -> _ArchiveFileFault:
    return _ArchiveFileFault(f"{fault.kind.value}: {fault.detail}", stops=fault.kind is FaultKind.REFUSED)


def _commit_faults(workspace: Workspace, crawl: str, shard: Shard, faults: Sequence[DataFault]) -> None:
    slice_ = Slice(crawl, SourceFile(ARCHIVE, shard.filename, crawl).slug)
    shared: dict[str, Any] = {"source_kind": ARCHIVE, "source_file": shard.filename, **slice_.where}
    rows = [shared | {"byte_offset": fault.offset, "reason": fault.reason} for fault in faults]
    inputs = {
        slice_: {"version": VERSION, "key": shard.key, "faults": compute_input_digest({"faults": [*map(str, faults)]})}
    }
    if not rows and not read_slice_rows(workspace.lake, [slice_], (BUILT,)):
        return
    if find_stale(workspace.lake, BUILT, inputs):
        table = pa.Table.from_pylist(rows, schema=workspace.lake.specs[FAULTS].schema)
        commit_stage(workspace.lake, BUILT, inputs, {FAULTS: table.to_batches()})


def _drop_superseded(workspace: Workspace, index: BuiltIndex) -> None:
    """Deletes part files of killed processes, and index files of a collection whose archive files have changed since.
    Those of a month stay: its list may miss a file for a day."""
    planned_keys = {shard.key for shard in index.shards}
    of_a_month = news_month(index.crawl) is not None
    for key in index.stored_keys - planned_keys:
        if is_orphaned_part_file(key) or not (of_a_month or key.rpartition("/")[2].startswith(".")):
            workspace.place.delete(key)
