"""Rows for a person or a pipe: a table on a terminal, aligned text elsewhere, CSV or JSON lines for programs."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime

from cc_pipeline.cli.screen import console, console_err, show_table
from cc_pipeline.errors import UserInputError

#: What commands that print figures can write.
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
    """A line for the person at the screen, beside what goes to standard output."""
    console_err.print(text, highlight=False, markup=False, soft_wrap=True)


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
