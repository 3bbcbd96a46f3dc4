"""Rows for Python: read in batches when they are needed, and accepted by every library that speaks Arrow."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from cc_pipeline.addresses import scheme_of
from cc_pipeline.advice import printing
from cc_pipeline.api.facade import describe_call
from cc_pipeline.errors import CcPipelineError, EnvironmentFault, UserInputError, disk_trouble
from cc_pipeline.progress import format_count
from cc_pipeline.terminal import escape_controls

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from cc_pipeline.settings import Settings

#: The most rows that are displayed.
SHOWN_ROWS: Final = 20
#: The most characters of a query that is displayed instead of its rows.
_QUERY: Final = 200
#: Rows of a batch. A row of ``page_metadata`` contains all links of its page.
_BATCH: Final = 2_000
#: The same of relations whose rows have whole pages of HTML.
_STREAM_BATCH: Final = 64


class Rows(ABC):
    """Rows that are read again each time they are used, a batch at a time.

    ``polars.DataFrame(rows)``, ``pyarrow.table(rows)``, ``pandas.DataFrame.from_arrow(rows)`` and ``FROM rows`` in
    DuckDB take them; iterating gives dictionaries.
    """

    @abstractmethod
    def _read(self) -> Iterator[Any]:
        """Yields a schema, then batches of it."""

    def batches(self) -> pa.RecordBatchReader:
        """Returns a reader of the rows. Its resources are closed when it has ended or is thrown away."""
        import pyarrow as pa

        parts = self._read_from_python()
        return pa.RecordBatchReader.from_batches(next(parts), parts)

    def _read_from_python(self) -> Iterator[Any]:
        parts = self._read()
        while True:
            # not while the reader works
            with printing(describe_call):
                part = next(parts, None)
            if part is None:
                return
            yield part

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        with self.batches() as reader:
            return list(reader.schema.names)

    def __iter__(self) -> Iterator[Any]:
        with self.batches() as reader:
            for batch in reader:
                yield from batch.to_pylist()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.batches().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """Returns all rows as an Arrow table. They have to fit into memory, as for the two methods below."""
        with self.batches() as reader:
            return reader.read_all()

    def to_polars(self) -> pl.DataFrame:
        """Returns all rows as a polars frame. Polars has to be installed."""
        import polars as pl

        return pl.DataFrame(self)

    def to_pandas(self) -> pd.DataFrame:
        """Returns all rows as a pandas frame. Pandas has to be installed."""
        return self.to_arrow().to_pandas()

    def head(self, count: int = 10) -> MemoryRows:
        """Returns the first ``count`` rows; reads no more batches than needed."""
        import pyarrow as pa

        batches: list[pa.RecordBatch] = []
        with self.batches() as reader:
            for batch in reader:
                batches.append(first_rows(batch, count - sum(part.num_rows for part in batches)))
                if sum(part.num_rows for part in batches) >= count:
                    break
            return MemoryRows(pa.Table.from_batches(batches, reader.schema))

    @abstractmethod
    def _preview(self) -> tuple[str, MemoryRows | None]:
        """Returns a caption, and the first rows if they cost nothing but reading them."""

    def _draw(self) -> str:
        caption, first = self._preview()
        if first is not None and first.columns:
            return first.text_under(caption)
        return escape_controls(caption, one_line=True)

    def __repr__(self) -> str:
        return self._draw()


def first_rows(batch: pa.RecordBatch, count: int) -> pa.RecordBatch:
    """Returns at most ``count`` rows of the beginning of a batch, copied: a slice would keep the whole batch in
    memory."""
    import pyarrow as pa

    return batch if batch.num_rows <= count else batch.take(pa.array(range(count), pa.int64()))


class MemoryRows(Rows):
    """Rows in memory. They also have a length, and each has an index."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, place: int) -> dict[str, Any]:
        if not -len(self) <= place < len(self):
            raise IndexError(f"there is no row {place}; there are {len(self):,}")
        [row] = self._table.slice(place % len(self), 1).to_pylist()
        return dict(row)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._table.column_names)

    def text_under(self, caption: str) -> str:
        """Returns the first and the last rows as DuckDB draws them, below a caption: at most 20 of them. Columns that
        do not fit are left out."""
        from cc_pipeline.duck import connect

        with connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            drawn = str(connection.from_arrow(self._table))
        return escape_controls(f"{caption}\n{drawn.rstrip()}")

    def _read(self) -> Iterator[Any]:
        yield self._table.schema
        yield from self._table.to_batches(_BATCH)

    def _preview(self) -> tuple[str, MemoryRows | None]:
        return f"{format_count(len(self), 'row')}, {format_count(len(self.columns), 'column')}", self


