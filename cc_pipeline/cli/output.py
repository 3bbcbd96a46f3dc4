"""Output for terminals and pipes: consoles, progress bars, tables, CSV, JSON lines, complete files."""

from __future__ import annotations

import csv
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Literal, TextIO, cast

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from cc_pipeline import progress
from cc_pipeline.api.user_input import ROW_FORMATS, check_format
from cc_pipeline.atomic import written_whole
from cc_pipeline.errors import UserInputError, disk_trouble
from cc_pipeline.terminal import EscapingTerminal, escape_controls

if TYPE_CHECKING:
    from cc_pipeline.api.export import Export
    from cc_pipeline.settings import Settings

#: Maximum characters of a line in a file or pipe. Lines are not wrapped there, so a message is one line of a log.
_MAX_LINE_WIDTH = 100_000

#: Joins the pieces of a line: texts, or (text, style).
coloured = Text.assemble
#: Number of rows from which the column widths of plain text are computed. Later rows are streamed.
_MEASURED_ROWS = 1_000
#: Minimum width of a column. Below it, a wide result is printed one value per line.
_MIN_COLUMN_WIDTH = 12
#: Minimum width of a wrapped text in a table. Below it, rows are printed one value per line.
_MIN_FOLDED_WIDTH = 16
#: Characters between two columns of a table on a terminal.
_COLUMN_GAP = 3
#: Seconds left at the last report that a source is waited for.
_last_wait_seconds = [0]
#: Time of the last line about waiting (monotonic), and seconds until the next.
_last_line_at = [0.0]
_SECONDS_BETWEEN_LINES: Final = 60.0
#: The most crawls that have a line each; more have a line for each year.
MAX_CRAWL_LINES: Final = 15
YEAR: Final = re.compile(r"(?<!\d)\d{4}(?!\d)")
_SUFFIXES = {".csv": "csv", ".jsonl": "json", ".ndjson": "json", ".json": "json", ".parquet": "parquet"}


class _EscapingConsole(Console):
    """A console that shows control characters as escapes, on standard error always and on a terminal. Rich's own
    colours stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or not (self.stderr or self.is_terminal):
                yield segment
            else:
                yield Segment(escape_controls(segment.text), segment.style)


def _new_console(*, stderr: bool = False) -> Console:
    """Returns a console as wide as its terminal or ``COLUMNS``. In a file or pipe it wraps no lines.

    Markup is off: addresses, file names and server messages contain ``[…]`` and ``:x:``. :func:`coloured` makes
    coloured text.
    """
    new_console = _EscapingConsole(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not new_console.is_terminal and "COLUMNS" not in os.environ:
        new_console.width = _MAX_LINE_WIDTH
    return new_console


console = _new_console()
console_err = _new_console(stderr=True)


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table that fits the screen, with right-aligned numbers, wrapped texts and no empty columns. If there are
    too many columns for that, prints one value per line."""
    values = [list(row) for row in rows]
    filled = [
        place for place in range(len(columns)) if not values or any(row[place] not in (None, "") for row in values)
    ]
    values = [[row[place] for place in filled] for row in values]
    # text from pages is escaped and never markup
    texts = [[escape_controls(_table_cell(value), one_line=True) for value in row] for row in values]
    # column names have underscores, as in SQL; in a narrow table they are wrapped at spaces
    names = [columns[place] for place in filled]
    widths, is_squeezed = _fit_widths([[name] for name in names], texts)
    if is_squeezed:
        names = [name.replace("_", " ") for name in names]
        widths, is_squeezed = _fit_widths([name.split() for name in names], texts)
    if title:
        console.print(Text(title, style="italic"))  # as a title of the table it would be wrapped to the table's width
    if is_squeezed and max(widths) < _MIN_FOLDED_WIDTH:
        _show_vertically(names, texts, "fold")
    else:
        _show_grid(names, texts, widths, _find_numeric(values, len(names)), "fold")


