"""The table ``page_html``: the decoded markup of pages. Nobody stores it: the records are read while its rows are used.

DuckDB reads it as a stream of small batches, so memory does not depend on the number of pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from cc_pipeline.archive import arc, warc
from cc_pipeline.capture_columns import CAPTURE
from cc_pipeline.columns import Column, schema_of
from cc_pipeline.documents.charset import decode
from cc_pipeline.documents.headers import content_type
from cc_pipeline.documents.page import Limits
from cc_pipeline.errors import DataFault, UserInputError
from cc_pipeline.export.record_body import content_headers, read_body
from cc_pipeline.export.row_choice import RowChoice
from cc_pipeline.export.table_files import Selection
from cc_pipeline.lake.published_file import translate_errors
from cc_pipeline.records.reading import MemberResult, Row, read_members
from cc_pipeline.records.schema import RECORD_COLUMNS
from cc_pipeline.records.storage import STORED, RecordStorage

NAME: Final = "page_html"
_OF_RECORDS: Final = {column.name: column for column in RECORD_COLUMNS}
COLUMNS: Final = (
    *(_OF_RECORDS[name] for name in ("url", "crawl", "fetch_time", "fetch_status", "domain")),
    Column("charset", pa.string(), "Encoding of the page, which its text had before"),
    Column("html", pa.string(), "The page as text; null if its stored bytes are gone or damaged"),
    *(_OF_RECORDS[name] for name in ("truncated", "warc_filename", "warc_record_offset", "warc_record_length")),
)
_SCHEMA: Final = schema_of(COLUMNS)
#: Columns of ``records`` by which a record is read.
_READING: Final = ("outcome", "archive_format", *STORED)
#: Maximum rows of a batch, and characters of its pages after which it ends.
_BATCH_ROWS: Final = 64
_BATCH_CHARACTERS: Final = 4 << 20
#: The parser reads as many bytes of a page.
_MAX_BYTES: Final = Limits().payload_bytes


@contextmanager
def open_page_html(
    connection: duckdb.DuckDBPyConnection, storage: RecordStorage, records: Selection, choice: RowChoice
) -> Iterator[Selection]:
    """Inside the block ``connection``, a published file, has the relation ``page_html``: the pages of HTML of
    ``records``, rows of that table. Yields the selection of the rows that ``choice`` selects.

    Raises ``UserInputError`` as ``choice`` does. Errors of reading records leave the block as they were raised:
    ``EnvironmentFault`` if the lake cannot be read.
    """
    stream = _PageStream(connection, storage)
    connection.register(NAME, stream)
    try:
        pages = Selection(NAME, f"SELECT * FROM {NAME}", is_streamed=True)
        chosen_pages = choice.narrow(connection, pages)
        stream.records = _select_records(records)
        # a condition on the markup fails here
        with suppress(UserInputError):
            stream.records = RowChoice(where=choice.where).narrow(connection, Selection(NAME, stream.records)).sql
            # not twice: it may draw a sample
            chosen_pages = replace(choice, where="").narrow(connection, pages)
        yield chosen_pages
    except Exception:
        # DuckDB and Arrow raise errors of their own for those of a stream
        if stream.error is not None:
            raise stream.error from None
        raise
    finally:
        connection.unregister(NAME)


def _select_records(records: Selection) -> str:
    """Returns a query of the records of all pages of HTML."""
    key = ", ".join(CAPTURE)
    columns = ", ".join(column.name for column in COLUMNS if column.name != "html")
    return (
        f"SELECT {columns}, {', '.join(_READING)} FROM ({records.sql}) JOIN (SELECT {key}, charset_detected AS charset "
        f"FROM main.page_metadata WHERE parsed_as = 'html') USING ({key}) WHERE outcome = 'fetched'"
    )


class _PageStream:
    """An Arrow stream of pages that can be read several times: those of ``records``, a query. ``error`` is what ended a
    reading."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, storage: RecordStorage) -> None:
        self._connection = connection
        [(self._database,)] = connection.execute("SELECT current_database()").fetchall()
        self._storage = storage
        self.records = ""
        self.error: BaseException | None = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.RecordBatchReader.from_batches(_SCHEMA, self._read_batches()).__arrow_c_stream__()

    def _read_batches(self) -> Iterator[pa.RecordBatch]:
        try:
            rows: list[dict[str, Any]] = []
            characters = 0
            for row, member in read_members(self._read_records(), self._storage):
                rows.append({**row, "html": _read_markup(row, member)})
                characters += len(rows[-1]["html"] or "")
                if len(rows) == _BATCH_ROWS or characters > _BATCH_CHARACTERS:
                    yield pa.RecordBatch.from_pylist(rows, _SCHEMA)
                    rows, characters = [], 0
            yield pa.RecordBatch.from_pylist(rows, _SCHEMA)
        except (Exception, KeyboardInterrupt) as error:
            self.error = error
            raise

    def _read_records(self) -> Iterator[Row]:
        # the connection is busy with the query that reads this stream
        with translate_errors(Path(f"{self._database}.duckdb")), self._connection.cursor() as cursor:
            cursor.execute(f"USE {self._database}; SET TimeZone = 'UTC'")
            for batch in cursor.sql(f"{self.records} ORDER BY crawl, stored_file, stored_offset").to_arrow_reader(
                _BATCH_ROWS
            ):
                yield from batch.to_pylist()


def _read_markup(row: Row, member: MemberResult) -> str | None:
    if not isinstance(member, bytes):
        return None
    read = arc.read_record if row["archive_format"] == "arc" else warc.read_record
    try:
        record = read(member, row["stored_file"], row["stored_offset"])
    except DataFault:
        return None
    _, label = content_type(content_headers(record))
    decoded = decode(read_body(record, _MAX_BYTES)[:_MAX_BYTES], label)
    # Arrow takes no half of a surrogate pair
    return decoded.text.encode("utf-8", "replace").decode()
