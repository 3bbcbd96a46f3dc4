"""What a person or a pipe sees: consoles, progress bars, tables, CSV, JSON lines, whole files."""

from __future__ import annotations

import csv
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TextIO, cast

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand, TyperOption

from cc_pipeline import progress
from cc_pipeline.atomic import written_whole
from cc_pipeline.errors import CcPipelineError, UserInputError, disk_trouble
from cc_pipeline.export.formulas import harmless
from cc_pipeline.terminal import EscapingTerminal, escape_controls

if TYPE_CHECKING:
    from click import Context, Parameter

    from cc_pipeline.api.export import Export

#: Characters a line of what goes to a file or a pipe may have: none is broken where nobody looks at a screen, so that
#: a message stays one line of a log.
_UNBROKEN = 100_000

#: A line of pieces, plain ones or (text, style).
coloured = Text.assemble
#: Rows from which the widths of the columns of plain text are taken; those behind them are written as they come.
_MEASURED = 1_000
#: Characters for a column, below which each row of a wide result stands alone.
_NARROWEST = 12
#: Characters for a long text in a table, below which its rows stand alone.
_NARROWEST_FOLDED = 16
#: Characters between two columns of a table on a terminal.
_BETWEEN = 3
#: Seconds that were left when a source was last waited for.
_left = [0]
#: When a line last told that a source is waited for (monotonic), and seconds until the next.
_told_at = [0.0]
_LINE_EVERY: Final = 60.0
_SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}


class _EscapingConsole(Console):
    """A console that shows control characters as escapes, on standard error always and on a terminal. Rich's own
    colours stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or not (self.stderr or self.is_terminal):
                yield segment
            else:
                yield Segment(escape_controls(segment.text), segment.style)


def _console(*, stderr: bool = False) -> Console:
    """A console as wide as its terminal, or as ``COLUMNS`` says; one that breaks no line where it is neither.

    What it prints comes out as it is: addresses, names of files and words of servers hold ``[…]`` and ``:x:`` that are
    no markup of ours. What we print in a colour is said by :func:`coloured`.
    """
    made = _EscapingConsole(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = _UNBROKEN
    return made


console = _console()
console_err = _console(stderr=True)


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table that fits its screen, with right-aligned numbers and long texts in several lines; or one value a line
    where the columns are too many for that."""
    values = [list(row) for row in rows]
    said = [place for place in range(len(columns)) if not values or any(row[place] is not None for row in values)]
    columns, values = [columns[place] for place in said], [[row[place] for place in said] for row in values]
    # what pages say is no markup
    texts = [[escape_controls(_shown_cell(value), one_line=True) for value in row] for row in values]
    # names of columns have no blanks, so that they can be asked for; in a narrow table they take several lines
    for names, breaks in ((columns, "\n"), (columns, " "), ([name.replace("_", " ") for name in columns], " ")):
        widths, is_squeezed = _fitting([name.split(breaks) for name in names], texts)
        if not is_squeezed:
            break
    if is_squeezed and max(widths) < _NARROWEST_FOLDED:
        console.print(Text(title, style="italic"))
        _show_singly(columns, texts)
        return
    table = Table(title=title, title_justify="left", header_style="bold", show_edge=False, pad_edge=False)
    for place, name in enumerate(names):
        numeric = bool(values) and all(isinstance(row[place], int | float) for row in values)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold", width=widths[place])
    for row in texts:
        table.add_row(*map(Text, row))
    console.print(table)


def _fitting(names: Sequence[Sequence[str]], texts: Sequence[Sequence[str]]) -> tuple[list[int], bool]:
    """Widths of the columns of a table that fits the screen: short ones as wide as they are, long ones as wide as is
    left for each of them; and whether there are such long ones. Of names there are the parts that stay together."""
    room = console.width - _BETWEEN * (len(names) - 1)
    widths = [
        max([*map(len, name), *(cell_len(row[place]) for row in texts)], default=0) for place, name in enumerate(names)
    ]
    widest = next((cap for cap in range(room, 0, -1) if sum(min(width, cap) for width in widths) <= room), 0)
    return [min(width, widest) for width in widths], max(widths, default=0) > widest


