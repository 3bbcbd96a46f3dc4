"""What a small partition, a publication and an analyst's question cost as a home grows.

    python -m benchmarks.bench_growth                    the short form, some ten minutes
    python -m benchmarks.bench_growth rows slices        some of its parts
    FULL=1 python -m benchmarks.bench_growth             2·10⁷ rows, 10,000 real commits, 10⁶ captures: hours

Homes grow by generated rows. A bulk builder puts many slices into a commit; a test shows that its homes are those of a
commit a slice. What is measured beside a grown home is a young one. To compare two codes, run this with each.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.growth_home import PAGE_SHARE
from benchmarks.report import FULL, Report, sized, spread
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import DEMO

PARTS = ("rows", "slices", "captures", "members", "many", "durable")
#: Of the short form: the others take the way of rows again.
SHORT_PARTS = ("rows", "captures", "members", "durable")
_ROOT = Path(__file__).parent.parent
_REPEATS = sized(1, 3)

Figures = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """To what homes grow: (slices, rows of each), captures of a target, members of a set, slices of a row each,
    pairs of runs with and without syncs."""

    rows: tuple[int, int]
    slices: tuple[int, int]
    captures: tuple[int, int]
    members: tuple[int, int]
    many: tuple[int, int]
    pairs: int


YOUNG = sized((2, 10), (10, 100))
SIZES = sized(
    Sizes((2, 10), (2, 10), (2_000, 2_000), (4, 4), (10, 20), 1),
    Sizes((10, 200_000), (10_000, 20), (10_000, 50_000), (10, 10_000), (10, 100_000), 10),
    Sizes((100, 200_000), (10_000, 20), (10_000, 1_000_000), (10, 100_000), (10, 1_000_000), 30),
)


@dataclass(frozen=True, slots=True)
class Bench:
    """A folder to work in, the bucket all homes have, and where figures go."""

    report: Report
    folder: Path
    bucket: Path


def bench_rows(bench: Bench) -> None:
    """Rows in the crawl: a new slice, a replaced one, publication, questions."""
    young, grown = _measured(bench, YOUNG, bulk=True), _measured(bench, SIZES.rows, "--maintenance", bulk=True)
    for figures, size in ((young, YOUNG), (grown, SIZES.rows)):
        figures.update(_measured(bench, size, bulk=True, step="replace"))
    tell = _Telling(bench.report, "rows", young, grown, _shown(SIZES.rows))
    tell.ratio("pages", 1.2)
    tell.more("pages", 100)
    tell.value("replaced_s", 1.5 + median(young["replaced_s"]), "s", "the slowest stage; 1.5 s more than young")
    tell.more("replaced", 400)
    tell.answers()
    tell.files(_opened(bench, SIZES.rows))


def bench_slices(bench: Bench) -> None:
    """Slices in the crawl: a new slice, publication, questions."""
    young = _measured(bench, YOUNG, bulk=True)
    grown = _measured(bench, SIZES.slices, "--maintenance", bulk=not FULL)
    tell = _Telling(bench.report, "slices", young, grown, _shown(SIZES.slices))
    tell.ratio("pages", 1.3)
    tell.answers()
    tell.files(_opened(bench, SIZES.slices))


def bench_captures(bench: Bench) -> None:
    """Captures of one target, from a bucket in a folder: memory, and whether seconds grow as captures do."""
    found = {}
    for captures in dict.fromkeys(SIZES.captures):
        bucket = bench.folder / f"captures-{captures}"
        _module("large_target", "make", str(bucket), "--captures", str(captures))
        home = bench.folder / f"captures-{captures}-home"
        steps = ["harvest", "locate", "fetch", *(["parse"] if FULL else [])]
        told = _module("large_target", "run", str(bucket), "--home", str(home), "--steps", *steps)
        found[captures] = json.loads(told)
        shutil.rmtree(home)
        shutil.rmtree(bucket)
    few, many = SIZES.captures
    for step in found[many]:
        if step == "harvest":
            continue
        here, there = found[many][step], found[few][step]
        note = f"{many:,} captures; {few:,}: {there['s']} s, {there['own_mb']:.0f} MB; processor {here['cpu_s']} s"
        name = f"captures_{step}"
        bench.report.figure(f"{name}_s", here["s"], higher_is_better=False, unit="s", note=note)
        bench.report.figure(f"{name}_peak_mb", here["own_mb"], None, 1500, higher_is_better=False, unit="MB", note=note)
        slope = (here["s"] / max(there["s"], 0.01)) / (many / few)
        note = "seconds have grown by so many times what captures have: 1 is linear"
        bench.report.figure(f"{name}_slope", slope, None, 1.2, higher_is_better=False, note=note)


def bench_members(bench: Bench) -> None:
    """Members of a set: locating it, and one member more beside a domain alone."""
    found = {}
    for members in dict.fromkeys(SIZES.members):
        folder = bench.folder / f"members-{members}"
        folder.mkdir()
        found[members] = json.loads(_run("members", bench.bucket, folder, "--slices", str(members)))
        shutil.rmtree(folder)
    few, many = SIZES.members
    here = found[many]
    note = f"{many:,} members; {few:,}: {found[few]['located_s']:.2f} s; processor {here['located_cpu_s']:.2f} s"
    bench.report.figure("members_located_s", here["located_s"], None, 60, higher_is_better=False, unit="s", note=note)
    note = f"a member added to {many:,} {here['added_s']:.2f} s, a lone domain {here['lone_s']:.2f} s"
    bench.report.figure(
        "members_added_over_lone", here["added_s"] / here["lone_s"], None, 2, higher_is_better=False, note=note
    )
    bench.report.figure("members_peak_mb", here["peak_mb"], higher_is_better=False, unit="MB", note=f"{many:,} members")


def bench_durable(bench: Bench) -> None:
    """What it costs that commits last: a run of a few captures and its publication, with and without syncs."""
    home = bench.folder / "durable"
    home.mkdir()
    found = json.loads(_run("durable", bench.bucket, home, "--slices", str(SIZES.pairs)))
    shutil.rmtree(home)
    for name in ("s", "cpu_s"):
        synced, plain = found[f"synced_{name}"], found[f"unsynced_{name}"]
        note = f"{found['captures'][0]:.0f} captures, {found['syncs'][0]:.0f} syncs; {spread(synced)}; "
        note += f"without {median(plain):.3f} s, {spread(plain)}; pairs {len(plain)}, interleaved"
        bench.report.figure(f"durable_{name}", median(synced), higher_is_better=False, unit="s", note=note)
    times = median(found["synced_s"]) / median(found["unsynced_s"])
    bench.report.figure("durable_over_not", times, None, 1.2, higher_is_better=False, note="wall, medians")


def bench_many(bench: Bench) -> None:
    """So many slices that what each leaves in a log counts: a new slice, publication, a run with nothing to do."""
    found = {}
    for slices in SIZES.many:
        home = bench.folder / f"many-{slices}"
        _run("grow-many", bench.bucket, home, "--slices", str(slices))
        found[slices] = {
            k: v for step in ("ask", "again", "opened") for k, v in json.loads(_run(step, bench.bucket, home)).items()
        }
        shutil.rmtree(home)
    few, many = SIZES.many
    there, here = found[few], found[many]
    for step in ("pages", "publish", "noop"):
        name = f"{step}_cpu_s"
        note = f"{many:,} slices: processor {here[name]:.2f} s; {few:,}: {there[name]:.2f} s"
        times = here[name] / there[name]
        bench.report.figure(f"many_{step}_over_young", times, None, 2, higher_is_better=False, note=note)
    for name, unit in (("logs_mb", "MB"), ("opened_s", "s"), ("counts_s", "s")):
        note = f"{many:,} slices; {few:,}: {there[name]:.3f} {unit}"
        bench.report.figure(f"many_{name}", here[name], higher_is_better=False, unit=unit, note=note)
    note = f"{many:,} slices; {few:,}: {there['peak_mb']:.0f} MB"
    more = here["peak_mb"] - there["peak_mb"]
    bench.report.figure("many_more_mb", more, None, 150, higher_is_better=False, unit="MB", note=note)


@dataclass(frozen=True, slots=True)
class _Telling:
    """Lines on one kind of growth, from the figures of a young and a grown home."""

    report: Report
    what: str
    young: Figures
    grown: Figures
    at: str

    def value(self, name: str, goal: float | None, unit: str, note: str) -> None:
        """One figure, grown."""
        note = f"{spread(self.grown[name])}; young {median(self.young.get(name, [0])):.2f}; {note}"
        self._line(name, median(self.grown[name]), goal, unit, note)

    def ratio(self, step: str, goal: float) -> None:
        """A step's seconds, and how many times those of a young home they are."""
        self.value(f"{step}_s", None, "s", f"processor {median(self.grown[f'{step}_cpu_s']):.2f} s")
        times, used = (median(self.grown[name]) / median(self.young[name]) for name in (f"{step}_s", f"{step}_cpu_s"))
        self._line(f"{step}_over_young", times, goal, "", f"of the processor {used:.2f}")

    def more(self, step: str, goal: float) -> None:
        """The peak after a step, over that of a young home."""
        young = median(self.young[f"{step}_mb"])
        note = f"young {young:.0f} MB, parser processes not counted"
        self._line(f"{step}_more_mb", median(self.grown[f"{step}_mb"]) - young, goal, "MB", note)

    def answers(self) -> None:
        """The publication, and an analyst's questions after maintenance."""
        self.value("publish_s", 5, "s", f"processor {median(self.grown['publish_cpu_s']):.2f} s")
        self.value("publish_mb", 500, "MB", "peak of the process until then")
        self.value("maintenance_s", None, "s", "")
        for question in ("count_s", "domain_s"):
            self.value(question, 0.2, "s", "after maintenance")

    def files(self, opened: int | None) -> None:
        """Files of the home that all steps opened."""
        if opened is not None:
            self._line("files_opened", opened, None, "", "all steps together")

    def _line(self, name: str, value: float, goal: float | None, unit: str, note: str) -> None:
        note = f"{self.at}; {note}"
        self.report.figure(f"{self.what}_{name}", value, None, goal, unit=unit, higher_is_better=False, note=note)


