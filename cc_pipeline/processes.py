"""Marks of processes: which process left a file, and whether it has certainly ended. Also counts usable cores.

A process id alone is not enough: ids are reused, and containers and machines that share a home have their own. So a
mark also has the start time of the process, its namespace of ids, and the boot id of the machine.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

_MARK = re.compile(r"(\d+)-(\d+)-(\d+)-([0-9a-f]{8})\Z")
#: States of a process that has ended, and whose parent has not waited for it.
_ENDED = ("Z", "X")
_UNKNOWN_MACHINE = ("0", "0" * 8)


def this_process() -> str:
    """Returns the mark of this process: letters, digits and hyphens, fit for a file name."""
    return "-".join((str(os.getpid()), start_ticks(os.getpid()) or "0", *_machine()))


def has_ended(mark: str) -> bool | None:
    """Whether the process of a mark has certainly ended; ``None`` if that cannot be known from here.

    It cannot be known for processes of other machines, other containers and earlier boots of this machine, for invalid
    marks, and if the system does not identify this machine. Then callers wait for a while.
    """
    match = _MARK.match(mark)
    if match is None or match[2] == "0" or match.group(3, 4) != _machine() or _machine() == _UNKNOWN_MACHINE:
        return None
    return start_ticks(int(match[1])) != match[2]


def start_ticks(number: int) -> str:
    """Returns the start time of a process of this machine (clock ticks after boot); empty if it does not run."""
    try:
        # the name in parentheses may hold spaces; the start time is the 20th field behind it
        fields = Path(f"/proc/{number}/stat").read_text("utf-8").rpartition(")")[2].split()
        return "" if fields[0] in _ENDED else fields[19]
    except (OSError, IndexError):
        return ""


def usable_cores() -> int:
    """Returns the number of cores that this process may use; all of the machine if the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _machine() -> tuple[str, str]:
    """Returns the namespace of process ids and the boot id; zeros if the system does not tell."""
    try:
        space = re.sub(r"\D", "", str(Path("/proc/self/ns/pid").readlink()))
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")[:8]
    except OSError:
        return _UNKNOWN_MACHINE
    return space or "0", boot
