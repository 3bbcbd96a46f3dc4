"""The formats of ``export``. Nothing heavy is loaded before a format writes."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from cc_pipeline.export.format import ExportFormat, RecordFormat, RecordsRequest, RowFormat, RowsRequest, Written


def _write_duckdb(request: RowsRequest) -> Written:
    from cc_pipeline.export.table_files import write_duckdb_file

    return write_duckdb_file(request)


def _write_tables(request: RowsRequest) -> Written:
    from cc_pipeline.export.table_files import write_table_files

    return write_table_files(request)


def _write_documents(request: RowsRequest) -> Written:
    from cc_pipeline.export.documents import write_documents

    return write_documents(request)


def _write_wacz(request: RecordsRequest) -> Written:
    from cc_pipeline.export.wacz_export import write_wacz_export

    return write_wacz_export(request)


_TABLES: Final = "a file for one table or query, a folder for several"
FORMATS: Final[dict[str, ExportFormat]] = {
    "duckdb": RowFormat(
        summary="one file with the rows inside, comments included", write=_write_duckdb, suffixes=(".duckdb", ".db")
    ),
    "parquet": RowFormat(summary=_TABLES, write=_write_tables, suffixes=(".parquet",)),
    "jsonl": RowFormat(summary=_TABLES, write=_write_tables, suffixes=(".jsonl", ".ndjson")),
    "csv": RowFormat(summary=_TABLES, write=_write_tables, suffixes=(".csv",)),
    "metadata-json": RowFormat(
        summary="the metadata document of 2012 of each page, one a line (URL, tab, JSON)",
        write=_write_documents,
        only_table="page_metadata",
    ),
    "wacz": RecordFormat(
        summary="the stored records with an index and a list of pages, for ReplayWeb.page and other archive tools",
        write=_write_wacz,
        suffixes=(".wacz",),
    ),
}


def describe_formats() -> str:
    """Describes the formats in sentences, for the help; formats with the same summary share one."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, export_format in FORMATS.items():
        names[export_format.summary].append(name)
    return " ".join(f"[bold]{', '.join(group)}[/]: {summary}." for summary, group in names.items())
