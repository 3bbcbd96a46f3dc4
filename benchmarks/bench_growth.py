"""What a small partition costs as its home grows: by rows in the crawl, and by slices in the crawl.

The rival is the code of before (``BEFORE``, out of this repository's history), on a home that it grew itself from the
same bucket. ``FULL=1`` grows further, which takes hours: every slice is a real commit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path
from statistics import median

from benchmarks.report import Report, spread
from cc_pipeline.minicrawl.generate import ensure
from cc_pipeline.minicrawl.spec import DEMO

#: The last commit in whose code each small run reads the records of its whole crawl.
BEFORE = "e1526ac"
_ROOT = Path(__file__).parent.parent
_PROGRAM = Path(__file__).with_name("growth_home.py")
#: What grows, from and to: (slices, rows of each).
_SHORT = {"rows": ((10, 100), (10, 100_000)), "slices": ((10, 20), (300, 20))}
_FULL = {"rows": ((10, 100), (10, 2_000_000)), "slices": ((10, 20), (10_000, 20))}


def main() -> None:
    """Prints a line a figure and writes ``benchmarks/results/growth.json``."""
    sizes = _FULL if os.environ.get("FULL") else _SHORT
    report = Report("growth")
    with tempfile.TemporaryDirectory() as folder:
        bucket = Path(folder) / "bucket"
        ensure(bucket, DEMO)
        codes = {"ours": _ROOT, "before": _code_of(BEFORE, Path(folder) / "before")}
        report.setting = {"sizes": {what: list(map(list, pair)) for what, pair in sizes.items()}, "before": BEFORE}
        for what, (small, large) in sizes.items():
            figures = {
                (name, size): _measured(code, bucket, Path(folder) / f"{name}-{what}-{number}", what, size)
                for name, code in codes.items()
                for number, size in enumerate((small, large))
            }
            _tell(report, what, small, large, figures)
    report.write()


def _tell(
    report: Report,
    what: str,
    small: tuple[int, int],
    large: tuple[int, int],
    figures: dict[tuple[str, tuple[int, int]], dict[str, list[float]]],
) -> None:
    ours, before = figures["ours", large], figures["before", large]
    young = figures["ours", small]
    at = f"{large[0]:,} slices of {large[1]:,} rows"
    for step in ("pages", "publish"):
        grown, was = median(ours[f"{step}_s"]), median(young[f"{step}_s"])
        report.figure(
            f"{what}_{step}_s", grown, median(before[f"{step}_s"]), unit="s", higher_is_better=False,
            note=f"{at}; {spread(ours[f'{step}_s'])}; processor {median(ours[f'{step}_cpu_s']):.2f} s",
        )  # fmt: skip
        limit = {"rows": 1.2, "slices": 1.3}[what] if step == "pages" else None
        report.figure(
            f"{what}_{step}_grown_over_young", grown / was, goal=limit, higher_is_better=False, goal_on="value",
            note=f"young {was:.2f} s; before: {_ratio(figures, small, large, step):.2f}",
        )  # fmt: skip
    report.figure(
        f"{what}_peak_mb", median(ours["peak_mb"]), median(before["peak_mb"]), unit="MB", higher_is_better=False,
        note=f"{at}; young {median(young['peak_mb']):.0f} MB, parser processes not counted",
    )  # fmt: skip


def _ratio(
    figures: dict[tuple[str, tuple[int, int]], dict[str, list[float]]],
    small: tuple[int, int],
    large: tuple[int, int],
    step: str,
) -> float:
    return median(figures["before", large][f"{step}_s"]) / median(figures["before", small][f"{step}_s"])


def _measured(code: Path, bucket: Path, home: Path, what: str, size: tuple[int, int]) -> dict[str, list[float]]:
    """Figures of three copies of one grown home, each asked once by a new process."""
    grow = ["--what", what, "--slices", str(size[0]), "--rows", str(size[1])]
    _run(code, "grow", bucket, home, *grow)
    found: dict[str, list[float]] = {}
    for number in range(3):
        asked = home.with_name(f"{home.name}-{number}")
        # files of a lake are never changed, so copies may share them
        subprocess.run(["cp", "-al", str(home), str(asked)], check=True)
        for name, value in json.loads(_run(code, "ask", bucket, asked)).items():
            found.setdefault(name, []).append(value)
    return found


def _run(code: Path, step: str, bucket: Path, home: Path, *more: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(code)}
    command = [sys.executable, str(_PROGRAM), step, str(bucket), str(home), *more]
    done = subprocess.run(command, env=environment, cwd=code, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{step} with the code in {code} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def _code_of(commit: str, folder: Path) -> Path:
    """The package as it was at ``commit``. Ends with an error where the history lacks it (a shallow clone)."""
    packed = subprocess.run(
        ["git", "-C", str(_ROOT), "archive", "--format=tar", commit, "cc_pipeline"], capture_output=True, check=False
    )
    if packed.returncode:
        raise SystemExit(
            f"the rival is commit {commit}, and this clone does not have it: fetch the whole history (git fetch "
            "--unshallow)"
        )
    folder.mkdir()
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder


if __name__ == "__main__":
    main()
