"""Fetching records politely fast: ours beside one GET at a time, 16 threads with ``requests``, and the bare client.

    python -m benchmarks.bench_records [--records 5000] [--latency 0.030]

A server process on loopback holds every answer back for the latency, so a round trip costs what it does over a
long line. All contenders ask for the same ranges. Records are real pages where the test corpus is there, else
generated text, cut to the sizes measured in Common Crawl (about 21 KB compressed, 96 KB inflated on average).
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import pyarrow as pa
import requests
from warcio.archiveiterator import ArchiveIterator

from benchmarks.report import Report, sized, spread
from cc_pipeline.archive.record import sha1_base32
from cc_pipeline.commoncrawl.surt import surt_key
from cc_pipeline.records.fetch import Order, Planned, fetch_records
from cc_pipeline.records.locations import LocationCollector
from cc_pipeline.records.range_plan import plan_ranges
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.records.verification import ExpectedRecord, verify_record
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.ranges import ByteRange, RangeBytes
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.corpus import CORPUS
from cc_pipeline_tests.faultserver import FaultServerProcess
from cc_pipeline_tests.records.planned import captures_table, html_record

CRAWL = "CC-MAIN-2024-22"
FILES = 50
#: Records lie this far apart, as those of one site do: nothing can be read in one piece.
APART = 600_000
LONGEST_PAGE = 120_000


def pages(count: int) -> Iterator[bytes]:
    """Page bodies of real sizes."""
    real = sorted((CORPUS / "html_text_metadata").rglob("*.html*")) if CORPUS.is_dir() else []
    bodies = [body[:LONGEST_PAGE] for body in map(_page, real) if len(body) > 2_000]
    draw = random.Random(7)
    if not bodies:
        words = [bytes(draw.choices(b"etaoinshrdlucmfw", k=draw.randint(2, 9))) for _ in range(4_000)]
        bodies = [b" ".join(draw.choices(words, k=min(20_000, int(draw.lognormvariate(8.6, 0.9))))) for _ in range(150)]
    for _ in range(count):
        yield draw.choice(bodies)


def _page(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def build(folder: Path, count: int) -> pa.Table:
    """Writes a bucket of ``count`` records in sparse files; returns their captures."""
    rows = []
    known: dict[bytes, bytes] = {}
    with ExitStack() as stack:
        outs = [stack.enter_context((folder / f"part-{n:05d}.warc.gz").open("wb")) for n in range(FILES)]
        for number, body in enumerate(pages(count)):
            url = f"https://example.com/{number % 7}"
            if body + url.encode() not in known:
                known[body + url.encode()] = html_record(url, body)
            member = known[body + url.encode()]
            out = outs[number % FILES]
            out.seek(number // FILES * APART)
            rows.append(
                {
                    "url": url,
                    "url_surtkey": surt_key(url),
                    "content_digest": sha1_base32(body),
                    "warc_filename": f"part-{number % FILES:05d}.warc.gz",
                    "warc_record_offset": out.tell(),
                    "warc_record_length": len(member),
                }
            )
            out.write(member)
    return captures_table(rows, CRAWL)


def places(captures: pa.Table) -> list[tuple[str, int, int]]:
    columns = ("warc_filename", "warc_record_offset", "warc_record_length")
    return list(zip(*(captures.column(name).to_pylist() for name in columns), strict=True))


def one_at_a_time(url: str, asked: Sequence[tuple[str, int, int]]) -> int:
    """What cdx_toolkit does: a session, one GET per record, warcio."""
    with requests.Session() as session:
        return sum(_get_and_parse(session, url, place) for place in asked)


def sixteen_threads(url: str, asked: Sequence[tuple[str, int, int]]) -> int:
    """What NeMo Curator's reader does: the same in 16 threads."""
    with requests.Session() as session, ThreadPoolExecutor(16) as pool:
        session.mount("http://", requests.adapters.HTTPAdapter(pool_connections=16, pool_maxsize=16))
        return sum(pool.map(lambda place: _get_and_parse(session, url, place), asked))


def _get_and_parse(session: requests.Session, url: str, place: tuple[str, int, int]) -> int:
    key, offset, length = place
    answer = session.get(url + key, headers={"Range": f"bytes={offset}-{offset + length - 1}"}, timeout=60)
    for record in ArchiveIterator(io.BytesIO(answer.content)):
        return len(record.content_stream().read()) > 0
    return 0


def bare_client(url: str, captures: pa.Table, concurrency: int, rate: float | None = None) -> int:
    """Our transport alone: the bytes arrive and are dropped."""
    with Transport(url, SourceOptions(concurrency=concurrency, rate=rate)) as transport:
        ranges = (ByteRange(planned.key, planned.offset, planned.length) for planned in plan_ranges(captures))
        return sum(isinstance(outcome, RangeBytes) for outcome in transport.read_many(ranges))


