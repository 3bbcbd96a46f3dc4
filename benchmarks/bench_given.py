"""Captures that a person names one by one: from a query over the index through to pages.

    python -m benchmarks.bench_given                 100,000 places and 10,000 URLs with times: some ten minutes
    python -m benchmarks.bench_given rate memory     some of its parts

Half of the places are of a crawl whose index has odd names of files, and wrong rows stand among them. The run is killed
and started again. The rival in ``rate`` is the bare client: the same ranges, asked for by the same transport, whose
bytes are dropped; both take turns, and each record lies far from the next, so that all need a request of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

import duckdb
import pyarrow as pa

from benchmarks import large_target
from benchmarks.bench_records import bare_client
from benchmarks.report import Report, sized, spread
from benchmarks.shortest_bucket import PROGRAM, environment_of
from cc_pipeline.records.range_plan import plan_ranges
from cc_pipeline.settings import load_settings
from cc_pipeline.workspace.workspace import open_workspace
from cc_pipeline_tests.faultserver import FaultServerProcess, Rule

PARTS: Final = ("way", "urls", "rate", "memory")
#: Places of each of the two crawls; URLs with times; places whose records are fetched for the rate; rows of a file.
_PLACES = sized(300, 50_000)
_URLS = sized(200, 10_000)
_RATED, _PACED = sized((200, 50), (10_000, 3_000))
_ROWS = sized((2_000, 2_000), (100_000, 1_000_000))
#: Rows among them that name nothing: of each, how many.
_WRONG = sized(5, 50)
#: Captures of each crawl in the bucket.
_BUCKET = sized(2_000, 50_000)
#: Requests that get no answer the first time, so that a run can be killed while it waits.
_STALLED = 10
_APART = 600_000
_CONCURRENCY = 64
_BOTH = (large_target.CRAWL, large_target.OLD)


def query(bucket: Path, out: Path, columns: str, crawls: Sequence[str] = _BOTH, *, each: int) -> None:
    """``each`` rows of the index of each crawl, drawn evenly, as a person's query gives them."""
    with duckdb.connect() as connection:
        drawn = [
            f"(SELECT {columns}, '{crawl}' AS dump FROM read_parquet('{bucket}/cc-index/table/cc-main/warc/crawl="
            f"{crawl}/*/*.parquet', hive_partitioning=false) ORDER BY hash(warc_filename, warc_record_offset) "
            f"LIMIT {each})"
            for crawl in crawls
        ]
        connection.execute(f"COPY ({' UNION ALL '.join(drawn)}) TO '{out}' (FORMAT parquet)")


def with_wrong(rows: Path) -> int:
    """Adds rows that name nothing to a file of places; how many only the source can tell of."""
    with duckdb.connect() as connection:
        wrong = [
            f"SELECT * REPLACE ({replaced}) FROM (SELECT * FROM given LIMIT {_WRONG} OFFSET {number * _WRONG})"
            for number, replaced in enumerate(
                (
                    "warc_record_offset + 7 AS warc_record_offset",
                    "replace(warc_filename, '.warc.gz', '9.warc.gz') AS warc_filename",
                    "-1 AS warc_record_offset",
                    "'nonsense' AS warc_filename",
                )
            )
        ]
        connection.execute(f"CREATE TABLE given AS FROM '{rows}'")
        connection.execute(f"COPY (FROM given UNION ALL {' UNION ALL '.join(wrong)}) TO '{rows}' (FORMAT parquet)")
    return 2 * _WRONG


