"""Marks of processes: who left a file behind, and whether that process is surely gone. What a process may use.

A process id alone says little: ids come round again, and a home may be shared by containers and machines that count
their own. So a mark also has when the process started, its namespace of ids, and this start of the machine.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

_MARK = re.compile(r"(\d+)-(\d+)-(\d+)-([0-9a-f]{8})\Z")
#: States of a process that has ended, and whose parent has not asked how.
_ENDED = ("Z", "X")
_UNKNOWN = ("0", "0" * 8)
#: The system tells when it started in whole seconds.
_CLOCK_SECONDS = 1.5


def this_process() -> str:
    """The mark of this process: letters, digits and hyphens, fit for a file's name."""
    return "-".join((str(os.getpid()), started(os.getpid()) or "0", *_machine()))


def is_gone(mark: str) -> bool | None:
    """Whether the process of a mark has surely ended; ``None`` where that cannot be known from here.

    That is so for processes of other machines, other containers and earlier starts of this machine, for what is no
    mark, and where the system does not say which machine this is: whoever asks waits for a while then.
    """
    match = _MARK.match(mark)
    if match is None or match[2] == "0" or match.group(3, 4) != _machine() or _machine() == _UNKNOWN:
        return None
    return started(int(match[1])) != match[2]


def this_machine() -> str:
    """What marks of processes of this start of this machine, or of this container, have in common."""
    return "-".join(_machine())


def started(number: int) -> str:
    """When a process of this machine started (clock ticks after boot), empty when there is none, or none any more."""
    try:
        # the name in parentheses may hold spaces; the start time is the 20th field behind it
        fields = Path(f"/proc/{number}/stat").read_text("utf-8").rpartition(")")[2].split()
        return "" if fields[0] in _ENDED else fields[19]
    except (OSError, IndexError):
        return ""


def lived_at(number: int, when: float) -> bool:
    """Whether the process of this machine that had a number at ``when`` (seconds since the epoch) lives: ids come round
    again, and one that got it later began later."""
    ticks = started(number)
    try:
        boot = next(line for line in Path("/proc/stat").read_text("ascii").splitlines() if line.startswith("btime "))
    except (OSError, StopIteration):
        return bool(ticks)
    return bool(ticks) and int(boot.split()[1]) + int(ticks) / os.sysconf("SC_CLK_TCK") <= when + _CLOCK_SECONDS


def usable_cores() -> int:
    """Cores that this process may run on; all of the machine where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _machine() -> tuple[str, str]:
    """The namespace of process ids and the start of the machine; zeros where the system does not say."""
    try:
        space = re.sub(r"\D", "", str(Path("/proc/self/ns/pid").readlink()))
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")[:8]
    except OSError:
        return _UNKNOWN
    return space or "0", boot
