"""A server as a child process that is never left behind: whatever it started ends with it, and is reaped."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

#: What its whole group is told, one after the other, and the seconds it has to end: as Ctrl-C in a terminal first.
_ENDINGS: Final = ((signal.SIGINT, 12.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0))
_LOOK_SECONDS: Final = 0.05
_PR_SET_CHILD_SUBREAPER: Final = 36


def serve(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> int:
    """Runs ``command`` in ``folder`` until it ends, and gives its exit status.

    However this function is left (``Interrupted`` as well), all processes of the command have ended then.
    """
    _adopt_orphans()
    process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True)
    try:
        return process.wait()
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number, patience in _ENDINGS:
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):  # the latter for a group of zombies, on some systems
            break
        if _gone(process, patience):
            break
    process.poll()


def _gone(process: subprocess.Popen[bytes], patience: float) -> bool:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if process.poll() is not None:
            _reap(process.pid)
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(_LOOK_SECONDS)
    return False


def _reap(group: int) -> None:
    # those whose parent ended before them are ours now
    with suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass


def _adopt_orphans() -> None:
    """Makes this process the parent of descendants whose own parent ends; elsewhere than on Linux init is that."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
