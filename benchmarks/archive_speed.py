"""Records read per second, beside warcio and FastWARC, from range-fetched gzip members.

``read_record`` always inflates, checks the member, splits both headers and computes the payload's sha1; so the
like-for-like rival is warcio with its digest check on. The others are printed to be fair. Rates are of CPU
seconds of one core, the best of several rounds, because other work may share the machine.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastwarc.warc import ArchiveIterator as FastIterator
from warcio.archiveiterator import ArchiveIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from benchmarks.report import Report
from cc_pipeline.archive import warc
from cc_pipeline.archive.sequencefile import SequencePair, iter_pairs
from cc_pipeline.archive.sequencewriter import SequenceFileWriter

WORDS = [
    f"{first}{second}"
    for first in ("br", "cl", "st", "pr", "m", "n", "")
    for second in ("ot", "ane", "ing", "ulo", "e")
]


def pages(count: int, mean: int = 70_000, seed: int = 1) -> list[bytes]:
    """Gzip members of ``count`` responses with HTML of about ``mean`` bytes, compressible like real pages."""
    chance = random.Random(seed)
    members = []
    fields = [("Content-Type", "text/html; charset=utf-8"), ("X-Crawler-Content-Encoding", "gzip")]
    fields += [(f"X-Header-{number}", "value " * 4) for number in range(9)]
    for number in range(count):
        size = int(chance.expovariate(1 / mean)) + 500
        words = chance.choices(WORDS, k=size // 9)
        body = "".join(f'<p class="c{place % 17}">{word} {place:x}</p>' for place, word in enumerate(words))
        stream = io.BytesIO()
        http = StatusAndHeaders("200 OK", fields, protocol="HTTP/1.1")
        writer = WARCWriter(stream)
        payload = io.BytesIO(body.encode()[:size])
        url = f"http://www.example.com/{number}"
        writer.write_record(writer.create_warc_record(url, "response", payload=payload, http_headers=http))
        members.append(stream.getvalue())
    return members


def ours(members: Sequence[bytes]) -> None:
    for member in members:
        warc.read_record(member, "bench", 0)


def with_warcio(members: Sequence[bytes], check: bool, digest: bool) -> None:
    for member in members:
        for record in ArchiveIterator(io.BytesIO(member), check_digests=check):
            body = record.content_stream().read()
            record.http_headers.get_statuscode()
            if digest:
                hashlib.sha1(body, usedforsecurity=False).digest()


def with_fastwarc(members: Sequence[bytes]) -> None:
    for member in members:
        for record in FastIterator(io.BytesIO(member), parse_http=True):
            body = record.reader.read()
            hashlib.sha1(body, usedforsecurity=False).digest()
            list(record.headers)
            list(record.http_headers)


def rate(work: Callable[[], Any], count: int, rounds: int) -> float:
    """Units of work per CPU second of this process, the best of ``rounds``."""
    best = float("inf")
    for _ in range(rounds):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return count / best


def member_figures(report: Report, members: Sequence[bytes], rounds: int) -> None:
    """Adds the figures for one record at a time and for a whole file to ``report``."""
    count = len(members)
    mine = rate(lambda: ours(members), count, rounds)
    rivals = {
        "warcio_verified": (lambda: with_warcio(members, True, False), 2.0),
        "warcio_with_sha1": (lambda: with_warcio(members, False, True), None),
        "warcio_unverified": (lambda: with_warcio(members, False, False), None),
        "fastwarc_with_sha1": (lambda: with_fastwarc(members), None),
    }
    for name, (work, goal) in rivals.items():
        report.figure(f"members_vs_{name}", mine, rate(work, count, rounds), goal, unit="records/s")
    whole = b"".join(members)
    file = rate(lambda: deque(warc.iter_records(whole, "bench"), maxlen=0), count, rounds)
    rival = rate(lambda: with_warcio([whole], True, False), count, rounds)
    report.figure("whole_file_vs_warcio_verified", file, rival, unit="records/s")
    halves = (members[: count // 2], members[count // 2 :])
    started = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(ours, halves))
    both = count / (time.perf_counter() - started)
    started = time.perf_counter()
    ours(members)
    report.figure(
        "two_threads_vs_one", both, count / (time.perf_counter() - started), unit="records/s", note="wall time"
    )


def sequence_figures(report: Report, members: Sequence[bytes], rounds: int) -> None:
    """Adds what writing and reading 2012-like SequenceFiles costs."""
    rows = [
        (f"http://www.example.com/{number}", gzip.decompress(member).decode("latin-1"))
        for number, member in enumerate(members)
    ]
    megabytes = sum(len(value) for _, value in rows) / 1e6
    stream = io.BytesIO()

    def write() -> None:
        stream.seek(0)
        stream.truncate()
        with SequenceFileWriter(stream, "block", "gzip", seed="bench") as writer:
            for key, value in rows:
                writer.append(key, value)

    def read() -> None:
        if sum(isinstance(one, SequencePair) for one in iter_pairs(stream.getvalue(), "bench")) != len(rows):
            raise SystemExit("a SequenceFile did not come back whole")

    report.figure("sequencefile_write_block_gzip", rate(write, 1, rounds) * megabytes, unit="MB/s")
    report.figure("sequencefile_read_block_gzip", rate(read, 1, rounds) * megabytes, unit="MB/s")


def main() -> None:
    """Prints every figure and writes ``benchmarks/results/archive.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    members = pages(given.records)
    mean = sum(map(len, members)) // len(members)
    report = Report("archive", {"records": given.records, "mean_member_bytes": mean, "rounds": given.rounds})
    member_figures(report, members, given.rounds)
    sequence_figures(report, members, 3)
    report.write()


if __name__ == "__main__":
    main()