def command(home: Path, source: str, *words: str) -> tuple[subprocess.Popen[str], float]:
    """A started command, and when."""
    environment = environment_of(HOME=home, SOURCE=source, CONCURRENCY=_CONCURRENCY, MAX_REQUESTS=10_000_000)
    process = subprocess.Popen(
        [PROGRAM, *words, "--yes"], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return process, time.perf_counter()


def ended(started: tuple[subprocess.Popen[str], float], status: int) -> tuple[float, str]:
    """Seconds of a command, and what it said. Raises ``SystemExit`` for another status."""
    process, begun = started
    said, _ = process.communicate()
    if process.returncode != status:
        raise SystemExit(f"{process.args} ended with {process.returncode}\n{said[-3_000:]}")
    return time.perf_counter() - begun, said


def bench_way(report: Report, folder: Path, bucket: Path) -> None:
    """All places through to pages, with a kill in between."""
    rows, home, log = folder / "places.parquet", folder / "home", folder / "hits"
    query(bucket, rows, "url, fetch_time, warc_filename, warc_record_offset, warc_record_length", each=_PLACES)
    lost = with_wrong(rows)
    stall = Rule("stall", key=f"*/{large_target.CRAWL}/*.warc.gz", share=_STALLED / _PLACES)
    with FaultServerProcess(bucket, log=log, rules=[stall]) as server:
        seconds, said = ended(command(home, server.url, "add-captures", str(rows)), 3)
        wanted = 2 * _PLACES + lost
        named = said.count(": row ")
        report.figure("added_rows", wanted / seconds, unit="rows/s", note=f"{seconds:.1f} s")
        if f"{wanted:,} captures in 2 crawls" not in said or f"{2 * _WRONG:,} rows of" not in said or not named:
            raise SystemExit(f"add-captures said\n{said[-2_000:]}")
        words = ("run", *(word for crawl in _BOTH for word in ("-c", crawl)), "-d", "captures:places")
        process, begun = command(home, server.url, *words)
        while _journaled(home) < _PLACES * 0.4:
            if process.poll() is not None:
                raise SystemExit(f"it ended before it was killed\n{process.communicate()[0][-3_000:]}")
            time.sleep(0.1)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        killed = time.perf_counter() - begun
        seconds, said = ended(command(home, server.url, *words), 0)
        hits = Counter((hit.key, hit.range) for hit in server.hits() if "/warc/" in hit.key)
    with duckdb.connect(str(home / "cc.duckdb"), read_only=True) as connection:
        outcomes = dict(connection.execute("SELECT outcome, count(*) FROM ledger GROUP BY ALL").fetchall())
        [(pages,)] = connection.execute("SELECT count(*) FROM page_text WHERE title LIKE 'Page %'").fetchall()
    report.figure("pages_of_places", pages, None, 2 * _PLACES, unit="pages", note=f"{outcomes}")
    report.figure("whole_way", wanted / (killed + seconds), unit="captures/s", note=f"{killed:.0f} + {seconds:.0f} s")
    twice = sum(count - 1 for (_, _), count in hits.items())
    note = f"of {len(hits):,}; what was in flight at the kill, and the second asking for what is missing"
    report.figure("asked_twice", twice, None, 4 * _CONCURRENCY + 4 * lost, higher_is_better=False, note=note)


def _journaled(home: Path) -> int:
    """Records that are stored and in no table yet."""
    return sum(path.read_bytes().count(b"\n") for path in home.rglob("*.rows.jsonl"))


def bench_urls(report: Report, folder: Path, bucket: Path) -> None:
    """URLs with times, of a named crawl or of none, are located through the index."""
    rows = folder / "urls.parquet"
    query(bucket, rows, "url, fetch_time AS date", each=_URLS // 2)
    with duckdb.connect() as connection:
        given = f"SELECT url, date, if(hash(url, date) % 2 = 0, dump, NULL) AS dump FROM '{rows}'"
        wrong = f"SELECT url || '#' || i || 'x', date + INTERVAL 3 YEARS, NULL FROM '{rows}', range({_WRONG}) r(i)"
        connection.execute(f"CREATE TABLE given AS {given} UNION ALL ({wrong} LIMIT {_WRONG})")
        connection.execute(f"COPY given TO '{rows}' (FORMAT parquet)")
    with FaultServerProcess(bucket) as server:
        started = command(folder / "urls-home", server.url, "add-captures", str(rows), "--harvest")
        seconds, said = ended(started, 3)
    if f"{_WRONG:,} rows of" not in said or f"captures:urls: {_URLS:,} captures in 2 crawls" not in said:
        raise SystemExit(f"add-captures said\n{said[-2_000:]}")
    report.figure("located_urls", _URLS / seconds, unit="URLs/s", note=f"{seconds:.1f} s with harvests of both crawls")


def bench_rate(report: Report, folder: Path, bucket: Path) -> None:
    """Records a second of the whole fetch, beside those of the bare client: at the highest rates that Common Crawl's
    web host and bucket are asked at, and as fast as both go."""
    for name, rate, count in (
        ("at_public_rate", 10.0, _PACED // 8), ("at_bucket_rate", 100.0, _PACED), ("unbounded", None, _RATED)
    ):  # fmt: skip
        rows = folder / f"rated_{name}.parquet"
        columns = "url, fetch_time, content_digest, warc_filename, warc_record_offset, warc_record_length"
        query(bucket, rows, columns, large_target.CRAWL.split(), each=count)
        rates: dict[str, list[float]] = {"ours": [], "bare": []}
        used: dict[str, list[float]] = {"ours": [], "bare": []}
        with FaultServerProcess(bucket, latency=0.030) as server:
            for number in range(sized(1, 3)):
                home = folder / f"rate-{number}"
                fetched = _module(server.url, home, rows, "add", "locate", "fetch", rate=rate)["fetch"]
                captures = _captures(server.url, home)
                ranges = sum(1 for _ in plan_ranges(captures))
                begun, own = time.perf_counter(), time.process_time()
                if bare_client(server.url, captures, _CONCURRENCY, rate) != ranges:
                    raise SystemExit("not all ranges came")
                rates["bare"].append(count / (time.perf_counter() - begun))
                used["bare"].append(time.process_time() - own)
                rates["ours"].append(count / fetched["s"])
                used["ours"].append(fetched["cpu_s"])
                shutil.rmtree(home)
        cost = {one: median(seconds) for one, seconds in used.items()}
        note = f"{spread(rates['ours'])}; {ranges:,} requests; processor {cost['ours']:.2f} and {cost['bare']:.2f} s"
        report.figure(f"fetched_{name}", median(rates["ours"]), median(rates["bare"]), 0.9, unit="/s", note=note)


def _captures(source: str, home: Path) -> pa.Table:
    with open_workspace(load_settings({}, source=source, home=str(home))) as workspace:
        captures = workspace.lake.read("captures")
    return captures.sort_by([("warc_filename", "ascending"), ("warc_record_offset", "ascending")])


def _module(source: str, home: Path, rows: Path, *steps: str, rate: float | None = None) -> dict[str, dict[str, float]]:
    """What steps in a process of their own cost."""
    words = [sys.executable, "-m", "benchmarks.large_target", "run", source, "--home", home, "--rows", rows]
    words += ["--concurrency", _CONCURRENCY, *(["--rate", rate] if rate else []), "--steps", *steps]
    done = subprocess.run([*map(str, words)], stdout=subprocess.PIPE, env=environment_of(), check=True)
    found: dict[str, dict[str, float]] = json.loads(done.stdout)
    return found


def bench_memory(report: Report, folder: Path, bucket: Path) -> None:
    """What a file of many rows takes to add and locate, beside one of a tenth."""
    del bucket
    peaks: dict[str, list[float]] = {"add": [], "locate": []}
    for count in dict.fromkeys(_ROWS):
        large = folder / f"bucket-{count}"
        large_target.make(large, count)
        rows = folder / f"rows-{count}.parquet"
        query(large, rows, "url, warc_filename, warc_record_offset", large_target.CRAWL.split(), each=count)
        found = _module(str(large), folder / f"home-{count}", rows, "add", "locate")
        for step, cost in found.items():
            peaks[step].append(cost["own_anonymous_mb"])
            note = f"{count:,} rows; {cost['cpu_s']} s of processor time"
            report.figure(f"{step}_{count}_peak", peaks[step][-1], higher_is_better=False, unit="MB", note=note)
        shutil.rmtree(large)
        shutil.rmtree(folder / f"home-{count}")
    for step, told in peaks.items():
        growth = told[-1] / told[0]
        report.figure(f"{step}_memory_growth", growth, None, 2, higher_is_better=False, note="ten times the rows")


def main() -> None:
    """Runs all parts, or those that are named; see the module's text."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    chosen = parser.parse_args().parts or PARTS
    report = Report("given", {"places": 2 * _PLACES, "urls": _URLS, "rated": _RATED, "rows": _ROWS[-1]})
    with tempfile.TemporaryDirectory(prefix="bench-given-") as scratch:
        folder = Path(scratch)
        bucket = folder / "bucket"
        if {*chosen} - {"memory"}:
            large_target.make(bucket, _BUCKET, old=True, apart=_APART)
        for part in chosen:
            globals()[f"bench_{part}"](report, folder, bucket)
    report.write()


if __name__ == "__main__":
    main()
