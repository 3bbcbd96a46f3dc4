"""How much memory a process has needed at most."""

from __future__ import annotations

from pathlib import Path


def own_peak() -> int:
    """KiB at the peak since this program was started.

    Not from ``getrusage``: what that gives includes the process before it became this program, and so the size of
    whatever started it.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
