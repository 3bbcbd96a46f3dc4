"""Marks of processes: what is surely gone, what lives, and what nobody here can know."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cc_pipeline import processes
from cc_pipeline.processes import has_ended, start_ticks, this_process


def test_this_process_lives() -> None:
    assert has_ended(this_process()) is False


def test_a_process_that_ended_is_gone_even_before_anybody_asks_how() -> None:
    code = "from cc_pipeline.processes import this_process; print(this_process(), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        mark = process.stdout.readline().decode().strip()
        assert has_ended(mark) is False
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(mark) is True
    assert has_ended(mark) is True


def test_an_id_that_came_round_again_is_another_process() -> None:
    number, _, space, boot = this_process().split("-")
    assert has_ended(f"{number}-1-{space}-{boot}") is True


@pytest.mark.parametrize("mark", ["", "4711", "4711-1", "x-1-1-00000000", "4711-1-1-00000000", "4711-0-0-00000000"])
def test_of_other_machines_and_versions_nothing_is_known(mark: str) -> None:
    assert has_ended(mark) is None


def test_nothing_is_known_where_the_system_does_not_say_which_machine_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_machine", lambda: ("0", "00000000"))
    assert has_ended("4711-1-0-00000000") is None


def test_a_process_that_never_was_did_not_start() -> None:
    assert start_ticks(2**22 + 1) == ""
