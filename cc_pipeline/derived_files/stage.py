"""Reads source files (2012 SequenceFiles, WAT, WET) into the tables of parsed pages: one slice a file, so that an
unchanged file is not read again.

A slice is (the file's crawl, its partition key as target). ``page_metadata`` is committed last, as in the parse
stage. A file is complete only when all tables have the same digest.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from cc_pipeline import progress
from cc_pipeline.derived_files.files import local_copy, size_and_tag
from cc_pipeline.documents.page import ParsedPage
from cc_pipeline.documents.rows import to_record_batches
from cc_pipeline.documents.schemas import PARSER_VERSION
from cc_pipeline.errors import DataFault, DataKind, EnvironmentFault
from cc_pipeline.lake.digests.digest import compute_input_digest
from cc_pipeline.lake.ordered import spilled_batches
from cc_pipeline.lake.slice import PAGE_TABLES, READ_FILES, Metrics, Slice, Stage, StageReport
from cc_pipeline.progress import format_count
from cc_pipeline.workspace.source_files import FAULTS, MAX_FAULT_ROWS, SourceFile, read_source_files
from cc_pipeline.workspace.workspace import Workspace

if TYPE_CHECKING:
    from cc_pipeline.derived_files.pages import SourcePage

VERSION = "1"
#: Pages turned into rows at a time; bounds memory.
_BATCH_ROWS = 64
#: The number of faults in a note.
_SHOWN_FAULTS = 5

#: Names under which a file's tag and content are kept in the log of ``source_faults``.
_TAG = Stage("tag", (FAULTS,), "source-tag:{target}")
_CONTENT = Stage("content", (FAULTS,), "source-content:{target}")


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


def register(workspace: Workspace, files: Iterable[SourceFile]) -> list[SourceFile]:
    """Registers ``files``, so that a partition key identifies a file afterwards; returns the new ones."""
    registered_slugs = set(workspace.lake.read("source_files", columns=["slug"]).column("slug").to_pylist())
    new = [file for file in {file.slug: file for file in files}.values() if file.slug not in registered_slugs]
    if new:
        rows = [
            {"slug": file.slug, "source_kind": file.kind, "source_file": file.location, "crawl": file.crawl}
            for file in new
        ]
        table = pa.Table.from_pylist(rows, schema=workspace.lake.specs["source_files"].schema)
        digest = compute_input_digest({"source_files": sorted(row["slug"] for row in rows)})
        slices = [{"slug": row["slug"]} for row in rows]
        workspace.lake.commit("source_files", table, slices, {"source_files": digest})
    return new


def rows_of(workspace: Workspace, slice_: Slice) -> Metrics:
    """Returns ``rows:<table>`` and ``version:<table>`` for each table: number and digest of a file's rows."""
    lake = workspace.lake
    rows = {f"rows:{table}": lake.read(table, slice_.where, ["target"]).num_rows for table in READ_FILES.tables}
    return rows | READ_FILES.read_content_metrics(lake, [slice_])[slice_]


def _read_if_changed(workspace: Workspace, file: SourceFile) -> _Tally | None:
    """Reads ``file`` if its content differs from that of its rows; returns ``None`` if it does not.

    The digest of the rows includes the file's content, so a copied or restored file is the same file. To
    check that without reading the file each time, the digests of its content and of its tag (length and ETag, or
    length and time) are stored too: an equal tag means an equal content.
    """
    lake, slice_ = workspace.lake, Slice(file.crawl, file.slug)
    size_and_etag = size_and_tag(workspace.transport, file.location)
    if size_and_etag is None:
        raise EnvironmentFault(
            f"{file.location} does not exist any more, so it cannot be read again; its earlier rows are kept",
            "Restore the file, or do not run its partition.",
        )
    stored_digest = READ_FILES.read_input_digests(lake, [slice_])[slice_]
    tag = compute_input_digest({"tag": [*size_and_etag]})
    stored_digests = lake.digests(FAULTS, [_TAG.digest_name(slice_), _CONTENT.digest_name(slice_)])
    if stored_digests[_TAG.digest_name(slice_)] == tag and stored_digest == _digest(
        file, stored_digests[_CONTENT.digest_name(slice_)]
    ):
        return None
    with local_copy(workspace.transport, file.location, workspace.scratch) as copy:
        content = _content(copy.path)
        current_digest = _digest(file, content)
        extra_digests = {_TAG.digest_name(slice_): tag, _CONTENT.digest_name(slice_): content}
        if stored_digest == current_digest:
            lake.commit(FAULTS, lake.read(FAULTS, slice_.where), [slice_.where], extra_digests)
            return None
        tally = _read(workspace, file, copy.path, {slice_: current_digest}, extra_digests)
    tally.bytes, tally.requests = copy.bytes, copy.requests
    return tally


def _digest(file: SourceFile, *content: object) -> str:
    file_identity = [file.kind, file.location, file.crawl, *content]
    return READ_FILES.digest(version=VERSION, parser=PARSER_VERSION, file=file_identity)


def _content(path: Path) -> str:
    with path.open("rb") as file:
        return compute_input_digest({"sha256": hashlib.file_digest(file, "sha256").hexdigest()})


def _read(
    workspace: Workspace,
    file: SourceFile,
    path: Path,
    input_digests: Mapping[Slice, str],
    extra_digests: Mapping[str, str],
) -> _Tally:
    folder = workspace.scratch / f"sources-{time.monotonic_ns()}"
    folder.mkdir()
    try:
        tally = _spill(workspace, file, path, folder)
        spilled = {table: partial(spilled_batches, folder / f"{table}.arrow") for table in READ_FILES.tables}
        READ_FILES.commit(workspace.lake, input_digests, spilled, extra_digests={FAULTS: extra_digests})
        return tally
    finally:
        rmtree(folder, ignore_errors=True)


def _spill(workspace: Workspace, file: SourceFile, path: Path, folder: Path) -> _Tally:
    """Writes the rows to one Arrow file a table, so that memory does not grow with the file."""
    schemas = {table: workspace.lake.specs[table].schema for table in READ_FILES.tables}
    writers = {table: pa.ipc.new_stream(str(folder / f"{table}.arrow"), schema) for table, schema in schemas.items()}
    tally = _Tally()
    try:
        for faults, batches in _grouped(_pages(file, path), file):
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


def _pages(file: SourceFile, path: Path) -> Iterator[SourcePage]:
    # imports parsers, which the list of registered files does not need
    from cc_pipeline.derived_files.pages import (  # noqa: PLC0415
        sequencefile_pages,
        wat_pages,
        wet_pages,
    )

    readers = {"sequencefile": sequencefile_pages, "wat": wat_pages, "wet": wet_pages}
    return readers[file.kind](file, path)


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
