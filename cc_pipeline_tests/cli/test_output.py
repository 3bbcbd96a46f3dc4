"""What is not ours comes out as it is: brackets and colons of addresses and advice are no markup, and no pictures."""

from __future__ import annotations

import csv
import json
import shutil
import time
from pathlib import Path

import pytest

from cc_pipeline import progress
from cc_pipeline.checks import doctor
from cc_pipeline.checks.finding import Finding
from cc_pipeline.cli import app, output
from cc_pipeline.defs.home_namespace import OWN_HOME
from cc_pipeline.defs.instance import open_instance
from cc_pipeline.errors import EnvironmentFault, UserInputError
from cc_pipeline.settings import load_settings
from cc_pipeline_tests.cli.conftest import Cli, World
from cc_pipeline_tests.defs.graph import cc_pipeline

#: Each vanished or became something else where it was taken for markup; ``[/]`` ended the command with a traceback.
THEIRS = "s3://lake/[spark]/:x:/[/] pip install 'cc-pipeline[spark]' [bold]no[/bold] \\[escaped]"


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """As wide as where nobody sets ``COLUMNS``, which other tests do before the consoles are made."""
    for screen in (output.console, output.console_err):
        monkeypatch.setattr(screen, "_width", 10_000)


def test_findings_of_the_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda settings: [Finding("bad", "engine", THEIRS, f"do: {THEIRS}")])
    status, out, _ = cc_pipeline(
        monkeypatch, capsys, "doctor", "--home", str(tmp_path), "--source", str(tmp_path / "source")
    )
    assert status == 1
    assert f"bad engine {THEIRS} what to do: do: {THEIRS}" in out


def test_findings_in_a_pipe_keep_their_columns(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = [
        Finding("ok", "size", "one line\tand no more " + "x" * 300),
        Finding("bad", "engine", "a line\nanother line", "Mend it."),
        Finding("note", "a long topic", "moves its text"),
    ]
    monkeypatch.setattr(doctor, "examine", lambda settings: findings)
    words = ("doctor", "--home", tmp_path, "--source", tmp_path / "source")
    said = cli(*words, "--details")
    assert said.status == 1
    assert said.out.expandtabs().splitlines()[1:6] == [
        "ok   size       one line        and no more " + "x" * 300,
        "bad  engine     a line",
        "another line",
        "                what to do: Mend it.",
        "note a long topic moves its text",
    ]
    assert cli(*words).out.startswith("1 problem, 1 note: 2 of 4 findings are ok; --details shows them\nbad  engine  ")
    rows = [json.loads(line) for line in cli(*words, "--format", "json").out.splitlines()]
    assert [(row["level"], row["topic"]) for row in rows][:3] == [(one.level, one.topic) for one in findings]


@pytest.mark.parametrize("error", [UserInputError(THEIRS), EnvironmentFault(THEIRS, f"do: {THEIRS}")])
def test_errors_and_their_advice(error: UserInputError | EnvironmentFault, capsys: pytest.CaptureFixture[str]) -> None:
    app._print_error(error)
    said = capsys.readouterr().err
    assert said.startswith(f"error: {THEIRS}\n")
    assert (f"what to do: do: {THEIRS}\n" in said) == isinstance(error, EnvironmentFault)


def test_lines_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    output.notice(THEIRS)
    output.warn(THEIRS)
    output.console.print(THEIRS)
    output.show_table(THEIRS, [THEIRS], [[THEIRS]])
    said = capsys.readouterr()
    assert said.err == f"{THEIRS}\nnote: {THEIRS}\n"
    assert [line.rstrip() for line in said.out.splitlines() if THEIRS in line] == [THEIRS] * 4


def test_a_table_in_a_pipe_is_plain_text_with_all_columns(capsys: pytest.CaptureFixture[str]) -> None:
    output.write_rows("title", ["name", "last", "next"], [("history", "", "12:00")])
    assert capsys.readouterr().out == "name     last  next\nhistory        12:00\n"


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
