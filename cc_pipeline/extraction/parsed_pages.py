"""Pages of stored records: unchanged pages are kept, the others are parsed again in supervised processes and spilled to
disk, in chunks. A killed parse goes on after its last complete chunk, whose pages are not read again."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline.atomic import folder_written_whole, written_whole
from cc_pipeline.commoncrawl.conditions import MATCH_NO, MATCH_UNKNOWN, MATCH_YES, OPEN, parse_condition
from cc_pipeline.commoncrawl.domains import HOST_COLUMNS, host_columns
from cc_pipeline.commoncrawl.index_schema import CAPTURE_SCHEMA
from cc_pipeline.commoncrawl.target_text import SET_SLUG
from cc_pipeline.documents.batch.pool import parse_batches
from cc_pipeline.documents.page import ParseOptions
from cc_pipeline.documents.schemas import PARSER_VERSION
from cc_pipeline.errors import DataFault, disk_trouble
from cc_pipeline.extraction.reusable_records import build_lost_fault
from cc_pipeline.grouping import group_within
from cc_pipeline.lake.content_digests import compute_input_digest
from cc_pipeline.lake.ordered import spilled_batches
from cc_pipeline.lake.slice import PAGE_TABLES, PARSE, Slice
from cc_pipeline.lake.slices import SliceRow
from cc_pipeline.lake.streaming import stream_rows, stream_slices
from cc_pipeline.locks import LockTimeout, locked
from cc_pipeline.records.locations import PLACE_NAME, LocationCollector, LocationIndex, add_by_target, mask_by_target
from cc_pipeline.records.pages import page_of
from cc_pipeline.records.reading import Row, read_members
from cc_pipeline.records.storage import RecordStorage, are_bytes_missing
from cc_pipeline.settings import Settings
from cc_pipeline.workspace.tables import CORE_TABLES
from cc_pipeline.workspace.workspace import Workspace

#: Rows of a page table, batch by batch, as often as they are opened.
OpenPages = Callable[[], Iterator[pa.RecordBatch]]
#: Records and stored bytes of one batch for a parser process; whichever is reached first ends the batch.
BATCH_ROWS = 64
_BATCH_BYTES = 16 << 20
#: Pages of a complete chunk: what a killed parse loses at most, with those in progress.
CHUNK_PAGES = 2_048
#: Bytes of a table that are written at once.
_WRITE_BYTES = 1 << 20
#: Seconds after which pages of a killed parse are deleted.
_FORGET_SECONDS = 7 * 24 * 3600
_SCHEMAS = {spec.name: spec.schema for spec in CORE_TABLES if spec.name in PAGE_TABLES}


class ReusablePages:
    """The stored pages that can be kept, of slices of sets (of one crawl) that are about to be parsed again, from the
    ``inputs``. Slices of other targets have none: their captures change only with the index. ``parsed`` has the rows of
    ``slices`` with their stored pages."""

    def __init__(
        self, workspace: Workspace, inputs: Mapping[Slice, Mapping[str, str]], parsed: Mapping[Slice, SliceRow]
    ) -> None:
        self._workspace = workspace
        parsed_parts = [slice_ for slice_ in inputs if slice_.target.startswith(SET_SLUG) and slice_ in parsed]
        self._crawl = next((slice_.crawl for slice_ in parsed_parts), "")
        targets = [slice_.target for slice_ in parsed_parts if _has_same_parser(inputs[slice_], parsed[slice_].input)]
        self._stored_locations = self._read_locations(targets) if targets else {}
        self._kept_locations: dict[str, LocationCollector] = {}

    def take(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows of ``records`` that are to be parsed. The stored pages of the other rows are kept."""
        if not self._stored_locations:
            return records
        is_reusable = pc.and_(
            mask_by_target(records, self._stored_locations), pc.equal(records.column("outcome"), "fetched")
        )
        add_by_target(records.filter(is_reusable), self._kept_locations)
        return records.filter(pc.invert(is_reusable))

    def rows(self, table: str) -> Iterator[pa.RecordBatch]:
        """The kept rows of a page table, in its schema. Call it after all records were taken."""
        schema = self._workspace.lake.specs[table].schema
        names = [name for name in schema.names if name != "crawl"]
        kept_locations = {target: places.places() for target, places in self._kept_locations.items()}
        for batch in stream_slices(self._workspace.lake, table, self._crawl, [*kept_locations], names):
            kept_rows = pa.Table.from_batches([batch.filter(mask_by_target(batch, kept_locations))])
            if kept_rows.num_rows:
                crawl = pa.repeat(pa.scalar(self._crawl, pa.string()), kept_rows.num_rows)
                complete_rows = kept_rows.append_column("crawl", crawl).select(schema.names).cast(schema)
                yield from complete_rows.combine_chunks().to_batches()

    def _read_locations(self, targets: list[str]) -> dict[str, LocationIndex]:
        where = {"crawl": self._crawl, "target": targets}
        columns = ["target", "disposition", "source_kind", "parser_version", *PLACE_NAME]
        locations_by_target: dict[str, LocationCollector] = {}
        for batch in stream_rows(self._workspace.lake, PARSE.main_table, where, columns):
            is_reusable = pc.and_(
                pc.equal(batch.column("disposition"), "SUCCESS"),
                pc.and_(
                    pc.equal(batch.column("parser_version"), PARSER_VERSION),
                    pc.equal(batch.column("source_kind"), "records"),
                ),
            )
            add_by_target(batch.filter(pc.fill_null(is_reusable, False)), locations_by_target)
        return {target: places.places() for target, places in locations_by_target.items()}


