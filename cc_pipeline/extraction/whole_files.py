"""Reads SequenceFiles of 2012, which have pages without records, into the tables of parsed pages: one slice a file, so
that an unchanged file is not read again.

A slice is (the file's crawl, its partition key as target).
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline import progress
from cc_pipeline.archive.sequencefile import SequencePair, iter_pairs
from cc_pipeline.commoncrawl.domains import host_columns
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.documents.document2012.json import page_keys
from cc_pipeline.documents.document2012.reading import PARSER_OF_2012, read_metadata_json
from cc_pipeline.documents.html.text import detect_languages
from cc_pipeline.documents.page import PageInput, ParsedPage
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline.documents.schemas import PARSER_VERSION
from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault
from cc_pipeline.lake.ordered import spilled_batches
from cc_pipeline.lake.slice import PAGE_TABLES, READ_FILES, Metrics, Slice, StageReport
from cc_pipeline.lake.slices import commit_stage, find_stale, read_slice_rows
from cc_pipeline.progress import format_count
from cc_pipeline.workspace.source_files import (
    FAULTS,
    MAX_FAULT_ROWS,
    SEQUENCEFILE,
    SourceFile,
    local_copy,
    read_source_files,
)
from cc_pipeline.workspace.workspace import Workspace

#: A page, or the fault of an unreadable one. A page with empty ``metadata`` came from a file that has only texts.
SourcePage = ParsedPage | DataFault

VERSION = "1"
#: Pages turned into rows at a time; bounds memory.
_BATCH_ROWS = 64
#: The number of faults in a note.
_SHOWN_FAULTS = 5


@dataclass(slots=True)
class _Tally:
    rows: Counter[str] = field(default_factory=Counter)
    faults: int = 0
    bytes: int = 0
    requests: int = 0
    examples: list[str] = field(default_factory=list)


def read_sources(workspace: Workspace, slugs: Sequence[str]) -> StageReport:
    """Reads the registered files ``slugs`` into the page tables and ``source_faults``; skips unchanged files.

    An unreadable range of bytes becomes a row of ``source_faults``; everything else is read. Raises ``UserInputError``
    for a key that is not registered, ``EnvironmentFault`` for a missing file, a source that does not answer, or a full
    disk. Files read before stay committed.
    """
    started = time.monotonic()
    files = read_source_files(workspace, slugs)
    metrics: dict[Slice, Metrics] = {}
    notes: list[str] = []
    total = _Tally()
    fresh: list[Slice] = []
    for slug in slugs:
        file = files[slug]
        slice_ = Slice(file.crawl, slug)
        tally = _read_if_changed(workspace, file)
        if tally is not None:
            fresh.append(slice_)
            total.bytes += tally.bytes
            total.requests += tally.requests
            notes += tally.examples
        metrics[slice_] = rows_of(workspace, slice_)
    return READ_FILES.report(
        metrics,
        fresh,
        started,
        bytes=total.bytes,
        requests=total.requests,
        notes=tuple(notes),
        counted_tables=PAGE_TABLES,
    )


def rows_of(workspace: Workspace, slice_: Slice) -> Metrics:
    """Returns ``rows:<table>`` and ``version:<table>`` for each table: number and digest of a file's rows."""
    row = read_slice_rows(workspace.lake, [slice_], (READ_FILES,)).get((slice_, READ_FILES.label))
    return {f"rows:{table}": 0 for table in READ_FILES.tables} | ({} if row is None else row.metrics)


def _read_if_changed(workspace: Workspace, file: SourceFile) -> _Tally | None:
    """Reads ``file`` if its content differs from that of its rows; returns ``None`` if it does not."""
    slice_ = Slice(file.crawl, file.slug)
    with local_copy(workspace.transport, file.location, workspace.scratch) as copy:
        with copy.path.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        inputs = {slice_: {"version": VERSION, "parser": PARSER_VERSION, "content": content}}
        if not find_stale(workspace.lake, READ_FILES, inputs):
            return None
        with workspace.scratch_folder("sources") as folder:
            tally = _spill(workspace, file, copy.path, folder)
            spilled = {table: spilled_batches(folder / f"{table}.arrow") for table in READ_FILES.tables}
            commit_stage(workspace.lake, READ_FILES, inputs, spilled)
    tally.bytes, tally.requests = copy.bytes, copy.requests
    return tally


def _spill(workspace: Workspace, file: SourceFile, path: Path, folder: Path) -> _Tally:
    """Writes the rows to one Arrow file a table, so that memory does not grow with the file."""
    schemas = {table: workspace.lake.specs[table].schema for table in READ_FILES.tables}
    writers = {table: pa.ipc.new_stream(str(folder / f"{table}.arrow"), schema) for table, schema in schemas.items()}
    tally = _Tally()
    try:
        for faults, batches in _grouped(sequencefile_pages(file, path), file):
            _note(tally, faults)
            recorded_faults = faults[: max(0, MAX_FAULT_ROWS - tally.rows[FAULTS])]
            if recorded_faults:
                batches[FAULTS] = _fault_batch(file, recorded_faults, schemas[FAULTS])
            for table, batch in batches.items():
                if batch.num_rows:
                    writers[table].write_batch(batch)
                    tally.rows[table] += batch.num_rows
            progress.report(f"read {file.kind}", sum(tally.rows[table] for table in ("page_metadata", "page_text")))
    except OSError as error:
        raise EnvironmentFault(
            f"{folder} cannot be written: {error}", "Check the disk, then run the command again."
        ) from error
    finally:
        for writer in writers.values():
            writer.close()
    if tally.faults:
        tally.examples.insert(
            0,
            f"{file.location}: {format_count(tally.faults, 'byte range')} could not be read; everything else was read",
        )
    return tally


