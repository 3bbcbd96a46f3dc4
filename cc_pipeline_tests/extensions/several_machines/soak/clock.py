"""A clock that a benchmark moves: processes started with its environment see another day than it is.

A library of ours moves the time of day and the times of files (``clock.c``). What is written on a day is of that
day and stays so, since ``forward`` makes the files that are there older by as much.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_DAY = 86_400


@dataclass(slots=True)
class Clock:
    """``days`` ahead of now; files below ``aged`` grow old with it. Its own files are in ``folder``."""

    folder: Path
    aged: tuple[Path, ...]
    days: int = 0

    @property
    def now(self) -> float:
        """Seconds since the epoch, as its processes see them."""
        return time.time() + self.days * _DAY

    def environment(self) -> dict[str, str]:
        """Variables of a process that lives by this clock."""
        return {"LD_PRELOAD": str(self.folder / "clock.so"), "MOVED_CLOCK": str(self.folder / "ahead")}

    def forward(self, days: int) -> None:
        """Moves it. Nothing may be writing files."""
        for path in _files(self.aged):
            # what went meanwhile needs no age
            with suppress(FileNotFoundError):
                was = path.stat(follow_symlinks=False)
                moved = (was.st_atime - days * _DAY, was.st_mtime - days * _DAY)
                os.utime(path, moved, follow_symlinks=False)
        self.days += days
        self._say()

    def _say(self) -> None:
        # in place: the processes have the file in their memory
        with (self.folder / "ahead").open("r+b") as file:
            file.write(struct.pack("=q", self.days * _DAY))


def missing() -> str:
    """What this machine lacks for such a clock; empty where it lacks nothing."""
    if not Path("/proc/self/maps").exists() or os.uname().machine != "x86_64":
        return "the clock is moved on Linux on x86_64 alone"
    return "" if shutil.which("gcc") else "there is no gcc"


def new_clock(folder: Path, aged: Iterable[Path]) -> Clock:
    """A clock that shows the real time; its library lies in ``folder``, which everybody may read."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    source = Path(__file__).with_suffix(".c")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-o", folder / "clock.so", source, "-ldl", "-pthread"], check=True
    )
    (folder / "ahead").write_bytes(bytes(8))
    (folder / "ahead").chmod(0o644)
    return Clock(folder, tuple(aged))


def _files(folders: Iterable[Path]) -> Iterable[Path]:
    for folder in folders:
        for at, _, names in os.walk(folder):
            yield from (Path(at) / name for name in names)
