"""Engines fetch records and parse pages: in processes of this machine, or elsewhere.

A stage plans the work and asks its engine for it. The engine writes files, and the stage commits them. So the tables
are the same whatever engine made them, and a home may change its engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from cc_pipeline import progress
from cc_pipeline.capture_columns import CAPTURE_ORDER
from cc_pipeline.extraction.fetch_counts import SliceFetchCounts, count_fetched
from cc_pipeline.extraction.parsed_pages import (
    BATCH_ROWS,
    ReusablePages,
    build_parse_options,
    open_spill_folder,
    spill_pages,
)
from cc_pipeline.extraction.reusable_records import ReusableRecords
from cc_pipeline.lake.files import WrittenRows, join_rows, write_rows
from cc_pipeline.lake.ordered import OrderedRows
from cc_pipeline.lake.slice import Slice
from cc_pipeline.processes import usable_cores
from cc_pipeline.records.ask_counts import count_asks
from cc_pipeline.records.fetch import Planned, RecordsResult, fetch_records
from cc_pipeline.records.locations import LocationIndex
from cc_pipeline.records.orders import Order
from cc_pipeline.records.schema import ANSWERED_SCHEMA, PARSED_SCHEMA
from cc_pipeline.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """The request of one fetch: the ``captures`` of ``slices`` of a crawl, in the order of their locations ``places``.

    Rows in ``reusable_records`` need not be fetched again; rows of a target get its number in ``generations``.
    ``on_adopted_files`` is called with the files that are adopted from killed runs, before anything is fetched.
    ``read_table_places`` gives the locations of all records that the table has of the crawl. ``scratch`` exists until
    the commit."""

    slices: Sequence[Slice]
    captures: OrderedRows
    places: LocationIndex
    reusable_records: ReusableRecords
    order: Order
    generations: Mapping[str, int]
    scratch: Path
    on_adopted_files: Callable[[set[str]], None]
    read_table_places: Callable[[], Iterable[pa.RecordBatch]]

    @property
    def crawl(self) -> str:
        """The crawl of the slices."""
        return self.order.crawl


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The result of a fetch: the number of ``rows`` of the records table. Whether its asks count is decided after it.

    ``count_slices`` returns the counts of each slice, and ``write`` writes the rows to files of the table, which no
    commit names yet: both with the asks counted, or not.
    """

    result: RecordsResult
    rows: int
    count_slices: Callable[[bool], Mapping[Slice, SliceFetchCounts]]
    write: Callable[[bool], WrittenRows]


@dataclass(frozen=True, slots=True)
class ParseRequest:
    """The request of one parse: the records (``PARSED_SCHEMA``) of slices of one crawl, in no order. ``inputs`` are
    what their pages are made from; rows of a target get its number in ``generations``. ``reusable_pages`` has the pages
    that are kept, once all ``records`` were read. ``folder`` exists until the call ends."""

    crawl: str
    inputs: Mapping[Slice, Mapping[str, str]]
    generations: Mapping[str, int]
    records: Iterable[pa.RecordBatch]
    reusable_pages: ReusablePages
    folder: Path


class Engine(Protocol):
    """Fetches records and parses pages. ``partitions`` and ``captures`` are how many of each the engine takes best in
    one call; a single partition may have more captures."""

    @property
    def partitions(self) -> int: ...

    @property
    def captures(self) -> int: ...

    def fetch(self, workspace: Workspace, request: FetchRequest) -> FetchResult:
        """Fetches, verifies and stores; commits nothing. Raises ``EnvironmentFault``; the next fetch adopts the records
        stored until then."""
        ...

    def parse(self, workspace: Workspace, request: ParseRequest) -> dict[str, WrittenRows]:
        """Parses, and writes the pages to files of each page table; commits nothing. Raises ``EnvironmentFault``."""
        ...


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """The processes of this machine."""

    #: A group shares lookups and commits, and little is lost when a run ends.
    partitions: int = 50
    #: Minutes of a real source, while commits cost a second.
    captures: int = 5_000

    def fetch(self, workspace: Workspace, request: FetchRequest) -> FetchResult:
        rows = OrderedRows(ANSWERED_SCHEMA, CAPTURE_ORDER, request.scratch)
        result = fetch_records(
            Planned(request.captures.batches(), request.places, request.reusable_records.rows.batches()),
            request.order,
            workspace.archives(request.crawl),
            workspace.storage,
            keep=rows.add,
            scratch=request.scratch,
            progress=lambda done, total, size: progress.report("fetch", done, total, f"{size / 1e6:,.1f} MB"),
            holding=request.on_adopted_files,
            in_table=request.read_table_places,
        )

        def records(is_source_sound: bool) -> Iterator[pa.RecordBatch]:
            counting = partial(count_asks, ask_time=request.order.ask_time, is_source_sound=is_source_sound)
            return map(counting, rows.batches())

        return FetchResult(
            result,
            rows.rows,
            lambda is_source_sound: count_fetched(records(is_source_sound), request.slices),
            lambda is_source_sound: write_rows(
                workspace.lake, "records", request.crawl, records(is_source_sound), request.generations
            ),
        )

    def parse(self, workspace: Workspace, request: ParseRequest) -> dict[str, WrittenRows]:
        rows = OrderedRows(PARSED_SCHEMA, CAPTURE_ORDER, request.folder)
        for batch in request.records:
            rows.add(batch)
        settings = workspace.settings
        with open_spill_folder(workspace, request.inputs, rows.rows, request.folder) as folder:
            pages = spill_pages(
                rows.batches(),
                workspace.storage,
                build_parse_options(settings),
                # never this process, since a hostile page may loop or end its process
                max(1, min(settings.workers or usable_cores(), -(-rows.rows // BATCH_ROWS))),
                folder,
                lambda page_count: progress.report("parse", page_count, rows.rows),
            )
            return {
                table: join_rows(
                    write_rows(workspace.lake, table, request.crawl, rows_of_table, request.generations)
                    for rows_of_table in (opened(), request.reusable_pages.rows(table))
                )
                for table, opened in pages.items()
            }


LOCAL: Engine = LocalEngine()
