"""Fetches, verifies and stores the records of planned captures. Every capture gets exactly one outcome.

A capture that is missing, damaged or refused at the source becomes a row; no error is raised. After an
``EnvironmentFault`` (the disk), all records fetched so far are in complete segments, which the next run adopts.
Captures come in the order of their files and are processed in groups, so that memory stays flat.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.records.capture_states import Halt
from cc_pipeline.records.fetch_run import FetchRun, Progress
from cc_pipeline.records.locations import PLACE_NAME, LocationCollector, LocationIndex
from cc_pipeline.records.orders import Order
from cc_pipeline.records.range_plan import group_by_file
from cc_pipeline.records.schema import HELD_SCHEMA, RECORD_SCHEMA
from cc_pipeline.records.segments import Row, SegmentWriter, adopt, segment_head
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.named_files import NamedPlaces

_FOREIGN_SCHEMA = pa.schema([RECORD_SCHEMA.field(name) for name in (*PLACE_NAME, "stored_file")])
#: Journal rows held as Python objects at a time.
_BATCH = 5_000


@dataclass(frozen=True, slots=True)
class RecordsResult:
    """The result of a fetch, whose rows were passed to ``keep``.

    ``reused`` captures were stored before this run, ``adopted`` ones came from the segments of a killed run.
    ``requests`` and ``bytes`` were spent on the source. ``files`` are the new complete files, ``stored`` all files that
    the rows name. ``settled`` are the files all of whose records are in the rows (or were in the table before).
    ``fetched`` captures are good ones read in this run. ``source_gave_good_record``: now, or within a day before.
    ``outcomes`` counts rows. Retire the journals of ``settled`` files (``retire_journals``) after the rows were
    committed."""

    reused: int
    adopted: int
    requests: int
    bytes: int
    files: tuple[str, ...]
    stored: frozenset[str]
    settled: tuple[str, ...]
    fetched: int
    source_gave_good_record: bool
    outcomes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Planned:
    """The captures of one crawl to fetch (columns ``RECORD_KEY_NAMES``), and ``places`` with all of their locations.

    ``stored_rows`` are rows of the records table (``HELD_SCHEMA``) of any target, ``journaled_rows`` such rows of
    killed runs: their records are not fetched again. All three are in the order of file and offset, nulls first."""

    captures: Iterable[pa.RecordBatch]
    places: LocationIndex
    stored_rows: Iterable[pa.RecordBatch] = ()
    journaled_rows: Iterable[pa.RecordBatch] = ()


def fetch_records(
    planned: Planned,
    order: Order,
    transport: Transport | NamedPlaces,
    storage: RecordStorage,
    *,
    keep: Callable[[pa.RecordBatch], None],
    scratch: Path,
    progress: Progress | None = None,
    holding: Callable[[set[str]], None] | None = None,
    in_table: Callable[[], Iterable[pa.RecordBatch]] | None = None,
) -> RecordsResult:
    """Fetches, verifies and stores the ``planned`` captures, and adopts records of killed runs.

    ``keep`` gets a row for each capture (``ANSWERED_SCHEMA``), which ``count_asks`` completes. ``holding`` gets the
    names of adopted files before anything is fetched. ``in_table`` returns the locations of all records that the table
    has of this crawl. It is called only if a killed run left records of other captures. ``scratch`` is a folder for
    rows that do not fit memory; the caller deletes it. Raises ``EnvironmentFault`` if the disk or the lake store fails.
    """
    killed_runs = KilledRunRecords(storage, order.crawl, planned.places, scratch)
    if holding is not None:
        holding(killed_runs.files)
    planned = replace(planned, journaled_rows=killed_runs.rows.batches())
    result = fetch_planned(planned, order, transport, storage, keep=keep, progress=progress)
    return replace(result, settled=killed_runs.settled(result.files, in_table))


def fetch_planned(
    planned: Planned,
    order: Order,
    transport: Transport | NamedPlaces,
    storage: RecordStorage,
    *,
    keep: Callable[[pa.RecordBatch], None],
    progress: Progress | None = None,
    halt: Halt | None = None,
) -> RecordsResult:
    """Fetches as :func:`fetch_records`, with the rows of killed runs already in ``planned``.

    ``halt`` is called before each range and says whether to stop sending requests. ``settled`` of the result has the
    new files only.
    """
    crawl, options, planned_count = order.crawl, order.options, len(planned.places)
    files = sum(1 for _ in planned.places.files) if planned_count > options.group else 0
    info = {
        "software": options.software,
        "format": "WARC File Format 1.0",
        "description": f"Records of {crawl}, extracted from Common Crawl",
        "isPartOf": crawl,
        "plan": order.plan,
        "source": transport.source,
    }
    writer = SegmentWriter(
        storage, crawl, order.commit, lambda kind, name: segment_head(kind, name, info), options.rotation
    )
    run = FetchRun(transport, order, writer, progress, planned_count, files, halt)
    stats_before = replace(transport.stats)
    counts: Counter[str] = Counter()
    stored: set[str | None] = set()
    held_rows, left_rows = MergeReader(planned.stored_rows), MergeReader(planned.journaled_rows)
    try:
        for group in group_by_file(planned.captures, options.group):
            end = tuple(group.column(name)[-1].as_py() for name in PLACE_NAME)
            outcomes = run.fetch_group(group, _rows(held_rows.upto(*end)), _rows(left_rows.upto(*end)))
            for batch in outcomes.batches():
                counts.update(batch.column("outcome").to_pylist())
                stored.update(pc.unique(batch.column("stored_file")).to_pylist())
                keep(batch)
            # two groups would double peak memory
            del outcomes
    finally:
        writer.close()
    if halt is not None:
        # reports the last refusal too
        halt(run.source.is_refused)
    return RecordsResult(
        reused=run.reused,
        adopted=run.adopted,
        requests=transport.stats.requests - stats_before.requests,
        bytes=transport.stats.bytes - stats_before.bytes,
        files=tuple(writer.files),
        stored=frozenset(name for name in stored if name is not None),
        settled=tuple(writer.files),
        fetched=run.fetched,
        source_gave_good_record=run.source.gave_good_record,
        outcomes=counts,
    )


class KilledRunRecords:
    """The records of killed runs in a crawl: ``files``, and ``rows`` of planned captures in the order of their places
    (``HELD_SCHEMA``). Rows of other captures are stored until it is known whether those need them.

    The constructor lists the crawl's stored files and reads every journal among them. This run then retires them.
    """

    def __init__(self, storage: RecordStorage, crawl: str, places: LocationIndex, scratch: Path) -> None:
        self.files: set[str] = set()
        self.rows = OrderedRows(HELD_SCHEMA, PLACE_NAME, scratch)
        self._foreign_rows = OrderedRows(_FOREIGN_SCHEMA, (), scratch)
        self._foreign_locations = LocationCollector()
        for rows in _batches(adopt(storage, crawl)):
            self.files.update(row["stored_file"] for row in rows)
            batch = pa.RecordBatch.from_pylist(rows, schema=HELD_SCHEMA)
            is_planned = places.contains(batch)
            self.rows.add(batch.filter(is_planned))
            foreign_rows = batch.select(_FOREIGN_SCHEMA.names).filter(pc.invert(is_planned))
            self._foreign_rows.add(foreign_rows)
            self._foreign_locations.add(foreign_rows)

    def settled(
        self, new: Iterable[str], in_table: Callable[[], Iterable[pa.RecordBatch]] | None = None
    ) -> tuple[str, ...]:
        """Returns the files all of whose records are in the rows of this run, which wrote ``new``, or in the table.
        Their journals are retired after the rows were committed."""
        return tuple(sorted({*self.files, *new} - self._files_with_foreign_rows(in_table)))

    def _files_with_foreign_rows(self, in_table: Callable[[], Iterable[pa.RecordBatch]] | None) -> set[str]:
        """Returns the files with rows of captures that are neither planned here nor in the table: their run was
        killed."""
        if not self._foreign_rows.rows:
            return set()
        places = self._foreign_locations.places()
        is_stored = np.zeros(len(places), bool)
        for batch in in_table() if in_table is not None else ():
            positions = places.positions(batch)
            is_stored[positions[positions >= 0]] = True
        needed: set[str] = set()
        for batch in self._foreign_rows.batches():
            is_unstored = pa.array(~is_stored[places.positions(batch)])
            needed.update(pc.unique(batch.column("stored_file").filter(is_unstored)).to_pylist())
        return needed


class MergeReader:
    """Rows in the order of their places, read up to one place at a time."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._remainder: pa.RecordBatch | None = None

    def upto(self, file: str | None, offset: int | None) -> Iterator[pa.RecordBatch]:
        """Yields the rows up to and including this place."""
        while True:
            batch = self._remainder if self._remainder is not None else next(self._batches, None)
            if batch is None:
                return
            files, offsets = (batch.column(name) for name in PLACE_NAME)
            is_passed = pc.and_(pc.equal(files, file or ""), pc.less_equal(offsets, -1 if offset is None else offset))
            count = pc.sum(pc.or_(pc.less(files, file or ""), is_passed)).as_py() or 0
            self._remainder = batch.slice(count) if count < batch.num_rows else None
            if count:
                yield batch.slice(0, count)
            if self._remainder is not None:
                return


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        yield from batch.to_pylist()


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
