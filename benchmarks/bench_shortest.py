"""``make bench-shortest``: what the shortest way to a domain's captures asks for, in requests, on a far bucket.

    python -m benchmarks.bench_shortest               a cluster.idx of 100,000 lines, a few minutes
    FULL=1 python -m benchmarks.bench_shortest        a million lines (110 MB), and the harvest is really run

The bucket has 900 index files a crawl and answers 80 ms late; the request budget is the default one. Every command is
the real one in a process of its own. Counted are the requests that the server saw, those for records apart.

Rivals: of a look-up, a client that knows nothing and bisects ``cluster.idx`` in blocks of 8 KiB, as pywb's reader of
ZipNum does (its length, the search, the lines, then the members, neighbours in one request), really run against the
same server. Of a run, the footers of the wanted subset: a harvest asks for one an index file.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from benchmarks.report import FULL, Report, sized
from benchmarks.shortest_bucket import CRAWLS, PROGRAM, environment_of, generate_bucket
from cc_pipeline.commoncrawl.paths import cluster_key
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline_tests.faultserver import FaultServerProcess, Hit

_LATENCY, _FILES = sized((0.0, 90), (0.08, 900))
_FIRST_GOAL, _SECOND_GOAL, _AGAIN_GOAL = 25, 15, 2
_BLOCK = 8192


@dataclass(frozen=True)
class Asked:
    """What one command asked for, and the seconds it took."""

    hits: list[Hit]
    seconds: float
    status: int

    @property
    def for_records(self) -> int:
        return sum(hit.key.endswith(".warc.gz") for hit in self.hits)

    @property
    def before_records(self) -> int:
        return len(self.hits) - self.for_records

    @property
    def note(self) -> str:
        kinds = {"footers": ".parquet", "cluster.idx": "cluster.idx", "members": ".gz", "lists": ""}
        found = dict.fromkeys(kinds, 0)
        for hit in self.hits:
            if not hit.key.endswith(".warc.gz"):
                name = (
                    "lists"
                    if hit.key.endswith(".paths.gz")
                    else next(k for k, e in kinds.items() if hit.key.endswith(e))
                )
                found[name] += 1
        parts = ", ".join(f"{count} {name}" for name, count in found.items() if count)
        return f"{parts or 'nothing'}; {self.for_records} for records; {self.seconds:.1f} s"


def main() -> None:
    """Runs the benchmark and writes ``benchmarks/results/shortest.json``."""
    lines = sized(2_000, 100_000, 1_000_000)
    report = Report("shortest", {"lines": lines, "index files": _FILES, "latency": _LATENCY})
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        truth = generate_bucket(folder / "bucket", lines=lines, files=_FILES)
        domains = truth.domains(CRAWLS[0])
        report.setting["cluster.idx"] = (folder / "bucket" / cluster_key(CRAWLS[0])).stat().st_size
        with FaultServerProcess(folder / "bucket", latency=_LATENCY, log=folder / "hits.log") as server:
            bench = Bench(server, folder, report)
            bench.look_up(domains)
            bench.run(domains, harvest=FULL)
    report.write()
    sys.exit(0 if report.all_met else 1)


@dataclass
class Bench:
    """A server that counts, a folder for homes, and where figures go."""

    server: FaultServerProcess
    folder: Path
    report: Report

    def look_up(self, domains: tuple[str, ...]) -> None:
        """Look-ups through ZipNum: a home's first, its second, the same again, and one in another crawl."""
        # neighbours of the first one would cost next to nothing
        domains = domains[::2]
        rivals = [self.rival(domain) for domain in domains[:3]]
        for name, domain, crawl, rival, goal in (
            ("lookup_first", domains[0], CRAWLS[0], rivals[0], _FIRST_GOAL),
            ("lookup_second", domains[1], CRAWLS[0], rivals[1], _SECOND_GOAL),
            ("lookup_again", domains[0], CRAWLS[0], rivals[0], None),
            ("lookup_other_crawl", domains[0], CRAWLS[1], rivals[0], _SECOND_GOAL),
            ("lookup_third", domains[2], CRAWLS[0], rivals[2], _SECOND_GOAL),
        )[: sized(2, 5)]:
            asked = self.command("lookup-home", "lookup", domain, "-c", crawl, "--via", "zipnum", "--format", "jsonl")
            self.tell(name, asked, rival, goal)
        # one first domain may be found by luck
        cold = [
            self.command(f"cold-{n}", "lookup", d, "-c", CRAWLS[0], "--via", "zipnum")
            for n, d in enumerate(domains[: sized(1, len(domains))])
        ]
        most = max(cold, key=lambda asked: asked.before_records)
        self.tell("lookup_first_worst", most, max(rivals), _FIRST_GOAL)

    def run(self, domains: tuple[str, ...], *, harvest: bool) -> None:
        """Runs in a fresh home: a domain, a second one, the first again."""
        domains, footers = domains[::2], _FILES // 3
        if harvest:
            asked = self.command("harvest-home", "harvest", "-c", CRAWLS[0])
            footers = asked.before_records
            self.report.figure("harvest", footers, unit="requests", higher_is_better=False, note=asked.note)
        for name, domain, goal in (
            ("run_first", domains[0], _FIRST_GOAL),
            ("run_second", domains[1], _SECOND_GOAL),
            ("run_again", domains[0], _AGAIN_GOAL),
        )[: sized(1, 3)]:
            self.tell(name, self.command("run-home", "run", "-c", "newest", "-d", domain), footers, goal)

    def tell(self, name: str, asked: Asked, rival: int, goal: int | None) -> None:
        if asked.status:
            raise RuntimeError(f"{name} ended with status {asked.status}: {(self.folder / 'said').read_text()[-2000:]}")
        self.report.figure(
            name, asked.before_records, rival, goal, unit="requests", higher_is_better=False, goal_on="value",
            note=asked.note,
        )  # fmt: skip

    def command(self, home: str, *arguments: str) -> Asked:
        """A command in a process and a home of its own, and what the server saw of it."""
        before = len(self.server.hits())
        environment = environment_of(SOURCE=self.server.url, HOME=self.folder / home)
        started = time.perf_counter()
        with (self.folder / "said").open("w") as said:
            status = subprocess.run(
                [str(PROGRAM), *arguments], env=environment, stdout=said, stderr=said, check=False
            ).returncode
        return Asked(self.server.hits()[before:], time.perf_counter() - started, status)

    def rival(self, domain: str) -> int:
        """The requests of a client that bisects in blocks, and reads the members where the lines are."""
        before = len(self.server.hits())
        url = self.server.url + cluster_key(CRAWLS[0])
        ranges = parse_target(domain).ranges
        first, last = ranges[0].start, ranges[-1].end
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")) as answer:
            size = int(answer.headers["Content-Length"])
        low, high = 0, size // _BLOCK
        while high - low > 1:
            middle = (low + high) // 2
            key = _read(url, middle * _BLOCK, _BLOCK).partition(b"\n")[2].partition(b" ")[0]
            low, high = (middle, high) if key < first else (low, middle)
        found, at, rest = [], low * _BLOCK, b""
        while at < size and (not found or last is None or found[-1].partition(b" ")[0] < last):
            data = rest + _read(url, at, min(_BLOCK, size - at))
            *whole, rest = data.split(b"\n")
            found += whole[1:] if at == low * _BLOCK and low else whole
            at += _BLOCK
        keys = [line.partition(b" ")[0] for line in found]
        start = max(0, sum(key < first for key in keys) - 1)
        members = [
            line.decode().split("\t") for line, key in zip(found, keys, strict=True) if last is None or key < last
        ]
        for shard, some in groupby(members[start:], key=lambda fields: fields[1]):
            places = [(int(fields[2]), int(fields[3])) for fields in some]
            _read(url.replace("cluster.idx", shard), places[0][0], sum(places[-1]) - places[0][0])
        return len(self.server.hits()) - before


def _read(url: str, offset: int, length: int) -> bytes:
    asked = urllib.request.Request(url, headers={"Range": f"bytes={offset}-{offset + length - 1}"})
    with urllib.request.urlopen(asked) as answer:
        data: bytes = answer.read()
    return data


if __name__ == "__main__":
    main()