def _note(tally: _Tally, faults: Sequence[DataFault]) -> None:
    tally.faults += len(faults)
    room = max(0, _SHOWN_FAULTS - len(tally.examples))
    tally.examples += [str(fault) for fault in faults[:room]]


def _grouped(
    pages: Iterator[SourcePage], file: SourceFile
) -> Iterator[tuple[list[DataFault], dict[str, pa.RecordBatch]]]:
    group: list[ParsedPage] = []
    faults: list[DataFault] = []
    for page in pages:
        if isinstance(page, DataFault):
            faults.append(page)
        else:
            group.append(page)
        if len(group) + len(faults) >= _BATCH_ROWS:
            yield from _converted(group, faults, file)
            group, faults = [], []
    if group or faults:
        yield from _converted(group, faults, file)


def _converted(
    group: Sequence[ParsedPage], faults: list[DataFault], file: SourceFile
) -> Iterator[tuple[list[DataFault], dict[str, pa.RecordBatch]]]:
    try:
        yield faults, _rows(group)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        # a number that no column can hold, or a value of another shape: find its page
        for page in group:
            try:
                yield [], _rows([page])
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                faults.append(
                    DataFault(DataKind.MALFORMED, file.location, None, f"{page.keys['url']}: {str(error)[:200]}")
                )
        yield faults, {}


def _rows(pages: Sequence[ParsedPage]) -> dict[str, pa.RecordBatch]:
    batches = to_record_batches(pages)
    metadata = batches["page_metadata"]
    # files that have only texts give no metadata
    batches["page_metadata"] = metadata.filter(pc.is_valid(metadata.column("disposition")))
    return batches


def _fault_batch(file: SourceFile, faults: Sequence[DataFault], schema: pa.Schema) -> pa.RecordBatch:
    shared: dict[str, Any] = {
        "crawl": file.crawl,
        "target": file.slug,
        "source_kind": file.kind,
        "source_file": file.location,
    }
    rows = [shared | {"byte_offset": fault.offset, "reason": fault.reason} for fault in faults]
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def _page_input(file: SourceFile, url: str) -> PageInput:
    """Returns the keys of a page in ``file``."""
    domain = host_columns(url)["url_host_registered_domain"]
    return PageInput(
        crawl=file.crawl,
        subset="warc",
        url=url,
        payload=b"",
        target=file.slug,
        url_surtkey=surt_key(url),
        domain=str(domain) if domain is not None else None,
        source_kind=SEQUENCEFILE,
        source_file=file.location,
        archive_format="arc",
    )


def _text_row(text: str) -> dict[str, Any]:
    detected = detect_languages(text)
    return {"text": text, "content_languages": detected.codes, "language_reliable": detected.reliable}


def sequencefile_pages(file: SourceFile, path: Path) -> Iterator[SourcePage]:
    """Yields one page per record: with metadata, links and feed items, or with text.

    The file's name shows which of the two it has (``metadata-…``, ``textData-…``), else its first value. Empty texts
    are skipped.
    """
    pairs = iter_pairs(path, file.location)
    metadata = _has_metadata(file.location)
    if metadata is None:
        leading_pairs = list(_until_first_pair(pairs))
        first = leading_pairs[-1] if leading_pairs else None
        value = first.value if isinstance(first, SequencePair) else ""
        metadata = value.startswith("{") and '"disposition"' in value
        pairs = chain(leading_pairs, pairs)
    for pair in pairs:
        if isinstance(pair, DataFault):
            yield pair
        elif metadata:
            yield _metadata_page(file, pair.offset, pair.key, pair.value)
        elif pair.value:
            page = _page_input(file, pair.key)
            yield ParsedPage(page_keys(page) | {"parser": PARSER_OF_2012}, {}, _text_row(pair.value))


def _has_metadata(location: str) -> bool | None:
    name = location.rpartition("/")[2].lower()
    if name.startswith("metadata"):
        return True
    return False if name.startswith("textdata") else None


def _until_first_pair(pairs: Iterator[SequencePair | DataFault]) -> Iterator[SequencePair | DataFault]:
    for pair in pairs:
        yield pair
        if isinstance(pair, SequencePair):
            return


def _metadata_page(file: SourceFile, offset: int, url: str, value: str) -> SourcePage:
    try:
        return read_metadata_json(value, _page_input(file, url))
    except DataFault as fault:
        return DataFault(fault.kind, file.location, offset, fault.reason)
