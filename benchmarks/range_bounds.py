"""How long a range may be, and how much between two records is read rather than asked for anew: what a fetch takes of
the clock, of the processor and of memory, by those two bounds.

    python -m benchmarks.range_bounds [--megabytes 512] [--server URL --bucket FOLDER]

As over HTTPS: 80 ms until an answer begins, a line of 1 Gbit/s for all, 10 requests a second, 8 at a time. As in
us-east-1: 30 ms, no bound of the line, 100 and 128. With ``--server`` a server that serves ``--bucket`` (behind a slow
link, say) takes the place of the first.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bench_records import CRAWL, pages
from benchmarks.report import sized
from cc_pipeline.archive.record import sha1_base32
from cc_pipeline.records.fetch import Order, Planned, fetch_records
from cc_pipeline.records.places import PlacesFound
from cc_pipeline.records.range_plan import Coalescing, RecordOptions
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.place import PlaceOptions
from cc_pipeline_tests.faultserver import FaultServerProcess
from cc_pipeline_tests.peak import own_peak
from cc_pipeline_tests.records.planned import captures_table, html_record

#: Latency in seconds, bits a second of the line, requests a second, requests at the same time.
_KINDS = {"https": (0.08, 1e9, 10.0, 8), "bucket": (0.03, None, 100.0, 128)}
_BETWEEN = 1_000
_MIB = 1 << 20
#: Share of captures that is wanted, and the bounds tried with it: bytes of a range, bytes between two records.
_TRIED = [(1.0, span * _MIB, 256 << 10) for span in sized((1, 8), (1, 8, 32, 64, 128))]
_TRIED += [(0.1, 64 * _MIB, gap << 10) for gap in sized((256,), (0, 128, 256, 512, 1_024, 4_096))]


def build(folder: Path, size: int) -> pa.Table:
    """Writes files with records one behind the other, as a crawl has them; returns their captures."""
    members = [(body, html_record("https://example.com/", body)) for body in islice(pages(400), 400)]
    draw, rows, files = random.Random(2), [], 4
    for number in range(files):
        name = f"part-{number}.warc.gz"
        with (folder / name).open("wb") as out:
            while out.tell() < size // files:
                body, member = draw.choice(members)
                place = {"warc_record_offset": out.tell(), "warc_record_length": len(member)}
                known = {"url": "https://example.com/", "content_digest": sha1_base32(body), "warc_filename": name}
                rows.append(known | place)
                out.write(member + bytes(_BETWEEN))
    return captures_table(rows, CRAWL)


def one(url: str, table: Path, kind: str, share: float, span: int, gap: int) -> None:
    """One fetch in this process; prints what it took."""
    captures = pq.read_table(table)
    if share < 1:
        draw = random.Random(5)
        captures = captures.take(sorted(draw.sample(range(captures.num_rows), round(share * captures.num_rows))))
    _, _, rate, concurrency = _KINDS[kind]
    wanted = PlacesFound()
    wanted.add(captures)
    options = RecordOptions(coalescing=Coalescing(gap, span))
    with (
        tempfile.TemporaryDirectory() as lake,
        Transport(url, PlaceOptions(rate=rate, concurrency=concurrency)) as transport,
        Transport(lake) as place,
    ):
        begun, used = time.perf_counter(), time.process_time()
        result = fetch_records(
            Planned(captures.to_batches(), wanted.places()), Order(CRAWL, "bench", options=options), transport,
            RecordStorage(place), keep=lambda batch: None, scratch=Path(lake),
        )  # fmt: skip
        took, used = time.perf_counter() - begun, time.process_time() - used
    if result.outcomes != {"fetched": captures.num_rows}:
        raise SystemExit(f"not all came through: {result.outcomes}")
    told = {"requests": result.requests, "MB": result.bytes / 1e6, "seconds": took, "processor": used}
    print(json.dumps(told | {"peak MB": own_peak() / 1e3, "captures": captures.num_rows}))


def main() -> None:
    """Measures and prints every figure; see the module's text."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--megabytes", type=int, default=sized(24, 512))
    parser.add_argument("--server")
    parser.add_argument("--bucket", type=Path)
    parser.add_argument("--one", nargs=6)
    given = parser.parse_args()
    if given.one:
        url, table, kind, *bounds = given.one
        return one(url, Path(table), kind, float(bounds[0]), int(bounds[1]), int(bounds[2]))
    print(
        "| as over | of captures | a range at most | between | requests | MB read | seconds | of the processor | peak |"
    )
    print(f"|{' --- |' * 9}")
    with ExitStack() as stack:
        bucket = given.bucket or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="range-bounds-")))
        captures = build(bucket, given.megabytes * 10**6)
        pq.write_table(captures.drop_columns(["extra_columns"]), table := bucket / "captures.parquet")
        for kind, (latency, line, *_) in _KINDS.items():
            with FaultServerProcess(bucket, latency=latency, bandwidth=line) as server:
                url = given.server if given.server and kind == "https" else server.url
                for share, span, gap in _TRIED:
                    command = [sys.executable, "-m", "benchmarks.range_bounds", "--one", url, str(table), kind]
                    command += [str(share), str(span), str(gap)]
                    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
                    told = json.loads(done.stdout)
                    print(
                        f"| {kind} | {share:.0%} of {told['captures'] / share:,.0f} | {span >> 20} MiB "
                        f"| {gap >> 10} KiB | {told['requests']:,} | {told['MB']:,.0f} | {told['seconds']:.1f} s "
                        f"| {told['processor']:.1f} s | {told['peak MB']:.0f} MB |",
                        flush=True,
                    )  # fmt: skip
    return None


if __name__ == "__main__":
    main()