class Answer(Rows):
    """The rows of one query on the home's ``cc.duckdb``, as it is published when they are read.

    Reading raises ``EnvironmentFault`` if nothing was published or the file cannot be read, and ``UserInputError`` for
    a query that DuckDB refuses. As text it is the query, which is not sent for that. A notebook displays its first
    rows, but none of a lake on S3, since they would have to be fetched.
    """

    def __init__(
        self,
        settings: Settings,
        query: str,
        parameters: Sequence[object] = (),
        prepare: Callable[[DuckDBPyConnection], AbstractContextManager[object]] | None = None,
    ) -> None:
        self._settings = settings
        self._query = query
        self._parameters = tuple(parameters)
        #: Makes the relations that the query needs beside the published ones.
        self._prepare = prepare
        self._first: tuple[int, MemoryRows] | None = None

    def _read(self) -> Iterator[Any]:
        from cc_pipeline.lake.published_file import open_for_queries

        with open_for_queries(self._settings) as connection:
            yield from self._rows_of(connection)

    def _rows_of(self, connection: DuckDBPyConnection, limit: str = "") -> Iterator[Any]:
        from cc_pipeline.lake.user_queries import split_queries

        queries = split_queries(connection, self._query)
        if len(queries) != 1:
            raise UserInputError(f"these are {len(queries)} queries; give one")
        prepared, batch_rows = (self._prepare(connection), _STREAM_BATCH) if self._prepare else (nullcontext(), _BATCH)
        with prepared:
            reader = connection.sql(f"FROM {queries[0]}{limit}", params=self._parameters).to_arrow_reader(batch_rows)
            yield reader.schema
            yield from reader

    def __repr__(self) -> str:
        # a query may take minutes, and a debugger or a log reads this text without needing rows
        return escape_controls(self._describe_query(), one_line=True)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self._draw())}</pre>"

    def _describe_query(self) -> str:
        return f"a query, executed when its rows are read: {' '.join(self._query.split())[:_QUERY]}"

    def _preview(self) -> tuple[str, MemoryRows | None]:
        is_remote = scheme_of(self._settings.lake) and self._settings.publish == "views"
        if is_remote:
            return self._describe_query(), None
        try:
            first = self._first_rows()
        except CcPipelineError as error:
            problem = f"{error.problem}. {error.advice}" if isinstance(error, EnvironmentFault) else str(error)
            return f"the query failed: {problem}", None
        columns = format_count(len(first.columns), "column")
        if len(first) <= SHOWN_ROWS:
            return f"{format_count(len(first), 'row')}, {columns}", first
        return f"the first rows of more than {SHOWN_ROWS}, {columns}", first.head(SHOWN_ROWS)

    def _first_rows(self) -> MemoryRows:
        """Returns the first rows, read once for each published file: a notebook displays the same rows repeatedly."""
        path = self._settings.published_path
        published = path.stat().st_mtime_ns if path.exists() else 0
        if self._first is None or self._first[0] != published:
            with printing(describe_call):
                self._first = published, self._query_first_rows()
        return self._first[1]

    def _query_first_rows(self) -> MemoryRows:
        """Reads the first rows with bounded memory. The limit is part of the statement, so DuckDB sorts no more rows
        than are displayed, and holds no complete result."""
        import pyarrow as pa

        from cc_pipeline.lake.published_file import open_bounded, open_for_queries

        trouble = disk_trouble(self._settings.home / "scratch")
        with trouble, open_for_queries(self._settings, open_bounded) as connection:
            parts = self._rows_of(connection, f" LIMIT {SHOWN_ROWS + 1}")
            schema = next(parts)
            return MemoryRows(pa.Table.from_batches(parts, schema))
