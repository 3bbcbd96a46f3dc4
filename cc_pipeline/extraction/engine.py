"""Engines fetch records and parse pages: in processes of this machine, or elsewhere.

A stage plans the work and asks its engine for it. The stage commits: the digests, the ledger, the state of each slice.
So the tables are the same whatever engine made them, and a home may change its engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from cc_pipeline import progress
from cc_pipeline.capture_columns import CAPTURE_ORDER
from cc_pipeline.extraction.fetch_counts import Shortfall, shortfalls
from cc_pipeline.extraction.parsed_pages import PagesBefore
from cc_pipeline.extraction.reusable_records import Held
from cc_pipeline.lake.lake import Lake
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.lake.slice import FETCH, PARSE, Slice
from cc_pipeline.processes import usable_cores
from cc_pipeline.records.fetch import Planned, RecordsResult, fetch_records
from cc_pipeline.records.outcomes import with_this_round
from cc_pipeline.records.places import Places
from cc_pipeline.records.range_plan import Order
from cc_pipeline.records.schema import PARSED_SCHEMA, RECORD_SCHEMA
from cc_pipeline.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class ToFetch:
    """The request of one fetch: the ``captures`` of ``slices`` of a crawl, in the order of their locations ``places``.

    Rows in ``held`` need not be fetched again. ``holding`` is called with the files that are adopted from killed runs,
    before anything is fetched. ``in_table`` gives the locations of all records that the table has of the crawl.
    ``scratch`` exists until the commit.
    """

    slices: Sequence[Slice]
    captures: OrderedRows
    places: Places
    held: Held
    order: Order
    scratch: Path
    holding: Callable[[set[str]], None]
    in_table: Callable[[], Iterable[pa.RecordBatch]]

    @property
    def crawl(self) -> str:
        """The crawl of the slices."""
        return self.order.crawl


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of a fetch: the number of ``rows`` of the records table, and the counts of each slice (``found``).

    ``commit`` replaces the slices of the given digests by these rows, in one commit.
    """

    result: RecordsResult
    rows: int
    found: Mapping[Slice, Shortfall]
    commit: Callable[[Lake, Mapping[Slice, str]], object]


@dataclass(frozen=True, slots=True)
class ToParse:
    """The request of one parse: the records (``PARSED_SCHEMA``) of slices of one crawl, in no order. ``made_from`` has
    the digest of each slice. ``before`` has the pages that are kept, once all ``records`` were read. ``folder`` exists
    until the call ends."""

    crawl: str
    made_from: Mapping[Slice, str]
    records: Iterable[pa.RecordBatch]
    before: PagesBefore
    folder: Path


class Engine(Protocol):
    """Fetches records and parses pages. ``partitions`` and ``captures`` are how many of each the engine takes best in
    one call; a single partition may have more captures."""

    @property
    def partitions(self) -> int: ...

    @property
    def captures(self) -> int: ...

    def fetch(self, workspace: Workspace, request: ToFetch) -> Fetched:
        """Fetches, verifies and stores; commits nothing. Raises ``EnvironmentFault``; the next fetch adopts the records
        stored until then."""
        ...

    def parse(self, workspace: Workspace, request: ToParse) -> None:
        """Parses, and commits the pages. Raises ``EnvironmentFault``."""
        ...


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """The processes of this machine."""

    #: A group shares look-ups and commits, and little is lost when a run ends.
    partitions: int = 50
    #: Minutes of a real source, while commits cost a second.
    captures: int = 5_000

    def fetch(self, workspace: Workspace, request: ToFetch) -> Fetched:
        rows = OrderedRows(RECORD_SCHEMA, CAPTURE_ORDER, request.scratch)
        result = fetch_records(
            Planned(request.captures.batches(), request.places, request.held.rows.batches()),
            request.order,
            workspace.archives(request.crawl),
            workspace.storage,
            keep=rows.add,
            scratch=request.scratch,
            progress=lambda done, total, size: progress.report("fetch", done, total, f"{size / 1e6:,.1f} MB"),
            holding=request.holding,
            in_table=request.in_table,
        )

        def records() -> Iterable[pa.RecordBatch]:
            # rounds are counted only once it is known whether the source gave anything
            return map(with_this_round, rows.batches()) if result.answered else rows.batches()

        counts_by_slice = shortfalls(records(), request.slices)
        return Fetched(
            result,
            rows.rows,
            counts_by_slice,
            lambda lake, input_digests: FETCH.commit(lake, input_digests, {"records": records}),
        )

    def parse(self, workspace: Workspace, request: ToParse) -> None:
        # loads the parsers: a command that only asks for a cost need not wait for them
        from cc_pipeline.extraction.parsed_pages import (  # noqa: PLC0415
            BATCH_ROWS,
            options_of,
            put_aside,
            spill_pages,
        )

        rows = OrderedRows(PARSED_SCHEMA, CAPTURE_ORDER, request.folder)
        for batch in request.records:
            rows.add(batch)
        settings = workspace.settings
        with put_aside(workspace, request.made_from, rows.rows, request.folder) as folder:
            pages = spill_pages(
                rows.batches(),
                workspace.storage,
                options_of(settings),
                # never this process, since a hostile page may loop or end its process
                max(1, min(settings.workers or usable_cores(), -(-rows.rows // BATCH_ROWS))),
                folder,
                lambda page_count: progress.report("parse", page_count, rows.rows),
                request.before.rows,
            )
            PARSE.commit(workspace.lake, request.made_from, pages, request.before.beside())


LOCAL: Engine = LocalEngine()
