"""What strangers write gives no orders to a terminal; files and pipes get it as it is."""

from __future__ import annotations

import io
import os
import pty
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.api.reporter import StderrReporter
from cc_pipeline.cli import output
from cc_pipeline.terminal import escape_controls

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
