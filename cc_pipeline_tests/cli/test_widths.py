"""Tables fit the terminal, 80 columns wide or 120: no line is longer, and no cell is squeezed to nothing."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from rich.console import Console

from cc_pipeline.cli import output
from cc_pipeline.cli.commands import lookup


def terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> Console:
    """The console of the commands, as on a terminal of this width without colours."""
    monkeypatch.setenv("COLUMNS", str(width))
    console = output._new_console()
    console._force_terminal = True
    monkeypatch.setattr(output, "console", console)
    return console


@pytest.mark.parametrize("width", [80, 120])
def test_short_cells_stay_whole_and_long_ones_take_lines(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    console = terminal(monkeypatch, width)
    url = "https://www.example.com/" + "x" * 200
    with console.capture() as shown:
        output.show_table(
            "", ["fetch_time", "content_mime_type", "nothing", "url"], [("2024-05-18", "text/html", None, url)]
        )
    text = shown.get()
    assert "2024-05-18" in text and "text/html" in text and "nothing" not in text
    assert "".join(line.rpartition("│")[2].strip() for line in text.splitlines() if "│" in line) == url
    assert max(map(cell_len, text.splitlines())) <= width
    with console.capture() as shown:
        output.show_table("", ["name", "last"], [("history", ""), ("watch_list", "")])
    assert "history" in shown.get() and "last" not in shown.get()
    with console.capture() as shown:
        output.show_table("a title that is longer than its table", ["a"], [(1,)])
    assert shown.get().startswith("a title that is longer than its table\n")
    many = [f"column_{number}" for number in range(12)]
    with console.capture() as shown:
        output.show_table("a title", many, [["a value that is long"] * 12])
    assert shown.get().count("a value that is long") == 12, "a value a line"


@pytest.mark.parametrize("width", [80, 120])
def test_a_finding_goes_on_below_its_first_line(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    console = terminal(monkeypatch, width)
    with console.capture() as shown:
        output.show_indented(output.coloured("ok   size           "), "[b]bytes :x: of the lake, and " * 9)
    first, *more = shown.get().splitlines()
    assert first.startswith("ok   size           [b]bytes :x: of") and more
    assert all(line.startswith(" " * 20) and line[20] != " " for line in more)
    assert max(map(cell_len, [first, *more])) <= width


def test_counts_of_a_hundred_crawls_fit_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    columns = ["crawl", "target", "pages", "captures", "files", "bytes", "requests to fetch", "to read"]
    crawls = [f"CC-MAIN-{year}-{week:02}" for year in range(2024, 2013, -1) for week in range(50, 5, -5)]
    lookup._show_counts(columns, [(crawl, "example.com", 7, 10, 1, 10**9, 3, 10**9) for crawl in crawls])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    assert lines[-1].split() == ["2014", "90", "9", str(9 * 10**9), "27", str(9 * 10**9)]
    lookup._show_counts(columns, [(crawl, "example.com", 7, 10, 1, 2, 3, 4) for crawl in crawls[:9]])
    assert capsys.readouterr().out.splitlines()[1].split() == [crawls[0], *"7 10 1 2 3 4".split()]