def _has_same_parser(input_: Mapping[str, str], stored_input: Mapping[str, str]) -> bool:
    return all(input_[name] == stored_input.get(name) for name in ("parser", "markdown"))


def build_parse_options(settings: Settings) -> ParseOptions:
    """The parse options of these settings."""
    return ParseOptions(markdown=settings.markdown)


@contextmanager
def open_spill_folder(
    workspace: Workspace, inputs: Mapping[Slice, Mapping[str, str]], rows: int, fallback_folder: Path
) -> Iterator[Path]:
    """A folder for :func:`spill_pages`. It still has the pages of a killed parse of the same ``rows`` records, and is
    deleted when the block ends without an error. If another process parses the same records, the folder is
    ``fallback_folder``. Raises ``EnvironmentFault``."""
    parsing_folder = workspace.settings.cache_path / "parsing"
    inputs_by_name = {f"{slice_.crawl} {slice_.target}": dict(input_) for slice_, input_ in inputs.items()}
    folder = parsing_folder / compute_input_digest({"inputs": inputs_by_name, "rows": rows})
    with ExitStack() as open_locks:
        with disk_trouble(folder):
            try:
                open_locks.enter_context(locked(folder.with_suffix(".lock"), 0))
            except LockTimeout:
                folder = fallback_folder
            folder.mkdir(parents=True, exist_ok=True)
        yield folder
        shutil.rmtree(folder, ignore_errors=True)
        _delete_old_folders(parsing_folder)


def spill_pages(
    records: Iterable[pa.RecordBatch],
    storage: RecordStorage,
    options: ParseOptions,
    workers: int,
    folder: Path,
    on_parsed: Callable[[int], None],
) -> dict[str, OpenPages]:
    """Parses ``records`` (rows of that table, in the same order each time) in so many processes, and returns functions
    that open the rows of each page table.

    The pages are chunks in ``folder``: one folder each, with an Arrow file per table, so memory stays flat however many
    pages there are. Pages of complete chunks that are there already are not read again. ``on_parsed`` is called with
    the number of pages so far. Raises ``EnvironmentFault`` if a place does not answer, or lacks bytes that it had.
    """
    with disk_trouble(folder):
        # named by the number of pages before each
        chunk_folders = sorted(path for path in folder.iterdir() if path.name.isdigit())
        page_count = 0
        if chunk_folders:
            last_batches = spilled_batches(chunk_folders[-1] / PARSE.main_table)
            page_count = int(chunk_folders[-1].name) + sum(batch.num_rows for batch in last_batches)
        pages = parse_batches(_build_tasks(_skip_rows(records, page_count), storage), options, workers, page_of)
        for first in pages:
            chunk_folders.append(folder / f"{page_count:012}")
            page_count = _write_chunk(chunk_folders[-1], chain((first,), pages), page_count, on_parsed)
    return {table: partial(_read_files, [chunk_folder / table for chunk_folder in chunk_folders]) for table in _SCHEMAS}


def _write_chunk(
    folder: Path, pages: Iterator[dict[str, pa.RecordBatch]], page_count: int, on_parsed: Callable[[int], None]
) -> int:
    """Writes the next chunk, and returns the number of pages up to its end."""
    max_pages = page_count + CHUNK_PAGES
    with folder_written_whole(folder) as temporary_folder, ExitStack() as files:
        # a power cut may leave a name without its bytes, and no process would write them again
        paths = {
            table: files.enter_context(written_whole(temporary_folder / table, durable=True)) for table in _SCHEMAS
        }
        writers = {}
        for table, schema in _SCHEMAS.items():
            # Arrow writes column by column, and pages have hundreds
            file = files.enter_context(pa.BufferedOutputStream(pa.OSFile(str(paths[table]), "wb"), _WRITE_BYTES))
            writers[table] = files.enter_context(pa.ipc.new_stream(file, schema))
        for batches in pages:
            for table, batch in resolve_conditions(batches).items():
                if batch.num_rows:
                    writers[table].write_batch(batch)
            page_count += batches[PARSE.main_table].num_rows
            on_parsed(page_count)
            if page_count >= max_pages:
                break
    return page_count


