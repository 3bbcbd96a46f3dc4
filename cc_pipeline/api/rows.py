"""Rows that Python asked for: read when they are wanted, in batches, and taken by every library that speaks Arrow."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from cc_pipeline.errors import UserInputError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from cc_pipeline.settings import Settings

#: Rows that a notebook shows, and characters of a cell.
_SHOWN: Final = 20
_CELL: Final = 160
#: Rows of a batch: one of ``page_metadata`` holds all links of its page.
_BATCH: Final = 2_000


class Rows(ABC):
    """Rows that are read anew each time they are asked for, a batch at a time.

    ``polars.DataFrame(rows)``, ``pyarrow.table(rows)``, ``pandas.DataFrame.from_arrow(rows)`` and ``FROM rows`` in
    DuckDB take them; iterating gives dictionaries.
    """

    @abstractmethod
    def _read(self) -> Iterator[Any]:
        """A schema, then batches of it."""

    def batches(self) -> pa.RecordBatchReader:
        """A reader of the rows. Whatever it reads is closed when it has ended or is thrown away."""
        import pyarrow as pa

        parts = self._read()
        return pa.RecordBatchReader.from_batches(next(parts), parts)

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
        """All rows as a table of Arrow; they have to fit into memory, as for the two below."""
        with self.batches() as reader:
            return reader.read_all()

    def to_polars(self) -> pl.DataFrame:
        """All rows as a frame of polars, which has to be installed."""
        import polars as pl

        return pl.DataFrame(self)

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a frame of pandas, which has to be installed."""
        return self.to_arrow().to_pandas()

    def head(self, count: int = _SHOWN) -> list[dict[str, Any]]:
        """The first ``count`` rows; no more are read than come with them."""
        return self._first(count)[1]

    def _first(self, count: int) -> tuple[list[str], list[dict[str, Any]]]:
        found: list[dict[str, Any]] = []
        with self.batches() as reader:
            for batch in reader:
                found += batch.slice(0, count - len(found)).to_pylist()
                if len(found) >= count:
                    break
            return list(reader.schema.names), found

    def _repr_html_(self) -> str:
        names, first = self._first(_SHOWN + 1)
        return as_html(names, [[row[name] for name in names] for row in first])


class Answer(Rows):
    """The rows of one query of the home's ``cc.duckdb``, as it is published when they are read.

    Reading raises ``EnvironmentFault`` where nothing was published or it cannot be read, ``UserInputError`` for a query
    that DuckDB refuses."""

    def __init__(self, settings: Settings, query: str, parameters: Sequence[object] = ()) -> None:
        self._settings = settings
        self._query = query
        self._parameters = tuple(parameters)

    def _read(self) -> Iterator[Any]:
        from cc_pipeline.lake.reading import open_answers

        with open_answers(self._settings) as connection:
            connection.execute("SET python_enable_replacements = false")
            asked = connection.sql(self._query, params=self._parameters)
            if asked is None:
                raise UserInputError("the statement answers with no rows; ask a query")
            reader = asked.to_arrow_reader(_BATCH)
            yield reader.schema
            yield from reader


class Held(Rows):
    """Rows that are in memory."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def _read(self) -> Iterator[Any]:
        yield self._table.schema
        yield from self._table.to_batches(_BATCH)


def as_html(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table for a notebook, cut to what one reads: what pages say is no markup."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    lines = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows[:_SHOWN])
    more = f"<p>the first {_SHOWN} rows</p>" if len(rows) > _SHOWN else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>{more}"


def _cell(value: object) -> str:
    if value is None:
        return ""
    # of a long text only what is shown is made into text
    text = value[: _CELL + 1] if isinstance(value, str | bytes | list) else value
    shown = text if isinstance(text, str) else str(text)
    return html.escape(shown if len(shown) <= _CELL else f"{shown[:_CELL]}…")
