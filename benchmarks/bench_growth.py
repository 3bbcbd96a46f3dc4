"""What a small partition, a publication and an analyst's question cost as a home grows.

    python -m benchmarks.bench_growth                    the short form, some ten minutes
    python -m benchmarks.bench_growth rows slices        some of its parts
    FULL=1 python -m benchmarks.bench_growth             2·10⁷ rows, 10,000 real commits, 10⁶ captures: hours

Homes grow by generated rows. A bulk builder puts many slices into a commit; that its homes are those of a commit a
slice is shown first (``same``). The rival is the code of before (``BEFORE``, from the history of this repository), on
homes that it grew itself from the same bucket: of 10,000 slices, a commit each, only with ``FULL=1``: it takes hours.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from statistics import median

from benchmarks.catalog_growth import grow as grow_catalog
from benchmarks.catalog_synthetic import Shape
from benchmarks.growth_home import PAGE_SHARE
from benchmarks.report import Report, spread
from cc_pipeline.minicrawl.generate import ensure
from cc_pipeline.minicrawl.spec import DEMO

#: The last commit in whose code each small run reads the records of its whole crawl.
BEFORE = "e1526ac"
PARTS = ("same", "rows", "slices", "captures", "members", "catalog")
_ROOT = Path(__file__).parent.parent
_PROGRAM = Path(__file__).with_name("growth_home.py")
_REPEATS = 3
#: Commits of the home that shows that the bulk builder's is the same.
_SAME = 500

Figures = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """To what homes grow: (slices, rows of each), captures of a target, members of a set, crawls of a catalog.

    ``before`` is what the code of before grows to, where that is less.
    """

    rows: tuple[int, int]
    slices: tuple[int, int]
    slices_before: tuple[int, int]
    captures: tuple[int, int]
    members: tuple[int, int]
    crawls: int


YOUNG = (10, 100)
SHORT = Sizes((10, 200_000), (10_000, 20), (300, 20), (10_000, 50_000), (10, 10_000), 4)
LONG = Sizes((100, 200_000), (10_000, 20), (10_000, 20), (10_000, 1_000_000), (10, 100_000), 14)


@dataclass(frozen=True, slots=True)
class Bench:
    """A folder to work in, the bucket all homes have, the two codes, and where figures go."""

    report: Report
    folder: Path
    bucket: Path
    codes: dict[str, Path]
    sizes: Sizes
    full: bool


def bench_same(bench: Bench) -> None:
    """Homes of ``_SAME`` slices by the bulk builder and by a commit a slice: rows, digests, answers."""
    told = []
    for more in ([], ["--bulk"]):
        home = bench.folder / f"same{len(more)}"
        _run(bench.codes["ours"], "grow", bench.bucket, home, "--slices", str(_SAME), "--rows", "3", *more)
        told.append(json.loads(_run(bench.codes["ours"], "describe", bench.bucket, home, "--slices", str(_SAME))))
        shutil.rmtree(home)
    differ = [name for name in told[0] if told[0][name] != told[1][name]]
    note = f"{_SAME} slices a commit each, and in bulk: rows, digests, answers; differ: {', '.join(differ) or 'none'}"
    bench.report.figure("bulk_builder_differs_in", len(differ), None, 0, higher_is_better=False, note=note)
    if differ:
        raise SystemExit("the bulk builder's homes are not those that commits make: the figures would say nothing")


def bench_rows(bench: Bench) -> None:
    """Rows in the crawl: a new slice, a replaced one, publication, questions."""
    young = {name: _measured(bench, name, YOUNG, "--bulk") for name in bench.codes}
    grown = {name: _measured(bench, name, bench.sizes.rows, "--bulk", "--upkeep") for name in bench.codes}
    for figures, size in ((young, YOUNG), (grown, bench.sizes.rows)):
        for name in bench.codes:
            figures[name] |= _measured(bench, name, size, "--bulk", step="replace")
    tell = _Telling(bench.report, "rows", young, grown, _shown(bench.sizes.rows))
    tell.ratio("pages", 1.2)
    tell.more("pages", 100)
    tell.value(
        "replaced_s", 1.5 + median(young["ours"]["replaced_s"]), "s", "a table, the slowest; 1.5 s more than young"
    )
    tell.more("replaced", 400)
    tell.answers()
    tell.files(*(_opened(bench, name, bench.sizes.rows) for name in bench.codes))


def bench_slices(bench: Bench) -> None:
    """Slices in the crawl: a new slice, publication, questions."""
    sizes = {"ours": bench.sizes.slices, "before": bench.sizes.slices_before}
    bulk = {"ours": [] if bench.full else ["--bulk"], "before": []}
    young = {name: _measured(bench, name, YOUNG, "--bulk") for name in bench.codes}
    grown = {name: _measured(bench, name, sizes[name], *bulk[name], "--upkeep") for name in bench.codes}
    tell = _Telling(bench.report, "slices", young, grown, f"{_shown(sizes['ours'])}; before: {_shown(sizes['before'])}")
    tell.ratio("pages", 1.3)
    tell.answers()
    tell.files(*(_opened(bench, name, sizes[name]) for name in bench.codes))


def bench_captures(bench: Bench) -> None:
    """Captures of one target, from a bucket in a folder: memory, and whether seconds grow as captures do."""
    found = {}
    for captures in bench.sizes.captures:
        bucket = bench.folder / f"captures-{captures}"
        _module(bench, "large_target", "make", str(bucket), "--captures", str(captures))
        home = bench.folder / f"captures-{captures}-home"
        steps = ["harvest", "locate", "fetch", *(["parse"] if bench.full else [])]
        told = _module(bench, "large_target", "run", str(bucket), "--home", str(home), "--steps", *steps)
        found[captures] = json.loads(told)
        shutil.rmtree(home)
        shutil.rmtree(bucket)
    few, many = bench.sizes.captures
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
    for members in bench.sizes.members:
        folder = bench.folder / f"members-{members}"
        folder.mkdir()
        found[members] = json.loads(
            _module(bench, "large_set", str(bench.bucket), str(folder), "--members", str(members))
        )
        shutil.rmtree(folder)
    few, many = bench.sizes.members
    here = found[many]
    note = f"{many:,} members; {few:,}: {found[few]['located_s']:.2f} s; processor {here['located_cpu_s']:.2f} s"
    bench.report.figure("members_located_s", here["located_s"], None, 60, higher_is_better=False, unit="s", note=note)
    note = f"a member added to {many:,} {here['added_s']:.2f} s, a lone domain {here['lone_s']:.2f} s"
    bench.report.figure(
        "members_added_over_lone", here["added_s"] / here["lone_s"], None, 2, higher_is_better=False, note=note
    )
    bench.report.figure("members_peak_mb", here["peak_mb"], higher_is_better=False, unit="MB", note=f"{many:,} members")


def bench_crawls(bench: Bench) -> None:
    """Crawls in the catalog: adding one. Questions to 1 and 120 are bench-catalog's."""
    home = bench.folder / "catalog"
    (home / "bucket").mkdir(parents=True)
    added = [took for _, took in grow_catalog(home, Shape(crawls=bench.sizes.crawls))]
    for name, goal, unit in (("seconds", 2, "s"), ("user", None, "s"), ("peak", 300, "MB")):
        values = [took[name] for took in added]
        note = (
            f"of 30,000 row groups, {spread(values)}, with a merge that was due; 120 crawls: FULL=1 make bench-catalog"
        )
        bench.report.figure(
            f"crawl_added_{name}", median(values), None, goal, higher_is_better=False, unit=unit, note=note
        )