def _show_singly(columns: Sequence[str], texts: Iterable[Sequence[str]]) -> None:
    """One value a line, each row by itself; values that are empty are left out."""
    width = max(map(len, columns))
    for number, row in enumerate(texts, start=1):
        console.print(Text(f"row {number:,}", style="bold"))
        for name, text in zip(columns, row, strict=True):
            if text:
                console.print(Text(f"{name:<{width}}  {text}"), overflow="fold")


def show_cut(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Rows on a terminal, each cell cut to what fits: as a table, or one value a line where there are many columns."""
    texts = [[escape_controls(_cell(value), one_line=True) for value in row] for row in rows]
    if len(columns) * (_NARROWEST + _BETWEEN) <= console.width:
        table = Table(header_style="bold", show_edge=False, pad_edge=False)
        widths = [max(cell_len(row[place]) for row in [columns, *texts]) for place in range(len(columns))]
        room = console.width - _BETWEEN * (len(columns) - 1)
        widest = next(cap for cap in range(room, 0, -1) if sum(min(width, cap) for width in widths) <= room)
        for place, name in enumerate(columns):
            numeric = bool(rows) and all(isinstance(row[place], int | float | None) for row in rows)
            table.add_column(
                Text(name),
                justify="right" if numeric else "left",
                no_wrap=True,
                overflow="ellipsis",
                width=min(widths[place], widest),
            )
        for row in texts:
            table.add_row(*map(Text, row))
        console.print(table)
        return
    width = max(map(len, columns))
    for number, row in enumerate(texts, start=1):
        console.print(Text(f"row {number:,}", style="bold"))
        for name, text in zip(columns, row, strict=True):
            console.print(Text(f"{name:<{width}}  {text}"), no_wrap=True, overflow="ellipsis")


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
            tell_of_waiting(stage, done, total, detail)
            return
        if stage not in tasks:
            tasks[stage] = bars.add_task(stage, total=total, detail="")
        over = stage == progress.WAITING and not detail
        bars.update(tasks[stage], completed=done, total=total, detail=detail, visible=not over)

    with bars, progress.progress_to(sink):
        yield


def tell_of_waiting(stage: str, done: int, total: int | None, detail: str) -> None:
    """Writes a line to standard error where no bar shows that a source is waited for: when that begins, at each probe,
    and once a minute."""
    del total
    if stage == progress.WAITING:
        now = time.monotonic()
        if done > _left[0] or (detail and now - _told_at[0] >= _LINE_EVERY):
            warn(detail)
            _told_at[0] = now
        _left[0] = done


def usable_streams() -> None:
    """Makes what a command writes writable: nowhere for closed streams, in UTF-8 whatever the locale says.

    Pages have every script, and files and pipes are UTF-8 in all formats. A terminal keeps its encoding; what that
    lacks is shown as escapes.
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
    """Throws away what standard output still holds: it cannot be written, and the end of the process would try."""
    with suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def format_by_name(out: Path | None) -> str:
    """The format of rows that the name of a file says; a table for none, on the screen.

    Raises ``UserInputError`` for a name that says none, such as ``pages.csv.gz`` or ``pages.xlsx``.
    """
    if out is None:
        return "table"
    if (found := _SUFFIXES.get(out.suffix.lower())) is None:
        raise UserInputError(f"the name {out.name!r} does not say a format; add --format csv, jsonl or parquet")
    return found


def write_rows(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], output: str = "table") -> None:
    """Writes ``rows`` to standard output as a table, csv or jsonl. A title is for terminals only."""
    if output == "csv":
        write_csv(sys.stdout, [columns])
        write_csv(sys.stdout, rows)
    elif output == "jsonl":
        for row in rows:
            sys.stdout.write(json_line(dict(zip(columns, row, strict=True))))
    elif console.is_terminal:
        show_table(title, columns, rows)
    else:
        write_aligned(columns, rows)


def show_export(title: str, done: Export) -> None:
    """What was handed on: the rows that say so on standard output, what else there is to say on standard error."""
    write_rows(title, done.rows.columns, [tuple(row.values()) for row in done.rows])
    for note in done.notes:
        notice(note)


def json_line(row: Mapping[str, object]) -> str:
    """One row as a line of JSON: times in ISO 8601, bytes in hexadecimal digits."""
    return json.dumps(row, default=_jsonable, ensure_ascii=False) + "\n"