def ours(url: str, captures: pa.Table, concurrency: int, scratch: Path) -> int:
    """Everything: verified, stored, one row per capture."""
    lake = Path(tempfile.mkdtemp(dir=scratch))
    kept: list[pa.RecordBatch] = []
    try:
        with Transport(url, SourceOptions(concurrency=concurrency)) as transport, Transport(str(lake)) as place:
            wanted = LocationCollector()
            wanted.add(captures)
            result = fetch_records(
                Planned(captures.to_batches(), wanted.places()), Order(CRAWL, "bench"), transport,
                RecordStorage(place), keep=kept.append, scratch=lake,
            )  # fmt: skip
        return result.outcomes.get("fetched", 0)
    finally:
        shutil.rmtree(lake)


def per_second(work: Callable[[], int], expected: int, repeats: int) -> list[float]:
    return [expected / seconds for seconds, _ in _timed(work, expected, repeats)]


def _timed(work: Callable[[], int], expected: int, repeats: int) -> Iterator[tuple[float, float]]:
    """Seconds by the clock and by this process's processor time."""
    for _ in range(repeats):
        started, used = time.perf_counter(), time.process_time()
        done = work()
        if done != expected:
            raise SystemExit(f"{done} of {expected} records came through")
        yield time.perf_counter() - started, time.process_time() - used


def parse_rates(folder: Path, captures: pa.Table, repeats: int) -> tuple[list[float], list[float]]:
    """Records per second from range-fetched members: (ours, warcio), both checking the digests."""
    members = []
    for key, offset, length in places(captures)[:1_000]:
        with open(folder / key, "rb") as file:
            members.append((os.pread(file.fileno(), length, offset), key, offset, length))
    urls = captures.column("url").to_pylist()
    digests = captures.column("content_digest").to_pylist()

    def mine() -> int:
        good = 0
        for url, digest, (member, key, offset, length) in zip(urls, digests, members, strict=False):
            promise = ExpectedRecord("warc", key, offset, length, url, None, digest)
            good += verify_record(member, promise).digest_check == "match"
        return good

    def theirs() -> int:
        good = 0
        for member, *_ in members:
            for record in ArchiveIterator(io.BytesIO(member), check_digests=True):
                record.content_stream().read()
                good += record.digest_checker.passed is True
        return good

    return per_second(mine, len(members), repeats), per_second(theirs, len(members), repeats)


def main() -> None:
    """Measures and prints every figure; see the module's text."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--records", type=int, default=sized(60, 5_000))
    parser.add_argument("--latency", type=float, default=0.030)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=sized(1, 3))
    given = parser.parse_args()
    count, repeats = given.records, given.repeats
    report = Report("records", {"records": count, "latency": given.latency, "concurrency": given.concurrency})
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-records-")))
        bucket = folder / "bucket"
        bucket.mkdir()
        captures = build(bucket, count)
        sizes = captures.column("warc_record_length").to_pylist()
        report.setting["mean_record_bytes"] = sum(sizes) // len(sizes)
        server = stack.enter_context(FaultServerProcess(bucket, latency=given.latency))
        asked = places(captures)
        few = asked[: max(sized(10, 100), count // 25)]
        serial = per_second(lambda: one_at_a_time(server.url, few), len(few), repeats)
        threads = per_second(lambda: sixteen_threads(server.url, asked), count, 1)
        bare_times, times = [], []
        for _ in range(repeats):  # side by side, so that both see the same machine
            bare_times += _timed(lambda: bare_client(server.url, captures, given.concurrency), count, 1)
            times += _timed(lambda: ours(server.url, captures, given.concurrency, folder), count, 1)
        bare, whole = ([count / seconds for seconds, _ in runs] for runs in (bare_times, times))
        best = median(whole)
        bare_used, used = (median(used for _, used in runs) / count * 1e6 for runs in (bare_times, times))
        report.figure(
            "fetch_processor_vs_bare_client", used, bare_used, 1 / 1.65, higher_is_better=False, unit="us/record"
        )
        report.figure("fetch_vs_one_get_at_a_time", best, median(serial), 20, unit="records/s", note=spread(whole))
        report.figure("fetch_vs_16_threads_requests", best, median(threads), 3, unit="records/s")
        report.figure("fetch_vs_bare_client", best, median(bare), 0.8, unit="records/s", note=spread(bare))
        mine, theirs = parse_rates(bucket, captures, repeats)
        report.figure("parse_vs_warcio", max(mine), max(theirs), 2, unit="records/s")
    report.write()


if __name__ == "__main__":
    main()
