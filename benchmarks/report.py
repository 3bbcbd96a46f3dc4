"""One way to report a measurement: a line on the screen and a JSON file beside the others.

    report = Report("index")
    report.figure("harvest_30ms", ours=1350.0, rival=210.0, goal=5.0, unit="files/s")
    report.write()

prints ``harvest_30ms ours=1350 files/s rival=210 files/s ratio=6.43 goal=5x met`` and writes
``benchmarks/results/index.json``.

``SHORT=1`` asks for the short form of a benchmark: every path on tiny input, in seconds. Its figures say nothing, so
they have no goals, and its JSON is ``index-short.json``. ``FULL=1`` asks for the long form, where there is one.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Literal, TypeVar

RESULTS = Path(os.environ.get("BENCH_RESULTS") or Path(__file__).parent / "results")
SHORT, FULL = (os.environ.get(form) == "1" for form in ("SHORT", "FULL"))
Size = TypeVar("Size")
LIBRARIES = ("pyarrow", "duckdb", "datafusion", "deltalake", "aiohttp", "fastwarc", "warcio", "selectolax", "dagster")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. ``ratio`` is how many times better than the rival, whichever direction is better."""

    name: str
    ours: float
    rival: float | None
    ratio: float | None
    goal: float | None
    goal_on: Literal["ratio", "value"]
    met: bool | None
    unit: str
    higher_is_better: bool
    note: str

    def line(self) -> str:
        """The printed form: ``NAME ours rival ratio goal met|short``, ``-`` where there is none."""
        unit = f" {self.unit}" if self.unit else ""
        rival = "-" if self.rival is None else f"{_short(self.rival)}{unit}"
        ratio = "-" if self.ratio is None else f"{self.ratio:.2f}"
        goal = "-" if self.goal is None else f"{_short(self.goal)}{'x' if self.goal_on == 'ratio' else unit}"
        verdict = "-" if self.met is None else "met" if self.met else "short"
        note = f"  ({self.note})" if self.note else ""
        return f"{self.name} ours={_short(self.ours)}{unit} rival={rival} ratio={ratio} goal={goal} {verdict}{note}"


@dataclass(slots=True)
class Report:
    """Collects the figures of one benchmark program; ``name`` becomes the file name of the JSON."""

    name: str
    setting: dict[str, object] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)

    def figure(
        self,
        name: str,
        ours: float,
        rival: float | None = None,
        goal: float | None = None,
        *,
        higher_is_better: bool = True,
        unit: str = "",
        goal_on: Literal["ratio", "value"] | None = None,
        note: str = "",
    ) -> Figure:
        """Records and prints one number.

        ``goal`` is a ratio against the rival when there is a rival and a value of ``unit`` otherwise;
        ``goal_on`` says so explicitly where that guess is wrong. A goal on a value is a floor when higher
        is better and a ceiling when lower is.
        """
        goal = None if SHORT else goal
        ratio = None
        if rival is not None:
            better, worse = (ours, rival) if higher_is_better else (rival, ours)
            ratio = better / worse if worse else None
        on: Literal["ratio", "value"] = goal_on or ("value" if rival is None else "ratio")
        met = None
        if goal is not None and on == "ratio":
            met = ratio is not None and ratio >= goal
        elif goal is not None:
            met = ours >= goal if higher_is_better else ours <= goal
        figure = Figure(name, ours, rival, ratio, goal, on, met, unit, higher_is_better, note)
        self.figures.append(figure)
        print(figure.line(), flush=True)
        return figure

    def write(self, folder: Path = RESULTS) -> Path:
        """Writes ``<folder>/<name>.json`` (whole or not at all) and returns its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}{'-short' if SHORT else ''}.json"
        beside = path.with_suffix(".json.new")
        content = {
            "name": self.name,
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "setting": self.setting,
            "figures": [asdict(figure) for figure in self.figures],
        }
        beside.write_text(json.dumps(content, indent=1, default=str) + "\n", encoding="utf-8")
        os.replace(beside, path)
        return path


def sized(short: Size, usual: Size, full: Size | None = None) -> Size:
    """The size of the form that is asked for."""
    if SHORT:
        return short
    return full if FULL and full is not None else usual


def percentile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` (0 to 1) of ``values`` do not exceed, by nearest rank; raises on no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered) + 0.5) - 1))]


def spread(values: Sequence[float]) -> str:
    """Median and range of repeats, for a figure's note."""
    return f"median {_short(median(values))} of {len(values)}, {_short(min(values))} to {_short(max(values))}"


def machine() -> dict[str, object]:
    """Where a number was measured: processor, cores, memory, load, versions. No host name."""
    versions: dict[str, str] = {}
    for library in LIBRARIES:
        try:
            versions[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return {
        "processor": _first_line_with("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": _first_line_with("/proc/meminfo", "MemTotal"),
        "load": list(os.getloadavg()),
        "system": f"{platform.system()} {platform.release()}",
        "python": sys.version.split()[0],
        "versions": versions,
    }


def _first_line_with(path: str, key: str) -> str | None:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), None)


def _short(value: float) -> str:
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
