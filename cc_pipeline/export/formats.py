"""The formats of ``export``: those of the core and those of extensions. Nothing heavy is loaded before a format
writes."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final

from cc_pipeline.export.format import ExportFormat, RecordFormat, RecordsRequest, RowFormat, RowsRequest, Written
from cc_pipeline.extension import extensions

if TYPE_CHECKING:
    from cc_pipeline.documents.document2012.json import Compat


def _write_duckdb(request: RowsRequest) -> Written:
    from cc_pipeline.export.table_files import write_duckdb_file

    return write_duckdb_file(request)


def _write_tables(request: RowsRequest) -> Written:
    from cc_pipeline.export.table_files import write_table_files

    return write_table_files(request)


def _write_documents(request: RowsRequest, *, compat: Compat) -> Written:
    from cc_pipeline.export.documents import write_documents

    return write_documents(request, compat)


def _write_sequencefiles(request: RecordsRequest) -> Written:
    from cc_pipeline.export.sequencefiles import write_sequencefiles

    return write_sequencefiles(request)


_TABLES: Final = "a file for one table or query, a folder for several"
FORMATS: Final[dict[str, ExportFormat]] = {
    "duckdb": RowFormat(
        summary="one file with the rows inside, comments included", write=_write_duckdb, suffixes=(".duckdb", ".db")
    ),
    "parquet": RowFormat(summary=_TABLES, write=_write_tables, suffixes=(".parquet",)),
    "jsonl": RowFormat(summary=_TABLES, write=_write_tables, suffixes=(".jsonl", ".ndjson")),
    "csv": RowFormat(summary=_TABLES, write=_write_tables, suffixes=(".csv",)),
    "sequencefile": RecordFormat(summary="the text and metadata files of 2012", write=_write_sequencefiles),
    "metadata-json": RowFormat(
        summary="the metadata document of 2012 of each page, one a line (URL, tab, JSON)",
        write=partial(_write_documents, compat=None),
        only_table="page_metadata",
    ),
    "metadata-json-2012": RowFormat(
        summary="the same with the bugs of the writer of 2012",
        write=partial(_write_documents, compat="2012"),
        only_table="page_metadata",
    ),
}


def find_formats() -> dict[str, ExportFormat]:
    """Returns all formats by name."""
    all_formats = dict(FORMATS)
    for extension in extensions():
        all_formats |= extension.export_formats()
    return all_formats


def describe_formats() -> str:
    """Describes the formats in sentences, for the help; formats with the same summary share one."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, export_format in find_formats().items():
        names[export_format.summary].append(name)
    return " ".join(f"[bold]{', '.join(group)}[/]: {summary}." for summary, group in names.items())
