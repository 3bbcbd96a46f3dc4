"""``make bench-refused``: Common Crawl's front on ordinary and on bad days, at its own host names and default settings.

    python -m benchmarks.bench_refused             all of it, some forty minutes
    python -m benchmarks.bench_refused chance      one part: chance, waves, window, crawls, commands, leased

Every command is the real one in a process of its own, as a script runs it: no setting but the home, and nobody says
that it is to wait. It runs in a network namespace in which ``data.commoncrawl.org`` and ``index.commoncrawl.org`` are
servers of this machine that answer 80 ms late (``cc_pipeline_tests/lab.py``), over a bucket of 900 index files a crawl.

- **chance**: a harvest of 303 requests while a share of all requests gets a 503 at random. Times are those between the
  first and the last request for a footer, so that they say nothing of how busy this machine is.
- **waves**: everything is refused for a while, in the middle of a harvest; **window**: an address is refused while more
  than 400 requests of it, refused ones too, came in the last 300 s. Counted are refusals of each wave, and good answers
  that were asked for again.
- **crawls**: ``run -c all`` over 20 crawls of 2014 to 2026, with a 503 in a hundred requests.
- **commands**: what a new home's first, second and third run ask for, but for records.
- **leased**: three processes share a rate by leases, of which one is killed (``leased_rate.py``).
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path

from benchmarks.leased_rate import tell_leased
from benchmarks.report import Report, sized
from benchmarks.shortest_bucket import CRAWLS, PROGRAM, environment_of, generate_bucket
from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.minicrawl.generate import generate
from cc_pipeline.minicrawl.spec import CrawlSpec, MiniCrawlSpec
from cc_pipeline_tests.faultserver import Hit, asked_again
from cc_pipeline_tests.frontmanners import CLOUDFRONT, Manners, Wave
from cc_pipeline_tests.lab import DATA, common_crawl_lab, why_no_lab

_FILES = sized(30, 900)
FRONT = replace(CLOUDFRONT, latency=sized(0.01, 0.08))
#: Shares of lone 503s, and how many times as long a harvest may take as without any, or as its rate alone takes.
_SHARES: Mapping[float, float] = sized({0.0: 1.1, 0.2: 2.0}, {0.0: 1.1, 0.05: 1.3, 0.1: 1.5, 0.2: 2.0})
_RATE = 5.0
#: Status and seconds of waves.
_WAVES = sized(((503, 1.0),), ((503, 60.0), (403, 3.0), (403, 30.0), (403, 90.0)))
_MOST, _WINDOW = sized((8, 4.0), (400, 300.0))
_MOST_REFUSED = 20
#: Crawls of ``-c all``, newest first.
_ALL = sized(("2024-22", "2015-06"), (
    "2026-34", "2026-21", "2025-51", "2025-21", "2025-05", "2024-51", "2024-22", "2023-40", "2022-49", "2021-49",
    "2021-04", "2020-24", "2019-47", "2018-51", "2018-05", "2017-26", "2016-44", "2015-48", "2015-06", "2014-52",
))  # fmt: skip
#: Requests of a new home's first, second and third command in the audit of 26 November 2026.
_BEFORE = (17, 4, 1)


@dataclass(frozen=True)
class Run:
    """What a command asked for while it went on, how it ended, and what it said."""

    hits: list[Hit]
    status: int
    seconds: float
    said: str

    @property
    def span(self) -> float:
        """Seconds between the first and the last request for an index file, if there was one."""
        moments = [hit.at for hit in self.hits if hit.key.endswith(".parquet")] or [0.0]
        return max(moments) - min(moments)

    @property
    def waves(self) -> list[int]:
        """The refusals of each wave, lone ones not counted."""
        return [
            sum(1 for _ in some)
            for is_refused, some in groupby(self.hits, lambda hit: hit.fault in ("refused", "wave"))
            if is_refused
        ]

    @property
    def note(self) -> str:
        span = f", index files in {self.span:.0f} s" if self.span else ""
        return f"{len(self.hits)} requests{span}; the command took {self.seconds:.0f} s"


class Bench:
    """A bucket, a folder for homes, and where figures go."""

    def __init__(self, folder: Path, report: Report) -> None:
        self.folder, self.report = folder, report

    @cached_property
    def domains(self) -> tuple[str, ...]:
        """The domains of the bucket, which is made when it is first asked for."""
        truth = generate_bucket(self.bucket, lines=sized(100, 100_000), files=_FILES)
        return truth.domains(CRAWLS[0])

    @property
    def bucket(self) -> Path:
        return self.folder / "bucket"

    def chance(self) -> None:
        """A harvest with a share of lone 503s."""
        base = 0.0
        for share, goal in _SHARES.items():
            run = self.command(f"chance-{share:g}", replace(FRONT, lone_503=share), "harvest", "-c", CRAWLS[0])
            base = base or len(run.hits) / _RATE
            self.report.figure(
                f"harvest_{share:.0%}_503", run.span / base, None, goal, unit="of the time at none",
                higher_is_better=False, note=run.note,
            )  # fmt: skip
            base = run.span if not share else base

    def waves(self) -> None:
        """Waves of refusals in the middle of a harvest."""
        for status, seconds in _WAVES:
            manners = replace(FRONT, wave=Wave(_FILES // 6, seconds, status, "*.parquet"))
            run = self.command(f"wave-{status}-{seconds:g}", manners, "harvest", "-c", CRAWLS[0])
            self.tell_waves(f"wave_{status}_{seconds:g}s", run)

    def window(self) -> None:
        """A harvest of all subsets at a firewall that counts."""
        manners = replace(FRONT, most=_MOST, window=_WINDOW, sliding=True)
        subsets = [word for subset in SUBSETS for word in ("--subset", subset)]
        run = self.command("window", manners, "harvest", "-c", CRAWLS[0], *subsets)
        self.tell_waves(f"window_{_MOST}_in_{_WINDOW:g}s", run)

    def tell_waves(self, name: str, run: Run) -> None:
        """The figures of a run that was refused. Raises ``RuntimeError`` for one that was not."""
        if not run.waves:
            raise RuntimeError(f"{name} was not refused: {run.said[-2000:]}")
        again = sum(times - 1 for times in asked_again(run.hits).values())
        note = f"{len(run.waves)} waves, {sum(run.waves)} refused; {run.note}"
        for what, value, goal in (("refused", max(run.waves), _MOST_REFUSED), ("asked_again", again, 0)):
            self.report.figure(
                f"{name}_{what}", value, None, goal, unit="requests", higher_is_better=False, note=note
            )  # fmt: skip

    def crawls(self) -> None:
        """All crawls of a list, each with captures of one domain, with a 503 in a hundred requests."""
        bucket = self.folder / "all"
        specs = tuple(CrawlSpec(f"CC-MAIN-{number}", parts=1, segments=1) for number in _ALL)
        truth = generate(bucket, MiniCrawlSpec(pages=60, sites=3, crawls=specs))
        domain = truth.domains(specs[0].id)[0]
        run = self.command("all-home", replace(FRONT, lone_503=0.01), "run", "-c", "all", domain, bucket=bucket)
        refused = sum(hit.status == 503 for hit in run.hits)
        self.report.figure(
            "all_crawls_1%_503", run.status, None, 0, unit="status", higher_is_better=False,
            note=f"{len(specs)} crawls, {refused} 503s; {run.note}",
        )  # fmt: skip

    def commands(self) -> None:
        """A home's first run, one of another domain, and the first again: requests but for records."""
        first, second = self.domains[0], self.domains[len(self.domains) // 2]
        for number, (domain, before) in enumerate(zip((first, second, first), _BEFORE, strict=True), start=1):
            run = self.command("commands", FRONT, "run", "-c", "newest", domain)
            count = sum(not hit.key.endswith(".warc.gz") for hit in run.hits)
            self.report.figure(
                f"command_{number}", count, before, unit="requests", higher_is_better=False, note=run.note
            )  # fmt: skip

    def command(self, home: str, manners: Manners, *arguments: str, bucket: Path | None = None) -> Run:
        """A command in a home of this name, at a front with these manners. Raises ``RuntimeError`` for another status
        than 0."""
        if bucket is None:
            assert self.domains
            bucket = self.bucket
        lab = self.folder / f"lab-{len(list(self.folder.iterdir()))}"
        with common_crawl_lab(bucket, lab, manners) as inside:
            started = time.perf_counter()
            done = inside.run([PROGRAM, *arguments], environment_of(HOME=self.folder / home))
            run = Run(inside.hits(DATA), done.returncode, time.perf_counter() - started, done.stdout + done.stderr)
        if run.status:
            raise RuntimeError(f"{' '.join(arguments)} ended with status {run.status}: {run.said[-3000:]}")
        return run


def main() -> None:
    """Runs the benchmark, or the parts that are named, and writes ``benchmarks/results/refused.json``."""
    if reason := why_no_lab():
        sys.exit(reason)
    report = Report("refused", {"index files": _FILES, "latency": FRONT.latency})
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(Path(scratch), report)
        parts: dict[str, Callable[[], None]] = {
            "commands": bench.commands, "chance": bench.chance, "waves": bench.waves, "window": bench.window,
            "crawls": bench.crawls, "leased": lambda: tell_leased(report),
        }  # fmt: skip
        for name in sys.argv[1:] or parts:
            parts[name]()
    report.write()
    sys.exit(0 if report.all_met else 1)


if __name__ == "__main__":
    main()