def _shown(size: tuple[int, int]) -> str:
    return f"{size[0]:,} slices of {size[1]:,} rows"


def _home(bench: Bench, size: tuple[int, int], *, bulk: bool) -> Path:
    """A home of a size, grown once."""
    home = bench.folder / f"home-{size[0]}-{size[1]}"
    if not home.exists():
        pages = size[1] if size[1] < 10_000 else size[1] // PAGE_SHARE
        grown = ["--slices", str(size[0]), "--rows", str(size[1]), "--page-rows", str(pages)]
        _run("grow", bench.bucket, home, *grown, *(["--bulk"] if bulk else []))
        print(f"# a home of {_shown(size)}", flush=True)
    return home


def _measured(bench: Bench, size: tuple[int, int], *how: str, bulk: bool, step: str = "ask") -> Figures:
    """Figures of copies of one grown home, each used once by a new process."""
    home = _home(bench, size, bulk=bulk)
    found: Figures = {}
    for _ in range(_REPEATS):
        for figure, value in json.loads(_on_a_copy(bench, home, *how, step=step)).items():
            found.setdefault(figure, []).append(value)
    return found


def _opened(bench: Bench, size: tuple[int, int]) -> int | None:
    """Files of the home that all steps of one process open; ``None``, and a line that says so, without strace."""
    if shutil.which("strace") is None:
        print("# files opened are not counted: there is no strace here", flush=True)
        return None
    log = bench.folder / "opened.log"
    traced = ["strace", "-f", "-qq", "-e", "trace=openat", "-o", str(log)]
    _on_a_copy(bench, _home(bench, size, bulk=True), "--maintenance", before=traced)
    with log.open(encoding="utf-8", errors="replace") as lines:
        count = sum("/asked/" in line and " = -1 " not in line for line in lines)
    log.unlink()
    return count