def show_truncated(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints rows with truncated cells on a terminal: as a table, or one value per line if there are many columns."""
    texts = [[escape_controls(_cell(value), one_line=True) for value in row] for row in rows]
    if len(columns) * (_MIN_COLUMN_WIDTH + _COLUMN_GAP) > console.width:
        _show_vertically(columns, texts, "ellipsis")
        return
    widths, _ = _fit_widths([[name] for name in columns], texts)
    _show_grid(columns, texts, widths, _find_numeric(rows, len(columns)), "ellipsis")


def _find_numeric(rows: Sequence[Sequence[object]], count: int) -> list[bool]:
    """Returns for each column whether it has numbers and nothing else."""
    return [bool(rows) and all(isinstance(row[place], int | float | None) for row in rows) for place in range(count)]


def _show_grid(
    names: Sequence[str],
    texts: Iterable[Sequence[str]],
    widths: Sequence[int],
    numeric: Sequence[bool],
    overflow: Literal["fold", "ellipsis"],
) -> None:
    """Prints a table whose columns have these widths: longer texts are wrapped (``fold``) or cut (``ellipsis``)."""
    table = Table(header_style="bold", show_edge=False, pad_edge=False)
    for name, width, is_numeric in zip(names, widths, numeric, strict=True):
        justify: Literal["right", "left"] = "right" if is_numeric else "left"
        table.add_column(Text(name), justify=justify, no_wrap=overflow == "ellipsis", overflow=overflow, width=width)
    for row in texts:
        table.add_row(*map(Text, row))
    console.print(table)


def _fit_widths(names: Sequence[Sequence[str]], texts: Sequence[Sequence[str]]) -> tuple[list[int], bool]:
    """Returns the column widths of a table that fits the screen, and whether long columns were narrowed. Short columns
    keep their width; long ones share the rest. ``names`` are split into parts that are not wrapped."""
    room = console.width - _COLUMN_GAP * (len(names) - 1)
    widths = [
        max([*map(len, name), *(cell_len(row[place]) for row in texts)], default=0) for place, name in enumerate(names)
    ]
    widest = next((cap for cap in range(room, 0, -1) if sum(min(width, cap) for width in widths) <= room), 0)
    return [min(width, widest) for width in widths], max(widths, default=0) > widest


def _show_vertically(
    columns: Sequence[str], texts: Iterable[Sequence[str]], overflow: Literal["fold", "ellipsis"]
) -> None:
    """Prints each row as one value per line, wrapped without the empty ones (``fold``), or cut (``ellipsis``)."""
    width = max(map(len, columns))
    is_cut = overflow == "ellipsis"
    for number, row in enumerate(texts, start=1):
        console.print(Text(f"row {number:,}", style="bold"))
        for name, text in zip(columns, row, strict=True):
            if text or is_cut:
                console.print(Text(f"{name:<{width}}  {text}"), no_wrap=is_cut, overflow=overflow)


def show_indented(label: Text, text: str) -> None:
    """Prints a text behind its label. On a terminal its further lines begin where the first one does; in a file or
    pipe they begin at the margin."""
    if not console.is_terminal:
        console.print(coloured(label, text))
        return
    row = Table.grid()
    row.add_column(no_wrap=True)
    row.add_column(overflow="fold")
    row.add_row(label, Text(text))
    console.print(row)


def _table_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


@contextmanager
def progress_bars() -> Iterator[None]:
    """Shows a progress bar per stage while the block runs. Without a terminal, only waiting is reported."""
    bars = Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<18}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeElapsedColumn(),
        console=console_err,
        transient=True,
        disable=not console_err.is_terminal,
    )
    tasks: dict[str, TaskID] = {}

    def sink(stage: str, done: int, total: int | None, detail: str) -> None:
        if bars.disable:
            report_waiting(stage, done, total, detail)
            return
        if stage not in tasks:
            tasks[stage] = bars.add_task(stage, total=total, detail="")
        has_ended = stage == progress.WAITING and not detail
        bars.update(tasks[stage], completed=done, total=total, detail=detail, visible=not has_ended)

    with bars, progress.progress_to(sink):
        yield


def report_waiting(stage: str, done: int, total: int | None, detail: str) -> None:
    """Reports on standard error that a source is waited for, if no progress bar does: at the start, at each probe, and
    once a minute."""
    del total
    if stage == progress.WAITING:
        now = time.monotonic()
        if done > _last_wait_seconds[0] or (detail and now - _last_line_at[0] >= _SECONDS_BETWEEN_LINES):
            warn(detail)
            _last_line_at[0] = now
        _last_wait_seconds[0] = done


def prepare_streams() -> None:
    """Opens closed standard streams on the null device, and sets files and pipes to UTF-8, whatever the locale is.

    A terminal keeps its encoding. Characters that it lacks are shown as escapes.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by whoever started us, as some schedulers do
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # for good
    if isinstance(sys.stdout, TextIOWrapper):
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="backslashreplace")
            sys.stdout = cast(TextIO, EscapingTerminal(sys.stdout))
        else:
            sys.stdout.reconfigure(encoding="utf-8", errors=sys.stdout.errors)


def drop_output() -> None:
    """Discards buffered output that cannot be written. Otherwise the interpreter would try again at its exit."""
    with suppress(OSError, ValueError), Path(os.devnull).open("wb") as null_device:
        os.dup2(null_device.fileno(), sys.stdout.fileno())


def choose_format(given: str | None, out: Path | None) -> str:
    """Returns the format of rows that is ``given``, else that of the suffix of ``out``, else ``table``.

    Raises ``UserInputError`` for unknown formats and suffixes, for a table in a file, and for Parquet on a terminal.
    """
    format_name = given or ("table" if out is None else _SUFFIXES.get(out.suffix.lower()))
    if format_name is None:
        raise UserInputError(f"the suffix of {out and out.name!r} names no format; add --format csv, json or parquet")
    check_format(format_name, (*ROW_FORMATS, "parquet"))
    if format_name == "table" and out is not None:
        raise UserInputError("--out takes --format csv, json or parquet; a table is for the screen")
    if format_name == "parquet" and out is None and sys.stdout.isatty():
        raise UserInputError("a terminal cannot show Parquet; add --out FILE.parquet, or pipe the output to a program")
    return format_name