def _skip_rows(records: Iterable[pa.RecordBatch], skipped_rows: int) -> Iterator[pa.RecordBatch]:
    """All rows but the first ``skipped_rows`` ones."""
    for batch in records:
        passed = min(skipped_rows, batch.num_rows)
        skipped_rows -= passed
        yield batch.slice(passed)


def _read_files(files: Iterable[Path]) -> Iterator[pa.RecordBatch]:
    for path in files:
        yield from spilled_batches(path)


def _delete_old_folders(folder: Path) -> None:
    """Deletes old pages of killed parses."""
    for path in folder.iterdir() if folder.is_dir() else ():
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _FORGET_SECONDS:
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()


def _build_tasks(records: Iterable[pa.RecordBatch], storage: RecordStorage) -> Iterator[list[tuple[Row, bytes | None]]]:
    return group_within(
        _read_members(records, storage), (BATCH_ROWS, _BATCH_BYTES), lambda page: (1, len(page[1] or b""))
    )


def _read_members(records: Iterable[pa.RecordBatch], storage: RecordStorage) -> Iterator[tuple[Row, bytes | None]]:
    """The rows of ``records``, each with its record's bytes if it was fetched and can be read."""
    parts = (part for batch in records for part in pa.Table.from_batches([batch]).to_batches(max_chunksize=1_000))
    record_rows = (row for part in parts for row in part.to_pylist())
    for row, outcome in read_members(record_rows, storage, lambda row: row["outcome"] == "fetched"):
        if isinstance(outcome, DataFault) and are_bytes_missing(outcome):
            # they were there when the stage began
            raise build_lost_fault(row["crawl"], {Slice(row["crawl"], row["target"]): 1}) from outcome
        yield row, outcome if isinstance(outcome, bytes) else None


_METADATA: Final = "page_metadata"
_PAGE_KEY: Final = ("target", *PLACE_NAME)


def resolve_conditions(batches: Mapping[str, pa.RecordBatch]) -> Mapping[str, pa.RecordBatch]:
    """The rows of the page tables of some records, by table, with ``yes``, ``no`` or ``unknown`` in place of conditions
    on pages. A condition stays unknown for pages without a response and for unreadable pages."""
    metadata = batches[_METADATA]
    open_conditions = [
        text for text in pc.unique(metadata.column("condition_match")).to_pylist() if text and text.startswith(OPEN)
    ]
    if not open_conditions:
        return batches
    pages = _as_captures(metadata, batches["page_text"])
    has_response = pc.is_valid(metadata.column("http_result"))
    outcomes = metadata.column("condition_match")
    for text in open_conditions:
        is_true = parse_condition(text.removeprefix(OPEN)).truth(pages, parsed=True)
        answers = pc.coalesce(
            pc.if_else(pc.and_(is_true, has_response), MATCH_YES, pc.if_else(has_response, MATCH_NO, MATCH_UNKNOWN)),
            MATCH_UNKNOWN,
        )
        outcomes = pc.if_else(pc.equal(outcomes, text), answers, outcomes)
    outcomes_by_page = dict(zip(_read_page_keys(metadata), outcomes.to_pylist(), strict=True))
    return {
        table: _replace_outcomes(batch, [outcomes_by_page.get(key) for key in _read_page_keys(batch)])
        for table, batch in batches.items()
    }


def _as_captures(metadata: pa.RecordBatch, texts: pa.RecordBatch) -> pa.Table:
    """The metadata of pages under the column names of an index."""
    languages = dict(zip(_read_page_keys(texts), texts.column("content_languages").to_pylist(), strict=True))
    columns: dict[str, Any] = {field.name: pa.nulls(metadata.num_rows, field.type) for field in CAPTURE_SCHEMA}
    hosts = [host_columns(url or "") for url in metadata.column("url").to_pylist()]
    columns |= {
        name: pa.array([host[name] for host in hosts], CAPTURE_SCHEMA.field(name).type) for name in HOST_COLUMNS
    }
    columns |= {name: metadata.column(name) for name in metadata.schema.names if name in columns}
    columns |= {
        "fetch_time": pc.coalesce(metadata.column("fetch_time"), metadata.column("attempt_time")),
        "fetch_status": metadata.column("http_result"),
        "content_mime_type": metadata.column("mime_type"),
        "content_charset": metadata.column("charset_detected"),
        "content_languages": pa.array([languages.get(key) for key in _read_page_keys(metadata)], pa.string()),
    }
    return pa.table(columns)


def _read_page_keys(rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return list(zip(*(rows.column(name).to_pylist() for name in _PAGE_KEY), strict=True))


def _replace_outcomes(batch: pa.RecordBatch, outcomes: list[str | None]) -> pa.RecordBatch:
    column_index = batch.schema.get_field_index("condition_match")
    return batch.set_column(column_index, batch.schema.field(column_index), pa.array(outcomes, pa.string()))
