"""``make bench-refused``: a source answers 403 to everything for a while, in the middle of a harvest and of a fetch.

    python -m benchmarks.bench_refused        windows of 3, 30 and 90 s, some ten minutes

The bucket has 900 index files a crawl and answers 80 ms late. Every command is the real one in a process of its own,
as a script runs it: nobody says that it is to wait. Counted are the refusals, which are to be no more than the requests
under way when the window begins and the probes in it, and good answers that were asked for again. Then three processes
share a rate by leases, of which one is killed (``leased_rate.py``).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.leased_rate import tell_leased
from benchmarks.report import Report, sized
from benchmarks.shortest_bucket import CRAWLS, PROGRAM, environment_of, generate_bucket
from cc_pipeline.commoncrawl.crawls import SUBSETS
from cc_pipeline.transport.refusals import PROBES, RefusalPolicy
from cc_pipeline_tests.faultserver import FaultServer, Hit, Rule

_LATENCY, _FILES = sized((0.02, 90), (0.08, 900))
_WINDOWS = sized((1.0,), (3.0, 30.0, 90.0))
#: The same for all, so that each command goes on for long enough; the machine's own is without a limit.
_RATE, _CONCURRENCY = 50.0, 8


@dataclass(frozen=True)
class Run:
    """What a command asked for while it went on, and how it ended."""

    hits: list[Hit]
    status: int
    seconds: float

    @property
    def refused(self) -> list[Hit]:
        return [hit for hit in self.hits if hit.status == 403]

    @property
    def again(self) -> int:
        """Good answers to what had come before."""
        good = Counter((hit.method, hit.key, hit.range) for hit in self.hits if hit.status in (200, 206))
        return sum(good.values()) - len(good)


def main() -> None:
    """Runs the benchmark and writes ``benchmarks/results/refused.json``."""
    setting = {"index files": _FILES, "latency": _LATENCY, "rate": _RATE, "concurrency": _CONCURRENCY, "probes": PROBES}
    report = Report("refused", setting)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        truth = generate_bucket(folder / "bucket", lines=sized(100, 1_000), files=_FILES)
        subsets = [word for subset in SUBSETS for word in ("--subset", subset)]
        domains = [word for domain in truth.domains(CRAWLS[0]) for word in ("--domain", domain)]
        with FaultServer(folder / "bucket", latency=_LATENCY) as server:
            for window in _WINDOWS:
                home = folder / f"home-{window:g}"
                harvest = command(server, home, ".parquet", _FILES // 2, window, "harvest", "-c", CRAWLS[0], *subsets)
                tell(report, "harvest", window, harvest)
                fetch = command(server, home, ".warc.gz", 5, window, "run", "-c", CRAWLS[0], *subsets, *domains)
                tell(report, "fetch", window, fetch)
    tell_leased(report)
    report.write()
    sys.exit(0 if report.all_met else 1)


def tell(report: Report, what: str, window: float, run: Run) -> None:
    """The figures of one run. It ends with 0 by itself, or the benchmark with an error."""
    if run.status or not run.refused:
        raise RuntimeError(f"{what} ended with status {run.status} after {len(run.refused)} refusals")
    probes = probes_in(window)
    note = f"status {run.status}; {len(run.hits)} requests in {run.seconds:.0f} s; {probes} probes in the window"
    report.figure(
        f"{what}_{window:g}s_refused", len(run.refused), None, _CONCURRENCY + probes, unit="requests",
        higher_is_better=False, note=note,
    )  # fmt: skip
    report.figure(f"{what}_{window:g}s_asked_again", run.again, None, 0, unit="requests", higher_is_better=False)


def probes_in(window: float) -> int:
    """Probes that are due while a window goes on."""
    policy, at, count = RefusalPolicy(), 0.0, 0
    while (at := at + policy.gap(count)) < window:
        count += 1
    return count


def command(server: FaultServer, home: Path, ending: str, after: int, window: float, *arguments: str) -> Run:
    """A command in a process of its own; the server refuses all for ``window`` seconds when it has given ``after``
    objects whose keys have the ``ending``."""
    environment = environment_of(SOURCE=server.url, HOME=home, RATE=_RATE, CONCURRENCY=_CONCURRENCY)
    before, started = len(server.hits), time.perf_counter()
    with Path(f"{home}.said").open("w") as said, subprocess.Popen(
        [str(PROGRAM), *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said
    ) as process:  # fmt: skip
        while process.poll() is None and sum(hit.key.endswith(ending) for hit in server.hits[before:]) < after:
            time.sleep(0.01)
        server.set_rules([Rule("403", times=None)])
        over = threading.Timer(window, server.set_rules, [[]])
        over.start()
        status = process.wait()
        over.join()
    if status:
        print(Path(f"{home}.said").read_text()[-3000:], file=sys.stderr)
    return Run(server.hits[before:], status, time.perf_counter() - started)


if __name__ == "__main__":
    main()
