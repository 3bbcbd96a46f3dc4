"""What refusals cost: Common Crawl's host names, default settings, and a front that refuses in the ways that were seen.

    python -m benchmarks.bench_refused [--parts 297]      (FULL=1: also a block of seven minutes, and a window)

Everything runs in a network namespace of its own (``cc_pipeline_tests/lab.py``): TLS, the real host names, the default
rate of 5 requests a second. A harvest of so many index files is the measure; each figure has its own home and budget.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.report import FULL, Report, sized
from cc_pipeline.testing.mini_crawl.generate import ensure
from cc_pipeline.testing.mini_crawl.spec import TEST
from cc_pipeline_tests.frontmanners import CLOUDFRONT, Manners, Wave
from cc_pipeline_tests.lab import DATA, common_crawl_lab, why_no_lab

COMMAND = Path(sys.executable).with_name("cc-pipeline")
CRAWL = "CC-MAIN-2024-22"
SITE = "example.com"
#: Seconds of an outage, and requests before it.
MINUTE = 60.0
LATENCY = 0.1
#: Shares of lone 503s, and how much longer a harvest may take than without any.
CHANCES = ((0.05, 1.1), (0.10, 1.3), (0.20, 2.0))


@dataclass(frozen=True, slots=True)
class Course:
    """How a command went: its status, the seconds from its first request to its last, and the requests to the host."""

    status: int
    seconds: float
    sent: int
    refused: int
    message: str

    @property
    def refused_share(self) -> float:
        return self.refused / max(1, self.sent)


class Bench:
    """Runs commands in labs of their own, and reports."""

    def __init__(self, report: Report, folder: Path, bucket: Path) -> None:
        self._report, self._folder, self._bucket = report, folder, bucket
        self._count = 0

    def run(self, arguments: Sequence[str], manners: Manners) -> Course:
        """Runs a command in a new home, at a front with these manners."""
        self._count += 1
        folder = self._folder / f"lab-{self._count}"
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("CC_PIPELINE_", "DAGSTER_"))}
        environment = kept | {"CC_PIPELINE_HOME": str(folder / "home"), "NO_COLOR": "1", "NO_PROXY": "*"}
        with common_crawl_lab(self._bucket, folder, manners) as lab:
            ended = lab.run([COMMAND, *arguments], environment)
            hits = lab.hits(DATA)
        moments = [hit.at for hit in hits]
        refused = sum(hit.status in (403, 429, 503) for hit in hits)
        return Course(ended.returncode, max(moments) - min(moments), len(hits), refused, ended.stderr[-600:])

    def ended(self, name: str, course: Course, most_refused: float | None = 0.03) -> None:
        """Reports the status of a command, and the share of refused requests."""
        note = f"{course.seconds:.0f} s, {course.refused} of {course.sent} requests refused"
        figure = self._report.figure(f"{name}_status", course.status, None, 0, higher_is_better=False, note=note)
        if figure.met is False:
            print(course.message, file=sys.stderr)
        if most_refused is not None:
            self._report.figure(
                f"{name}_refused", course.refused_share, None, most_refused, higher_is_better=False, unit="of sent"
            )

    def slower(self, name: str, course: Course, plain: Course, most: float) -> None:
        """Reports the time of a command against the same without refusals."""
        times = course.seconds / plain.seconds
        note = f"{course.seconds:.0f} s against {plain.seconds:.0f} s"
        self._report.figure(f"{name}_time", times, None, most, higher_is_better=False, unit="x", note=note)


def main() -> None:
    """Measures and prints every figure; see the module's text."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--parts", type=int, default=sized(12, 297, 900), help="index files of the crawl")
    parts = parser.parse_args().parts
    report = Report("refused", {"index_files": parts, "latency": LATENCY})
    if reason := why_no_lab():
        raise SystemExit(reason)
    minute = sized(3.0, MINUTE)
    plain_front = replace(CLOUDFRONT, latency=LATENCY)
    harvest = ["index", "harvest", "-c", CRAWL]
    run = ["run", SITE, "-c", CRAWL, "--index", "zipnum"]
    look_up = ["lookup", SITE, "-c", CRAWL, "--index", "zipnum", "--count"]
    with tempfile.TemporaryDirectory(prefix="bench-refused-") as name:
        folder = Path(name)
        crawls = tuple(replace(crawl, parts=parts) if crawl.id == CRAWL else crawl for crawl in TEST.crawls)
        ensure(folder / "bucket", replace(TEST, pages=3 * parts, crawls=crawls))
        bench = Bench(report, folder, folder / "bucket")
        plain = bench.run(harvest, plain_front)
        bench.ended("harvest", plain)
        for share, most in CHANCES[: sized(1, 3)]:
            course = bench.run(harvest, replace(plain_front, lone_503=share))
            bench.ended(f"chance_{share:.0%}", course, None)
            bench.slower(f"chance_{share:.0%}", course, plain, most)
        course = bench.run(harvest, replace(plain_front, wave=Wave(8, minute)))
        bench.ended("minute_side_by_side", course)
        # these send few requests in all, so the share of refused ones says nothing
        course = bench.run(run, replace(plain_front, wave=Wave(0, minute)))
        bench.ended("minute_first_run", course, None)
        course = bench.run(look_up, replace(plain_front, wave=Wave(1, minute, key="*cluster.idx")))
        bench.ended("minute_lookup_in_zipnum", course, None)
        if FULL:
            block = Wave(8, 420.0, status=403)
            bench.ended("block_of_seven_minutes", bench.run([*harvest, "--wait"], replace(plain_front, wave=block)))
            window = replace(plain_front, most=400, window=300.0)
            bench.ended("window_of_400_in_300_s", bench.run([*harvest, "--wait"], window))
    report.write()


if __name__ == "__main__":
    main()