@dataclass(frozen=True, slots=True)
class _Telling:
    """Lines on one kind of growth, from the figures of young and grown homes of both codes."""

    report: Report
    what: str
    young: dict[str, Figures]
    grown: dict[str, Figures]
    at: str

    def value(self, name: str, goal: float | None, unit: str, note: str) -> None:
        """Ours, grown, beside the rival's."""
        ours, before = self.grown["ours"], self.grown["before"]
        rival = median(before[name]) if name in before else None
        self.report.figure(
            f"{self.what}_{name}", median(ours[name]), rival, goal, unit=unit, higher_is_better=False, goal_on="value",
            note=f"{self.at}; {spread(ours[name])}; young {median(self.young['ours'].get(name, [0])):.2f}; {note}",
        )  # fmt: skip

    def ratio(self, step: str, goal: float) -> None:
        """A step's seconds, and how many times those of a young home they are."""
        self.value(f"{step}_s", None, "s", f"processor {median(self.grown['ours'][f'{step}_cpu_s']):.2f} s")
        ours, before = (
            median(self.grown[name][f"{step}_s"]) / median(self.young[name][f"{step}_s"]) for name in ("ours", "before")
        )
        used = [median(home["ours"][f"{step}_cpu_s"]) for home in (self.grown, self.young)]
        note = f"{self.at}; of the processor {used[0] / used[1]:.2f}"
        self.report.figure(
            f"{self.what}_{step}_over_young", ours, before, goal, higher_is_better=False, goal_on="value", note=note
        )

    def more(self, step: str, goal: float) -> None:
        """The peak after a step, over that of a young home."""
        ours, before = (
            median(self.grown[name][f"{step}_mb"]) - median(self.young[name][f"{step}_mb"])
            for name in ("ours", "before")
        )
        note = f"{self.at}; young {median(self.young['ours'][f'{step}_mb']):.0f} MB, parser processes not counted"
        self.report.figure(
            f"{self.what}_{step}_more_mb",
            ours,
            before,
            goal,
            unit="MB",
            higher_is_better=False,
            goal_on="value",
            note=note,
        )

    def answers(self) -> None:
        """The publication, and an analyst's questions after upkeep."""
        self.value("publish_s", 5, "s", f"processor {median(self.grown['ours']['publish_cpu_s']):.2f} s")
        self.value("publish_mb", 500, "MB", "peak of the process until then")
        self.value("upkeep_s", None, "s", "")
        for question in ("count_s", "domain_s"):
            self.value(question, 0.2, "s", "after upkeep")

    def files(self, ours: int | None, before: int | None) -> None:
        """Files of the home that all steps opened."""
        if ours is not None:
            self.report.figure(
                f"{self.what}_files_opened", ours, before, higher_is_better=False, note=f"{self.at}; all steps together"
            )