def write_rows(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], output: str | None = None) -> None:
    """Writes ``rows`` to standard output: as a table, as JSON lines, or as CSV, by ``--format`` of the running command
    unless ``output`` is given. A title is for terminals only; in a file or pipe a table is plain text."""
    output = output or row_format()
    if output == "csv":
        if _flags.csv_columns != tuple(columns):
            write_csv(sys.stdout, [columns])
        _flags.csv_columns = tuple(columns)
        write_csv(sys.stdout, rows)
    elif output == "json":
        for row in rows:
            sys.stdout.write(json_line(dict(zip(columns, row, strict=True))))
    elif console.is_terminal:
        show_table(title, columns, rows)
    else:
        write_aligned(columns, rows)


def show_export(title: str, export: Export) -> None:
    """Prints the rows of an export report to standard output, and its notes to standard error."""
    write_rows(title, export.rows.columns, [tuple(row.values()) for row in export.rows])
    for note in export.notes:
        notice(note)


def json_line(row: Mapping[str, object]) -> str:
    """Returns one row as a line of JSON: times in ISO 8601, bytes in hexadecimal digits."""
    return json.dumps(row, default=_jsonable, ensure_ascii=False) + "\n"


def write_csv(stream: IO[str], rows: Iterable[Sequence[object]]) -> None:
    """Writes rows as CSV."""
    # all versions of Python quote a carriage return if it is part of the line terminator
    csv.writer(_Lines(stream), lineterminator="\r\n").writerows([_cell(value) for value in row] for row in rows)


class _Lines:
    """Ends each line of CSV with a line feed alone, as the rest of the output."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, line: str) -> int:
        return self._stream.write(f"{line[:-2]}\n")


def as_text(value: object) -> str:
    """Returns a value as text for CSV: times in ISO 8601, bytes in hexadecimal digits, lists and mappings as JSON."""
    return _cell(value)


def notice(text: str) -> None:
    """Writes a line to standard error, for the person at the screen."""
    console_err.print(text, soft_wrap=True)


def warn(text: str) -> None:
    """Writes a line to standard error that a person should not overlook."""
    console_err.print(f"note: {text}", soft_wrap=True, style="yellow")


class ConsoleReporter:
    """The reporter of the command line: notes and costs go to standard error, answers to standard output."""

    note = staticmethod(warn)
    notice = staticmethod(notice)
    bars = staticmethod(progress_bars)

    def __init__(self, *, details: bool = False) -> None:
        self._details = details

    def answer(self, text: str) -> None:
        console.print(text, soft_wrap=True)

    def detail(self, text: str) -> None:
        if self._details:
            self.answer(text)

    def agrees(self, question: str) -> bool:
        return sys.stdin.isatty() and typer.confirm(question, abort=True)


def write_aligned(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Writes rows as aligned plain text. Widths come from the first thousand rows, so that memory stays flat."""
    texts = ([escape_controls(_cell(value), one_line=True) for value in row] for row in rows)
    first = [list(columns), *islice(texts, _MEASURED_ROWS)]
    widths = [max(len(row[place]) for row in first) for place in range(len(columns))]
    for row in chain(first, texts):
        line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yields a temporary path next to ``path``. It is renamed to ``path`` if the block succeeds, else deleted.

    Raises ``EnvironmentFault`` if the disk refuses.
    """
    with disk_trouble(path), written_whole(path, make_folder=False) as temporary_path:
        temporary_path.touch()
        yield temporary_path


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, default=_jsonable, ensure_ascii=False) if value else ""
    return str(_jsonable(value))


def _jsonable(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, bool | int | float) else str(value)


@dataclass(slots=True)
class _Flags:
    """The format of rows of the running command."""

    row_format: str = "table"
    #: The columns of the last CSV. Further rows with the same ones need no header.
    csv_columns: tuple[str, ...] = ()


_flags = _Flags()


def row_format() -> str:
    """The ``--format`` of the running command: ``table``, ``json`` or ``csv``."""
    return _flags.row_format


@contextmanager
def row_format_set(text: str) -> Iterator[None]:
    """Sets the format of the command in the block. Only rows go to standard output if a program reads them."""
    _flags.row_format, _flags.csv_columns = check_format(text), ()
    console.stderr = text != "table"
    try:
        yield
    finally:
        _flags.row_format, console.stderr = "table", False


def print_source(settings: Settings, *, sends_requests: bool) -> None:
    """Writes a line to standard error if the source is not Common Crawl's own bucket, in bold for a mini crawl.

    ``sends_requests``: the command sends requests. Then a line says how to set a contact, if Common Crawl would get
    none."""
    if settings.is_mini_crawl:
        text = f"INVENTED WEB: {settings.source} is a crawl generated for the demo; no page in it is real."
        console_err.print(f"{text} For real pages, use another home: --home", soft_wrap=True, style="bold reverse")
    elif not settings.is_public:
        notice(f"source: {settings.source}, which is not Common Crawl's own")
    elif sends_requests and not settings.contact:
        notice(f"no contact is set, so Common Crawl cannot reach you before it blocks you: {_CONTACT_EXAMPLE}")


_CONTACT_EXAMPLE: Final = "export CC_PIPELINE_CONTACT=mailto:you@example.org"
