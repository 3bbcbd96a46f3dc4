"""Exports metadata documents in the format of 2012, one per line."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from duckdb import DuckDBPyConnection

from cc_pipeline.advice import option
from cc_pipeline.documents.document2012.json import metadata_json
from cc_pipeline.errors import UserInputError
from cc_pipeline.export.files import ExportedTable, whole_file, write_export_documents
from cc_pipeline.export.format import RowsRequest, Written
from cc_pipeline.export.table_files import Selection, written_tables
from cc_pipeline.lake.published_file import translate_errors

#: Rows of ``page_metadata`` in memory at a time: a row has all links of its page.
_BATCH: Final = 200
#: Characters that would end a line or a column, escaped. No valid URL contains them.
_ESCAPED: Final = {ord(character): f"%{ord(character):02X}" for character in "\t\r\n"}


def write_documents(request: RowsRequest) -> Written:
    """Writes the metadata document of each row to a file, one per line: URL, tab, JSON. Raises ``UserInputError`` for a
    query that does not return complete rows of ``page_metadata``."""
    with whole_file(request.out) as path:
        exported_tables = [_write_lines(request.connection, request.selections[0], path)]
    return written_tables(
        exported_tables,
        write_export_documents(request.out, request.description, request.provenance, exported_tables, [request.out]),
    )


def _write_lines(connection: DuckDBPyConnection, selection: Selection, path: Path) -> ExportedTable:
    order = "" if selection.table is None else " ORDER BY crawl, warc_filename, warc_record_offset, url"
    rows = 0
    with translate_errors(path), path.open("w", encoding="utf-8") as stream:
        result = connection.execute(f"SELECT * FROM ({selection.sql}){order}")
        columns = [column[0] for column in result.description or []]
        if not {"url", "disposition", "parsed_as"} <= {*columns}:
            raise UserInputError(
                "metadata-json needs all columns of page_metadata; select them: "
                f"{option(query='SELECT * FROM page_metadata')}"
            )
        while page := result.fetchmany(_BATCH):
            for values in page:
                row = dict(zip(columns, values, strict=True))
                url = (row["url"] or "").translate(_ESCAPED)
                stream.write(f"{url}\t{metadata_json(row)}\n")
            rows += len(page)
    return ExportedTable(selection.name, rows)