def write_csv(stream: IO[str], rows: Iterable[Sequence[object]]) -> None:
    """Writes rows as CSV; texts without formulas where ``--guard-formulas`` was given."""
    # a carriage return is quoted by all versions of Python where it is part of what ends a line
    csv.writer(_Lines(stream), lineterminator="\r\n").writerows([_in_csv(value) for value in row] for row in rows)


class _Lines:
    """Ends each line of CSV as the rest of the output does."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, line: str) -> int:
        return self._stream.write(f"{line[:-2]}\n")


def as_text(value: object) -> str:
    """A value as it stands in CSV: times in ISO 8601, bytes in hexadecimal digits, lists and mappings as JSON."""
    return _cell(value)


def notice(text: str) -> None:
    """Writes a line to standard error, for the person at the screen."""
    console_err.print(text, soft_wrap=True)


def warn(text: str) -> None:
    """Writes a line to standard error that a person should not overlook."""
    console_err.print(f"note: {text}", soft_wrap=True, style="yellow")


class Spoken:
    """What the work tells a person at the command line (``python/voice.py``): notes and costs on standard error, what
    belongs to the answer on standard output."""

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
    """Writes rows as plain text in columns: as wide as the first thousand rows need, so that memory stays flat."""
    texts = ([escape_controls(_cell(value), one_line=True) for value in row] for row in rows)
    first = [list(columns), *islice(texts, _MEASURED)]
    widths = [max(len(row[place]) for row in first) for place in range(len(columns))]
    for row in chain(first, texts):
        line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Another name beside ``path`` to write to, renamed to it when the block ends well, and deleted when not.

    Raises ``EnvironmentFault`` where the disk refuses.
    """
    with disk_trouble(path), written_whole(path, make_folder=False) as beside:
        beside.touch()
        yield beside


def _in_csv(value: object) -> str:
    return harmless(value) if isinstance(value, str) and guarding() else _cell(value)


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


_HELP: Final = (
    "In CSV, put ' before text that begins with =, +, -, @, a tab or the end of a line, so that no spreadsheet "
    "runs it. Without it the text is exact."
)
_given = [False]


def guarding() -> bool:
    """Whether the command that runs is to make formulas in CSV harmless."""
    return _given[0]


def say_source(*, home: str | None, source: str | None, asks: bool) -> None:
    """Writes a line to standard error where the source is not Common Crawl's own bucket, a loud one for a mini crawl.

    With ``asks`` the command sends requests: then a line says how to set a contact, where Common Crawl gets none.
    """
    from cc_pipeline.settings import load_settings

    try:
        settings = load_settings(home=home, source=source)
    except CcPipelineError:
        return  # the command says it
    if settings.is_mini_crawl:
        text = f"INVENTED WEB: {settings.source} is a mini crawl, generated here; no page in it is real."
        console_err.print(f"{text} Another home has another source: --home", soft_wrap=True, style="bold reverse")
    elif not settings.is_public:
        notice(f"source: {settings.source}, which is not Common Crawl's own")
    elif asks and not settings.contact:
        notice(f"no contact is set, so {settings.source} cannot reach you: {_CONTACT}")


_CONTACT: Final = "export CC_PIPELINE_CONTACT=mailto:you@example.org"


class GuardedCommand(TyperCommand):
    """A command that says first which source answers, with the flag where it has a choice of formats and CSV is one."""

    def invoke(self, ctx: Context) -> Any:
        """Says which source answers, then does what the command does."""
        if "home" in ctx.params:
            asks = "source" in ctx.params
            say_source(home=ctx.params["home"], source=ctx.params.get("source"), asks=asks)
        return super().invoke(ctx)

    def __init__(self, name: str | None, *, params: Sequence[Parameter] = (), **others: Any) -> None:
        own = list(params)
        if any("--format" in one.opts and "csv" in (getattr(one, "help", None) or "") for one in own):
            option = TyperOption(
                param_decls=["--guard-formulas"],
                is_flag=True,
                default=False,
                expose_value=False,
                callback=lambda _context, _option, value: _given.__setitem__(0, bool(value)),
                help=_HELP,
            )
            own.append(option)
        super().__init__(name, params=own, **others)
