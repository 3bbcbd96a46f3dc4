"""What a person or a pipe sees: consoles, progress bars, tables, CSV, JSON lines, answers to queries."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from cc_pipeline import progress
from cc_pipeline.errors import EnvironmentFault, UserInputError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from cc_pipeline.lake.reading import S3Place

console = Console()
console_err = Console(stderr=True)


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table with right-aligned numbers."""
    materialized = [list(row) for row in rows]
    table = Table(title=title, title_justify="left", header_style="bold", show_edge=False, pad_edge=False)
    for place, name in enumerate(columns):
        numeric = bool(materialized) and all(isinstance(row[place], int | float) for row in materialized)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in materialized:
        table.add_row(*(_shown_cell(value) for value in row))
    console.print(table)


def _shown_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


@contextmanager
def progress_bars() -> Iterator[None]:
    """Shows a bar per stage while the block runs; plain when the screen is not a terminal."""
    bars = Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<18}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeElapsedColumn(),
        console=console_err,
        transient=True,
        disable=not console_err.is_terminal,
    )
    tasks: dict[str, TaskID] = {}

    def sink(stage: str, done: int, total: int | None, detail: str) -> None:
        if stage not in tasks:
            tasks[stage] = bars.add_task(stage, total=total, detail="")
        bars.update(tasks[stage], completed=done, total=total, detail=detail)

    with bars, progress.progress_to(sink):
        yield


def human_bytes(count: float) -> str:
    """``count`` bytes for a person, e.g. ``1.4 MB``."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


#: Formats of commands that print figures.
ROW_FORMATS = ("table", "csv", "jsonl")


def checked_format(output: str, allowed: Sequence[str] = ROW_FORMATS) -> str:
    """``output`` if it is one of ``allowed``. Raises ``UserInputError``."""
    if output not in allowed:
        raise UserInputError(f"--format is {output!r}; choose one of {', '.join(allowed)}")
    return output


def write_rows(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], output: str = "table") -> None:
    """Writes ``rows`` to standard output in one of ``ROW_FORMATS``. A title is for terminals only."""
    if output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(value) for value in row] for row in rows)
    elif output == "jsonl":
        for row in rows:
            sys.stdout.write(json_line(dict(zip(columns, row, strict=True))))
    elif console.is_terminal:
        show_table(title, columns, rows)
    else:
        _aligned(columns, [[_cell(value) for value in row] for row in rows])


def json_line(row: Mapping[str, object]) -> str:
    """One row as a line of JSON: times in ISO 8601, bytes in hexadecimal digits."""
    return json.dumps(row, default=_jsonable, ensure_ascii=False) + "\n"


def as_text(value: object) -> str:
    """A value as it stands in CSV: times in ISO 8601, bytes in hexadecimal digits, mappings as JSON."""
    return _cell(value)


def notice(text: str) -> None:
    """Writes a line to standard error, for the person at the screen."""
    console_err.print(text, highlight=False, markup=False, soft_wrap=True)


def warn(text: str) -> None:
    """Writes a line to standard error that a person should not overlook."""
    console_err.print(f"note: {text}", highlight=False, markup=False, soft_wrap=True, style="yellow")


def _aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[place]) for row in [columns, *rows]) for place in range(len(columns))]
    for row in [columns, *rows]:
        line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return json_line(value).rstrip("\n") if value else ""
    return str(_jsonable(value))


def _jsonable(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, bool | int | float) else str(value)


def answer_query(path: Path, query: str, output: str, *, advice: str, lake: S3Place | None = None) -> None:
    """Runs ``query`` on the DuckDB file ``path``, read-only, and writes its rows to standard output.

    ``lake`` is the lake on S3 that views of the file may read. Raises ``EnvironmentFault`` with ``advice`` when there
    is no such file, and where S3 cannot be read or refuses; ``UserInputError`` with DuckDB's own message for a query
    that it refuses.
    """
    import duckdb

    from cc_pipeline.lake.reading import open_published

    if not path.exists():
        raise EnvironmentFault(f"{path} does not exist yet", advice)
    try:
        with open_published(path, lake) as connection:
            write_answer(connection, query, output)
    except duckdb.HTTPException as error:
        raise EnvironmentFault(
            f"the tables of {path} cannot be read from S3: {error}",
            "Check the AWS credentials, CC_PIPELINE_LAKE_ENDPOINT and the network.",
        ) from error
    except duckdb.Error as error:
        raise UserInputError(f"DuckDB says: {error}") from None


def write_answer(connection: DuckDBPyConnection, query: str, output: str) -> None:
    """Runs ``query`` and writes its rows to standard output. Raises what DuckDB raises for a query that it refuses."""
    connection.execute("SET TimeZone = 'UTC'")
    result = connection.execute(query)
    columns = [column[0] for column in result.description or []]
    rows = iter(lambda: result.fetchmany(10_000), [])
    write_rows("", columns, (row for batch in rows for row in batch), output)
