"""Pages of stored records: read back, parsed in supervised processes, put aside in a file a table."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from cc_pipeline.documents.batch.pool import parse_batches
from cc_pipeline.documents.page import ParseOptions
from cc_pipeline.errors import DataFault, disk_trouble
from cc_pipeline.extraction.held import gone
from cc_pipeline.extraction.slice import PAGE_TABLES, Slice, spilled_batches
from cc_pipeline.records.lost import are_gone
from cc_pipeline.records.pages import Row, page_of
from cc_pipeline.records.reading import read_members
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.settings import Settings
from cc_pipeline.stages.tables import TABLES

if TYPE_CHECKING:
    from cc_pipeline.documents.html.content import Extractor

#: Rows of a page table, batch by batch, as often as they are opened.
OpenPages = Callable[[], Iterator[pa.RecordBatch]]
#: Records and stored bytes of one batch for a parser process; whichever is reached first ends the batch.
BATCH_ROWS = 64
_BATCH_BYTES = 16 << 20
_PARSERS = "cc_pipeline.documents.batch.worker"
_SCHEMAS = {spec.name: spec.schema for spec in TABLES if spec.name in PAGE_TABLES}


def options_of(settings: Settings) -> ParseOptions:
    """How these settings want pages parsed."""
    return ParseOptions(main_content=cast("Extractor", settings.extractor), markdown=settings.markdown)


def spill_pages(
    records: Iterable[pa.RecordBatch],
    storage: RecordStorage,
    options: ParseOptions,
    workers: int,
    folder: Path,
    parsed: Callable[[int], None],
    more: Callable[[str], Iterable[pa.RecordBatch]] = lambda table: (),
) -> dict[str, OpenPages]:
    """Parses ``records`` (rows of that table) in so many processes, and gives the rows of each page table.

    They lie in one Arrow file a table in ``folder``, so that memory stays flat however many pages there are; the caller
    deletes it. ``parsed`` is told the pages so far. ``more`` gives rows of a table to put behind them. Raises
    ``EnvironmentFault`` where a place does not answer, or no longer has bytes that it had.
    """
    # the server that workers are forked from imports the parsers once, so that not every worker has to
    multiprocessing.get_context("forkserver").set_forkserver_preload(["cc_pipeline.records.pages", _PARSERS])
    done = 0
    with disk_trouble(folder), ExitStack() as open_files:
        writers = {
            table: open_files.enter_context(pa.ipc.new_stream(str(folder / f"{table}.arrow"), schema))
            for table, schema in _SCHEMAS.items()
        }
        for batches in parse_batches(_tasks(records, storage), options, workers, page_of):
            for table, batch in batches.items():
                if batch.num_rows:
                    writers[table].write_batch(batch)
            done += batches["page_metadata"].num_rows
            parsed(done)
        for table, writer in writers.items():
            for batch in more(table):
                writer.write_batch(batch)
    return {table: partial(spilled_batches, folder / f"{table}.arrow") for table in _SCHEMAS}


def _tasks(records: Iterable[pa.RecordBatch], storage: RecordStorage) -> Iterator[list[tuple[Row, bytes | None]]]:
    task: list[tuple[Row, bytes | None]] = []
    size = 0
    parts = (part for batch in records for part in pa.Table.from_batches([batch]).to_batches(max_chunksize=1_000))
    each = (row for part in parts for row in part.to_pylist())
    for row, found in read_members(each, storage, lambda row: row["outcome"] == "fetched"):
        if isinstance(found, DataFault) and are_gone(found):
            # since the stage looked, a moment ago
            raise gone(row["crawl"], {Slice(row["crawl"], row["target"]): 1}) from found
        member = found if isinstance(found, bytes) else None
        task.append((row, member))
        size += len(member or b"")
        if len(task) >= BATCH_ROWS or size >= _BATCH_BYTES:
            yield task
            task, size = [], 0
    if task:
        yield task
