"""The columns and rows of one table that a person wants: named columns, an SQL condition, a number of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import duckdb

from cc_pipeline.errors import UserInputError
from cc_pipeline.export.table_files import Selection, describe_columns
from cc_pipeline.lake.quoting import quote_name
from cc_pipeline.lake.user_queries import check_condition


@dataclass(frozen=True, slots=True)
class RowChoice:
    """``columns`` (none: all), the rows that meet the SQL condition ``where`` (empty: all), ``limit`` of them at most
    (0: no limit). Raises ``UserInputError`` for a negative limit."""

    columns: Sequence[str] = ()
    where: str = ""
    limit: int = 0

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise UserInputError(f"the limit is {self.limit}; give a number of rows, or 0 for all")

    def __bool__(self) -> bool:
        return bool(self.columns or self.where or self.limit)

    def describe(self) -> Iterator[str]:
        """Yields the choice in words, for the documents of an export."""
        if self.columns:
            yield f"columns: {', '.join(self.columns)}"
        if self.where:
            yield f"where: `{' '.join(self.where.split())}`"
        if self.limit:
            yield f"limit: {self.limit:,} rows, in no order"

    def narrow(self, connection: duckdb.DuckDBPyConnection, selection: Selection) -> Selection:
        """Returns the chosen columns and rows of ``selection``. Raises ``UserInputError`` for a column that it does not
        have, and for a condition that is none, or reads more than its row."""
        names = [name for name, _ in describe_columns(connection, selection.sql)]
        if unknown := [name for name in self.columns if name not in names]:
            raise UserInputError(f"{selection.name} has no column {unknown[0]!r}; there are: {', '.join(names)}")
        sql = f"SELECT {', '.join(map(quote_name, self.columns)) or '*'} FROM ({selection.sql})"
        if self.where:
            check_condition(connection, self.where)
            sql += f" WHERE ({self.where}\n)"
        if self.limit:
            sql += f" LIMIT {self.limit}"
        describe_columns(connection, sql)
        return replace(selection, sql=sql)
