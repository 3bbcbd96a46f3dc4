"""Tables fit the terminal, 80 columns wide or 120: no line is longer, and no cell is squeezed to nothing."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from cc_pipeline.cli import output
from cc_pipeline_tests.cli.conftest import ARC, NEW, OLD, Cli

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("cli published")]

_PROGRAM = Path(sys.executable).with_name("cc-pipeline")
COMMANDS = {
    "lookup": ("lookup", "example.com", "-c", NEW, "-c", ARC, "--limit", "20"),
    "plan": ("plan", "example.com", "nothing-here.org", "prefix:https://www.example.org/blog/", "-c", NEW, "-c", OLD),
    "count": ("lookup", "example.com", "example.org", "-c", NEW, "-c", ARC, "--count"),
    "crawls": ("crawls",),
    "settings": ("settings",),
    "sql": ("sql", "SELECT crawl, url, fetch_time, title FROM page_text ORDER BY url LIMIT 20"),
    "wide sql": ("sql", "FROM records LIMIT 2"),
    "run": ("run", "example.com", "-c", "2018..2024", "--details"),
}


def seen_on_a_terminal(width: int, *words: object) -> list[str]:
    """The lines that a command writes to a terminal of this width, without colours."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {name: text for name, text in os.environ.items() if not name.startswith("CC_PIPELINE_")}
    environment |= {"COLUMNS": str(width), "TERM": "xterm"}
    with subprocess.Popen(
        [_PROGRAM, *map(str, words)], stdin=subprocess.DEVNULL, stdout=slave, stderr=subprocess.PIPE, env=environment
    ) as process:
        os.close(slave)
        found = b""
        while part := _read(master):
            found += part
        assert process.stderr is not None
        said = process.stderr.read().decode()
        assert process.wait() == 0, said
    os.close(master)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", found.decode()).replace("\r", "").splitlines()


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65_536)
    except OSError:  # what Linux says at the end
        return b""


@pytest.mark.parametrize(
    ("words", "width"),
    # a table goes by the width of its screen, whatever command shows it
    [*((words, 80) for words in COMMANDS.values()), (COMMANDS["lookup"], 120), (COMMANDS["wide sql"], 120)],
    ids=[*COMMANDS, "lookup, wide", "wide sql, wide"],
)
def test_tables_fit(rich: Path, tmp_path: Path, words: tuple[str, ...], width: int) -> None:
    home = shutil.copytree(rich, tmp_path / "home") if words[0] == "run" else rich
    lines = seen_on_a_terminal(width, *words, "--home", home)
    assert lines
    # notes are sentences, which the terminal wraps
    assert [line for line in lines if cell_len(line) > width and not line.startswith("note: ")] == []
    rules = [line for line in lines if set(line) <= {"━", "╇", "─", "┼"} and len(line) > 1]
    assert rules or words[0] not in ("plan", "crawls"), "these are tables at any width"
    narrowest = min((len(column) for rule in rules for column in re.split("[╇┼]", rule)), default=9)
    assert narrowest >= 2, "a column of a table has no room"


def terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> Console:
    """The console of the commands, as on a terminal of this width without colours."""
    monkeypatch.setenv("COLUMNS", str(width))
    console = output._new_console()
    console._force_terminal = True
    monkeypatch.setattr(output, "console", console)
    return console


def test_times_of_crawls_are_days_on_a_terminal_and_full_in_a_pipe(cli: Cli, rich: Path) -> None:
    time_of_day = re.compile(r"\d\d\d\d-\d\d-\d\d \d\d:\d\d:\d\d\+00:00")
    assert not time_of_day.search("\n".join(seen_on_a_terminal(120, "crawls", "--home", rich)))
    assert time_of_day.search(cli("crawls", "--home", rich).out)


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
