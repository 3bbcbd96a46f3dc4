"""This build beside an earlier one in another folder (a checkout whose modules were compiled there): speed in turns on
the same pages, and the memory of a process that parses them. Each build has a process of its own, which runs this file.
"""

from __future__ import annotations

import gc
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.report import Report

_HERE = Path(__file__).resolve()
#: What is asked of both, and the options of each.
_ASKED: dict[str, dict[str, Any]] = {
    "whole_row": {},
    "metadata_links_text": {"main_content": "none", "language": False, "text_simhash": False},
}
#: Beside the build that was there before there was one compiled pass, d10844eb.
_GOALS = {"whole_row": 1.4, "metadata_links_text": 1.45}
#: No more than it took; one process takes a little more or less than the next.
_MEMORY = 0.98


class Build:
    """A process that parses pages with the build in a folder."""

    def __init__(self, folder: Path, pages: Path) -> None:
        command = [sys.executable, "-I", str(_HERE), str(folder), str(pages)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, name: str) -> tuple[float, float]:
        """Seconds of processor time that all pages take once, and the most MB that the process has held."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        seconds, held = self._process.stdout.readline().split()
        return float(seconds), float(held)

    def end(self) -> None:
        self._process.communicate()


def bench_builds(report: Report, before: Path | None, pages: Sequence[Any], repeats: int) -> None:
    """What is asked of both builds; without an earlier one of this alone."""
    with NamedTemporaryFile(suffix=".pickle") as file:
        pickle.dump([(page.url, page.payload) for page in pages], file)
        file.flush()
        folders = [_HERE.parents[1], *([before.resolve()] if before else [])]
        builds = [Build(folder, Path(file.name)) for folder in folders]
        held: list[float] = []
        for name in _ASKED:
            # what is made once is not on anyone's time
            held += [build.ask(name)[1] for build in builds]
            taken = [[build.ask(name)[0] for build in builds] for _ in range(repeats)]
            ours, *theirs = (len(pages) / median(each) for each in zip(*taken, strict=True))
            note = f"{repeats} turns; the median of their ratios {median(each[-1] / each[0] for each in taken):.2f}"
            rival, goal = (theirs[0], _GOALS[name]) if before else (None, None)
            report.figure(f"{name}_build", ours, rival, goal, unit="pages/s", note=note)
        rival, goal = (held[1], _MEMORY) if before else (None, None)
        report.figure("memory_build", held[0], rival, goal, higher_is_better=False, unit="MB", note="for whole rows")
        for build in builds:
            build.end()


def serve(folder: str, file: str) -> None:
    """Answers until its input ends."""
    sys.path.insert(0, folder)
    from cc_pipeline.documents.page import PageInput, ParseOptions
    from cc_pipeline.documents.parse import parse_page

    headers = (("Content-Type", "text/html; charset=utf-8"),)
    with Path(file).open("rb") as pickled:
        pages = [
            PageInput("CC-MAIN-2024-22", "warc", url, payload=payload, http_status=200, http_headers=headers)
            for url, payload in pickle.load(pickled)
        ]
    for line in sys.stdin:
        options = ParseOptions(**_ASKED[line.strip()])
        gc.collect()
        started = time.process_time()
        for page in pages:
            parse_page(page, options)
        spent = time.process_time() - started
        # not ru_maxrss: that begins with what the process held that started this one
        held = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text("utf-8"))
        print(spent, int(held[1]) / 1024 if held else 0.0, flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
