"""What a person sees: consoles, tables, progress bars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from cc_pipeline.extraction import progress

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
        table.add_row(*(_cell(value) for value in row))
    console.print(table)


def _cell(value: object) -> str:
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
