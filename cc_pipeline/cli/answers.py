"""One read-only query of one DuckDB file, answered in the format asked for."""

from __future__ import annotations

from pathlib import Path

from cc_pipeline.cli.plain import write_rows
from cc_pipeline.errors import EnvironmentFault, UserInputError


def answer_query(path: Path, query: str, output: str, *, advice: str) -> None:
    """Runs ``query`` on the file ``path`` and writes what comes back; ``advice`` is for when there is no file.

    Raises ``EnvironmentFault`` without a file, ``UserInputError`` with DuckDB's own words for a query it refuses.
    """
    import duckdb

    if not path.exists():
        raise EnvironmentFault(f"{path} is not there yet", advice)
    try:
        with duckdb.connect(str(path), read_only=True) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            result = connection.execute(query)
            columns = [column[0] for column in result.description or []]
            rows = iter(lambda: result.fetchmany(10_000), [])
            write_rows("", columns, (row for batch in rows for row in batch), output)
    except duckdb.Error as error:
        raise UserInputError(f"DuckDB says: {error}") from None
