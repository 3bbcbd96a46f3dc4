"""Displays the first rows for a person: aligned text for a terminal, a table for a notebook."""

from __future__ import annotations

import html
import json
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from cc_pipeline.terminal import escape_controls

#: The most rows as text, and in a notebook.
TEXT_ROWS: Final = 10
HTML_ROWS: Final = 20
#: The most characters of a cell in a notebook, and elements of a list.
_MAX_CELL_LENGTH: Final = 160
_MAX_ELEMENTS: Final = 20
#: Widths that text columns are cut to: the first one with which all columns fit into a line is used.
_COLUMN_WIDTHS: Final = (60, 40)
_LINE_WIDTH: Final = 120
_GAP: Final = "  "


def rows_as_text(names: Sequence[str], rows: Sequence[Sequence[object]], width: int | None = None) -> str:
    """Returns aligned lines no wider than ``width`` (default: the terminal, at most 120 columns). Columns that do not
    fit are named below."""
    width = width or min(shutil.get_terminal_size((100, 24)).columns, _LINE_WIDTH)
    cells = [[_format_cell(value, _COLUMN_WIDTHS[0]) for value in row] for row in rows[:TEXT_ROWS]]
    columns = [[name, *(row[position] for row in cells)] for position, name in enumerate(names)]
    numeric = [
        all(isinstance(row[position], int | float | None) for row in rows[:TEXT_ROWS]) for position in range(len(names))
    ]
    widest = next(
        (max_width for max_width in _COLUMN_WIDTHS if _line_width(columns, max_width) <= width), _COLUMN_WIDTHS[-1]
    )
    fitting = _fit_columns(columns, widest, width)
    aligned = [_align(columns[position], widest, numeric[position]) for position in fitting]
    lines = [_GAP.join(line).rstrip() for line in zip(*aligned, strict=True)]
    if hidden := [name for position, name in enumerate(names) if position not in fitting]:
        lines.append(_cut(f"and {len(hidden)} more columns: {', '.join(hidden)}", width))
    return "\n".join(lines)


def rows_as_html(names: Sequence[str], rows: Sequence[Sequence[object]], caption: str) -> str:
    """Returns a table under its caption, cut to a readable size. Text of pages is escaped."""
    head = "".join(f'<th style="text-align:left">{html.escape(name)}</th>' for name in names)
    lines = "".join(f"<tr>{''.join(map(_html_cell, row))}</tr>" for row in rows[:HTML_ROWS])
    return (
        f"<p>{html.escape(caption)}</p><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
        if names
        else f"<p>{html.escape(caption)}</p>"
    )


def _html_cell(value: object) -> str:
    side = "right" if isinstance(value, int | float) else "left"
    return f'<td style="text-align:{side}">{html.escape(_format_cell(value, _MAX_CELL_LENGTH))}</td>'


def _format_cell(value: object, max_length: int) -> str:
    """Returns a value as one line of at most ``max_length`` characters."""
    if value is None:
        return ""
    # only the displayed part of a long value is converted to text
    if isinstance(value, str):
        text = value[: max_length + 1]
    elif isinstance(value, bytes):
        text = value[: max_length + 1].decode("utf-8", "backslashreplace")
    elif isinstance(value, datetime):
        text = _format_time(value)
    elif isinstance(value, list | dict):
        text = json.dumps(_shorten(value), ensure_ascii=False, default=_to_json_text)
    else:
        text = str(value)
    return _cut(escape_controls(text, one_line=True), max_length)


def _shorten(value: list[Any] | dict[str, Any]) -> list[Any] | dict[str, Any]:
    return value[:_MAX_ELEMENTS] if isinstance(value, list) else value


def _to_json_text(value: object) -> str:
    return _format_time(value) if isinstance(value, datetime) else str(value)


def _format_time(value: datetime) -> str:
    """Formats a time to the second, in UTC."""
    moment = value if value.tzinfo is None else value.astimezone(UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _cut(text: str, max_width: int) -> str:
    """Cuts text to at most ``max_width`` columns of a terminal. Letters of some scripts take two columns."""
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= max_width else f"{set_cell_size(text, max_width - 1)}…"


def _line_width(columns: Sequence[Sequence[str]], max_width: int) -> int:
    from rich.cells import cell_len

    widths = [min(max(map(cell_len, column)), max_width) for column in columns]
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _fit_columns(columns: Sequence[Sequence[str]], max_width: int, width: int) -> list[int]:
    """Returns the positions of the columns that fit into a line. A column that is too wide is skipped, so that narrow
    columns after it may fit."""
    fitting: list[int] = []
    for position in range(len(columns)):
        if not fitting or _line_width([columns[fitted] for fitted in (*fitting, position)], max_width) <= width:
            fitting.append(position)
    return fitting


def _align(column: Sequence[str], max_width: int, right: bool) -> list[str]:
    from rich.cells import cell_len

    cut = [_cut(text, max_width) for text in column]
    width = max(map(cell_len, cut))
    spaces = [" " * (width - cell_len(text)) for text in cut]
    return [space + text if right else text + space for space, text in zip(spaces, cut, strict=True)]