def _on_a_copy(bench: Bench, home: Path, *how: str, step: str = "ask", before: Sequence[str] = ()) -> str:
    asked = bench.folder / "asked"
    # files of a lake are never changed, so copies may share them
    subprocess.run(["cp", "-al", str(home), str(asked)], check=True)
    try:
        return _run(step, bench.bucket, asked, *how, before=before)
    finally:
        shutil.rmtree(asked)


def _run(step: str, bucket: Path, home: Path, *more: str, before: Sequence[str] = ()) -> str:
    return _module("growth_home", step, str(bucket), str(home), *more, before=before)


def _module(name: str, *arguments: str, before: Sequence[str] = ()) -> str:
    command = [*before, sys.executable, "-m", f"benchmarks.{name}", *arguments]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} {arguments[0]} failed:\n{done.stderr[-2000:]}")
    return done.stdout


_BENCHES: dict[str, Callable[[Bench], None]] = {
    "rows": bench_rows,
    "slices": bench_slices,
    "captures": bench_captures,
    "members": bench_members,
    "many": bench_many,
    "durable": bench_durable,
}


def main() -> None:
    """Prints a line a figure and writes ``benchmarks/results/growth.json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="what to measure (default: everything)")
    given = parser.parse_args().parts
    parts = given or sized(SHORT_PARTS, PARTS)
    report = Report("growth" if not given else f"growth-{'-'.join(parts)}")
    report.setting = {"sizes": {name: getattr(SIZES, name) for name in Sizes.__slots__}}
    with tempfile.TemporaryDirectory(prefix="bench-growth-") as folder:
        bucket = Path(folder) / "bucket"
        ensure(bucket, DEMO)
        bench = Bench(report, Path(folder), bucket)
        for part in parts:
            _BENCHES[part](bench)
    print(f"# written to {report.write()}")


if __name__ == "__main__":
    main()
