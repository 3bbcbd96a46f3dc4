"""What commands write: text of others is no markup and gives no orders to a terminal, files and pipes get it as it is,
and programs get rows alone."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import pty
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from cc_pipeline import progress
from cc_pipeline.api.reporter import StderrReporter
from cc_pipeline.checks import doctor
from cc_pipeline.checks.finding import Finding
from cc_pipeline.cli import output
from cc_pipeline.cli.capture_output import capture_writer
from cc_pipeline.cli.commands import lookup
from cc_pipeline.commoncrawl.index_schema import NAMED_CAPTURES
from cc_pipeline.defs.home_namespace import OWN_HOME
from cc_pipeline.defs.instance import open_instance
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.export.files import README, document_path
from cc_pipeline.settings import load_settings
from cc_pipeline.terminal import escape_controls
from cc_pipeline_tests.cli.conftest import Cli, World

#: Each vanished or became something else where it was taken for markup; ``[/]`` ended the command with a traceback.
THEIRS = "s3://lake/[spark]/:x:/[/] pip install 'cc-pipeline[spark]' [bold]no[/bold] \\[escaped]"
#: Cells as they are, and as they are made harmless for a spreadsheet; numbers are no text.
CELLS = {
    "=1+1": "'=1+1", "+a": "'+a", "-a": "'-a", "@a": "'@a", "\ta": "'\ta", "\ra": "'\ra", "\na": "'\na", "": "",
    "'=a": "'=a", "a=1": "a=1", " =a": " =a", "é": "é",
}  # fmt: skip


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """As wide as where nobody sets ``COLUMNS``, which other tests do before the consoles are made."""
    for screen in (output.console, output.console_err):
        monkeypatch.setattr(screen, "_width", 10_000)


@pytest.mark.usefixtures("wide")
def test_text_of_others_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    output.notice(THEIRS)
    output.warn(THEIRS)
    output.console.print(THEIRS)
    output.show_table(THEIRS, [THEIRS], [[THEIRS]])
    said = capsys.readouterr()
    assert said.err == f"{THEIRS}\nnote: {THEIRS}\n"
    assert [line.rstrip() for line in said.out.splitlines() if THEIRS in line] == [THEIRS] * 4


@pytest.mark.usefixtures("wide")
def test_findings_in_a_pipe_keep_their_columns(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = [
        Finding("ok", "size", "one line\tand no more " + "x" * 300),
        Finding("bad", "engine", f"{THEIRS}\nanother line", THEIRS),
        Finding("note", "a long topic", "moves its text"),
    ]
    monkeypatch.setattr(doctor, "examine", lambda settings: findings)
    words = ("doctor", "--home", tmp_path, "--source", tmp_path / "source")
    said = cli(*words, "--details")
    assert said.status == 1
    assert said.out.expandtabs().splitlines()[1:6] == [
        "ok   size       one line        and no more " + "x" * 300,
        f"bad  engine     {THEIRS}",
        "another line",
        f"                what to do: {THEIRS}",
        "note a long topic moves its text",
    ]
    assert cli(*words).out.startswith("1 problem, 1 note: 2 of 4 findings are ok; --details shows them\nbad  engine  ")
    rows = [json.loads(line) for line in cli(*words, "--format", "json").out.splitlines()]
    assert [(row["level"], row["topic"]) for row in rows][:3] == [(one.level, one.topic) for one in findings]


def test_a_table_in_a_pipe_is_plain_text_with_all_columns(capsys: pytest.CaptureFixture[str]) -> None:
    output.write_rows("title", ["name", "last", "next"], [("history", "", "12:00")])
    assert capsys.readouterr().out == "name     last  next\nhistory        12:00\n"


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_a_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(output, "console", console := output._new_console())
    monkeypatch.setattr(console, "_force_terminal", True)
    url = "https://www.example.com/" + "x" * 200
    row = ("2024-05-18", "text/html", None, url)
    many = [f"column_{number}" for number in range(12)]
    with console.capture() as shown:
        output.show_table("", ["fetch_time", "content_mime_type", "nothing", "url"], [row])
    text = shown.get()
    assert "2024-05-18" in text and "text/html" in text and "nothing" not in text
    assert "".join(line.rpartition("│")[2].strip() for line in text.splitlines() if "│" in line) == url
    with console.capture() as vertical:
        output.show_table("a title", many, [["a value that is long"] * 12])
    assert vertical.get().count("a value that is long") == 12, "a value a line"
    with console.capture() as indented:
        output.show_indented(output.coloured("ok   size           "), "[b]bytes :x: of the lake, and " * 9)
    first, *more = indented.get().splitlines()
    assert first.startswith("ok   size           [b]bytes :x: of") and more
    assert all(line.startswith(" " * 20) and line[20] != " " for line in more)
    assert max(map(cell_len, [*text.splitlines(), *indented.get().splitlines()])) <= width


def test_counts_of_a_hundred_crawls_fit_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    columns = ["crawl", "target", "pages", "captures", "files", "bytes", "requests to fetch", "to read"]
    crawls = [f"CC-MAIN-{year}-{week:02}" for year in range(2024, 2013, -1) for week in range(50, 5, -5)]
    lookup._show_counts(columns, [(crawl, "example.com", 7, 10, 1, 10**9, 3, 10**9) for crawl in crawls])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    assert lines[-1].split() == ["2014", "90", "9", str(9 * 10**9), "27", str(9 * 10**9)]
    lookup._show_counts(columns, [(crawl, "example.com", 7, 10, 1, 2, 3, 4) for crawl in crawls[:9]])
    assert capsys.readouterr().out.splitlines()[1].split() == [crawls[0], *"7 10 1 2 3 4".split()]


@pytest.mark.xdist_group("cli")
@pytest.mark.parametrize("command", ["crawls", "settings", "targets list", "automation status"])
def test_commands_write_nothing_but_rows_for_programs(cli: Cli, world: World, tmp_path: Path, command: str) -> None:
    home = shutil.copytree(world.untouched, tmp_path / "home")
    assert cli("targets", "add", "host:www.example.net", "--home", home).status == 0
    with open_instance(load_settings({}, home=str(home))) as instance:
        assert "host_www.example.net" in OWN_HOME.target_keys(instance), "the UI has the key, whatever sensors are on"
    said = cli(*command.split(), "--format", "json", "--home", home)
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert (said.status, rows != []) == (0, True), said.err
    lines = list(csv.reader(cli(*command.split(), "--format", "csv", "--home", home).out.splitlines()))
    assert lines[0] == [*rows[0]] and len(lines) == len(rows) + 1


@pytest.mark.xdist_group("cli")
@pytest.mark.parametrize("flags", [(), ("--guard-formulas",)])
def test_csv_is_exact_and_on_request_nothing_that_a_spreadsheet_would_run(
    cli: Cli, world: World, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    wanted = [[CELLS[cell] if flags else cell, "-1"] for cell in CELLS]
    texts = ", ".join("'{}'".format(cell.replace("'", "''")) for cell in CELLS)
    query = f"SELECT unnest([{texts}]) AS text, -1 AS number"
    out, place = tmp_path / "out.csv", ("--home", world.home)
    assert cli("export", "--query", query, "--out", out, *flags, *place).status == 0
    with out.open(newline="") as stream:
        assert sorted([*csv.reader(stream)][1:]) == sorted(wanted)
    assert ("--guard-formulas" in document_path(out, README).read_text("utf-8")) == bool(flags)


def test_a_file_that_fails_leaves_nothing_and_a_full_disk_is_named_as_one(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault) as full, capture_writer("csv", ["url"], tmp_path / "found.csv") as write:
        write(NAMED_CAPTURES.empty_table())
        raise OSError(errno.ENOSPC, "No space left on device")
    assert "Free some space" in full.value.advice
    assert list(tmp_path.iterdir()) == []


def test_who_waits_unattended_is_told_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    now = 1_000.0
    monkeypatch.setattr(output, "warn", told.append)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for left in range(300, 0, -1):
        output.report_waiting(progress.WAITING, left, None, f"{left} s left")
        now += 1
    output.report_waiting(progress.WAITING, 0, None, "")
    assert told == [f"{left} s left" for left in (300, 240, 180, 120, 60)]


#: Orders of a page: ESC and C1 sequences, a bell, DEL, a return to the begin of the line, text from right to left.
HOSTILE = "a\x1b]0;title\x07b\x9b2Jc\x7fd\re\u202ef\u2066g"
ORDERS = ("\x1b]", "\x07", "\x9b", "\x7f", "\u202e", "\u2066")


_END = "the end of what was written"


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, write: Callable[[], object]) -> str:
    """What a terminal gets of what is written to both streams."""
    master, slave = pty.openpty()
    with open(slave, "w", encoding="utf-8") as screen:
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, io.TextIOWrapper(os.fdopen(os.dup(slave), "wb"), encoding="utf-8"))
        monkeypatch.setenv("TERM", "xterm-256color")
        output.prepare_streams()
        for name in ("console", "console_err"):
            monkeypatch.setattr(output, name, output._new_console(stderr=name == "console_err"))
        write()
        sys.stdout.flush()
        sys.stderr.flush()
        screen.write(_END)
        screen.flush()
        # a terminal gives in parts what was written in parts
        found = b""
        while not found.endswith(_END.encode()):
            found += os.read(master, 100_000)
        monkeypatch.undo()
    os.close(master)
    return found.decode("utf-8").removesuffix(_END)


@pytest.mark.parametrize(
    "write",
    [
        lambda: sys.stdout.write(HOSTILE),
        lambda: sys.stdout.buffer.write(HOSTILE.encode()),
        lambda: output.console.print(HOSTILE, soft_wrap=True),
        lambda: output.console.print(output.coloured(("x", "red"), HOSTILE)),
        lambda: output.warn(HOSTILE),
        lambda: output.ConsoleReporter().answer(HOSTILE),
        lambda: StderrReporter().note(HOSTILE),
        lambda: output.write_rows("title", ["a", "b"], [(HOSTILE, HOSTILE)]),
        lambda: output.write_rows("title", ["a"], [(HOSTILE,)], "csv"),
        lambda: output.write_rows("title", ["a"], [(HOSTILE,)], "json"),
        lambda: output.show_truncated([f"c{number}" for number in range(40)], [(HOSTILE,) * 40]),
    ],
)
def test_nothing_on_a_terminal_gives_orders(monkeypatch: pytest.MonkeyPatch, write: Callable[[], object]) -> None:
    seen = on_a_terminal(monkeypatch, write)
    assert not [order for order in ORDERS if order in seen], repr(seen)
    assert "title" in seen
    assert "\\x9b" in seen or "\\u009b" in seen or "…" in seen


def test_colours_of_ours_stay_and_bytes_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def write() -> None:
        output.console.print(output.coloured(("red", "red")))
        for byte in "é\x1b".encode() + b"\xff":
            sys.stdout.buffer.write(bytes((byte,)))

    seen = on_a_terminal(monkeypatch, write)
    assert "\x1b[31mred\x1b[0m" in seen
    assert "é\\x1b\\xff" in seen


def test_bars_end_with_their_block_and_that_of_a_wait_with_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def write() -> None:
        with output.progress_bars():
            progress.report("fetch", 1, 2)
            progress.report(progress.WAITING, 5, None, "5 s left")
            progress.end_wait()

    last = on_a_terminal(monkeypatch, write).rpartition("fetch")[2]
    assert progress.WAITING not in last and "\x1b[2K" in last


def test_a_pipe_gets_what_a_page_holds_and_messages_are_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with (tmp_path / "page").open("w", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdout", file)
        output.prepare_streams()
        sys.stdout.write(HOSTILE)
        sys.stdout.buffer.write(b"")
        monkeypatch.undo()
    assert (tmp_path / "page").read_bytes().decode() == HOSTILE
    output.warn(HOSTILE)
    StderrReporter().notice(HOSTILE)
    seen = capsys.readouterr().err
    assert not [order for order in ORDERS if order in seen], repr(seen)


@given(st.text())
def test_escaped_text_has_no_orders_and_is_escaped_once(text: str) -> None:
    escaped = escape_controls(text)
    assert all(character.isprintable() or character in "\t\n" or ord(character) > 159 for character in escaped)
    assert escape_controls(escaped) == escaped
    assert "\n" not in escape_controls(text, one_line=True)