def _shown(size: tuple[int, int]) -> str:
    return f"{size[0]:,} slices of {size[1]:,} rows"


def _home(bench: Bench, name: str, size: tuple[int, int], *how: str) -> Path:
    """A home of a size, grown once."""
    home = bench.folder / f"{name}-{size[0]}-{size[1]}"
    if not home.exists():
        pages = size[1] if size[1] < 10_000 else size[1] // PAGE_SHARE
        grown = ["--slices", str(size[0]), "--rows", str(size[1]), "--page-rows", str(pages)]
        _run(bench.codes[name], "grow", bench.bucket, home, *grown, *(["--bulk"] if "--bulk" in how else []))
        print(f"# {name}: a home of {_shown(size)}", flush=True)
    return home


def _measured(bench: Bench, name: str, size: tuple[int, int], *how: str, step: str = "ask") -> Figures:
    """Figures of three copies of one grown home, each used once by a new process."""
    home = _home(bench, name, size, *how)
    asked = [flag for flag in how if flag != "--bulk"]
    found: Figures = {}
    for _ in range(_REPEATS):
        for figure, value in json.loads(_on_a_copy(bench, name, home, *asked, step=step)).items():
            found.setdefault(figure, []).append(value)
    return found


def _opened(bench: Bench, name: str, size: tuple[int, int]) -> int | None:
    """Files of the home that all steps of one process open; ``None``, and a line that says so, without strace."""
    if shutil.which("strace") is None:
        print("# files opened are not counted: there is no strace here", flush=True)
        return None
    log = bench.folder / "opened.log"
    traced = ["strace", "-f", "-qq", "-e", "trace=openat", "-o", str(log)]
    _on_a_copy(bench, name, _home(bench, name, size), "--upkeep", before=traced)
    with log.open(encoding="utf-8", errors="replace") as lines:
        count = sum("/asked/" in line and " = -1 " not in line for line in lines)
    log.unlink()
    return count


def _on_a_copy(bench: Bench, name: str, home: Path, *how: str, step: str = "ask", before: Sequence[str] = ()) -> str:
    asked = bench.folder / "asked"
    # files of a lake are never changed, so copies may share them
    subprocess.run(["cp", "-al", str(home), str(asked)], check=True)
    try:
        return _run(bench.codes[name], step, bench.bucket, asked, *how, before=before)
    finally:
        shutil.rmtree(asked)


def _run(code: Path, step: str, bucket: Path, home: Path, *more: str, before: Sequence[str] = ()) -> str:
    command = [*before, sys.executable, str(_PROGRAM), step, str(bucket), str(home), *more]
    return _output(command, code, f"{step} with the code in {code}")


def _module(bench: Bench, name: str, *arguments: str) -> str:
    return _output([sys.executable, "-m", f"benchmarks.{name}", *arguments], bench.codes["ours"], name)


def _output(command: Sequence[str], code: Path, what: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(code)}
    done = subprocess.run(command, env=environment, cwd=code, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{what} failed:\n{done.stderr[-2000:]}")
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


_BENCHES: dict[str, Callable[[Bench], None]] = {
    "same": bench_same,
    "rows": bench_rows,
    "slices": bench_slices,
    "captures": bench_captures,
    "members": bench_members,
    "catalog": bench_crawls,
}


def main() -> None:
    """Prints a line a figure and writes ``benchmarks/results/growth.json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="what to measure (default: everything)")
    parts = parser.parse_args().parts or PARTS
    full = os.environ.get("FULL") == "1"
    sizes = LONG if full else SHORT
    report = Report("growth" if len(parts) == len(PARTS) else f"growth-{'-'.join(parts)}")
    report.setting = {"sizes": {name: getattr(sizes, name) for name in Sizes.__slots__}, "before": BEFORE}
    with tempfile.TemporaryDirectory(prefix="bench-growth-") as folder:
        bucket = Path(folder) / "bucket"
        ensure(bucket, DEMO)
        codes = {"ours": _ROOT, "before": _code_of(BEFORE, Path(folder) / "before")}
        bench = Bench(report, Path(folder), bucket, codes, sizes, full)
        for part in parts:
            _BENCHES[part](bench)
    print(f"# written to {report.write()}")


if __name__ == "__main__":
    main()
