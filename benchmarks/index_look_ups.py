"""What a lookup reads and how long it takes, beside what others read; a part of ``bench_index``.

Files of real size are generated (2 GB, about two minutes). Every reader runs in a process of its own against one HTTP
server that counts requests and bytes, over the same link: ``LATENCY`` before each answer and ``BANDWIDTH`` for all
answers together. Times are of the query alone, after a warm-up on a small file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from benchmarks.index_files import generate_index_file
from benchmarks.index_readers import (
    BUCKET,
    COLUMNS,
    CRAWL,
    DOMAIN,
    HIGH,
    LOW,
    OLD_CRAWL,
    PORTS_HIGH,
    PORTS_LOW,
    READERS,
    WARM,
    index_path,
)
from benchmarks.report import Report, sized
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.index.catalog.from_footers import crawl_tables
from cc_pipeline.index.footers.harvest import harvest_crawl
from cc_pipeline.index.footers.store import FooterStore
from cc_pipeline.index.parquet.locator import ParquetLocator
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.faultserver import FaultServerProcess
from cc_pipeline_tests.index.catalog_files import write_catalog_rows
from cc_pipeline_tests.index.parquet.file_finder import FileFinder

#: Rows of the file of real size, and index files of its crawl.
ROWS = sized(20_000, 3_400_000)
PARTS = sized(2, 12)
#: Seconds before each answer, and bits a second of the server's link.
LATENCY = 0.03
BANDWIDTH = 1e9
REPEATS = sized(1, 3)
#: Rows of the files that stand beside the one of real size.
_FEW = sized(2_000, 20_000)


@dataclass(frozen=True)
class Measured:
    """One reader's answer: rows, what the server counted, and seconds of the query."""

    rows: int
    requests: int
    bytes: int
    seconds: float


@contextmanager
def serving(root: Path) -> Iterator[FaultServerProcess]:
    """The counting server of the tests in a process of its own, over the link."""
    log = root / "hits.log"
    log.unlink(missing_ok=True)
    with FaultServerProcess(root, latency=LATENCY, log=log, bandwidth=BANDWIDTH) as server:
        yield server


def counted(server: FaultServerProcess) -> tuple[int, int]:
    """Requests that were answered, and bytes of their bodies."""
    hits = server.hits()
    return len(hits), sum(hit.body_bytes for hit in hits if hit.method != "HEAD")


def measure(name: str, server: FaultServerProcess, paths: Sequence[str], home: Path) -> Measured | None:
    """One query by one reader in a fresh process; ``None`` where the reader is not installed."""
    command = [sys.executable, "-m", "benchmarks.index_readers", name, server.url, str(home), *paths]
    root = Path(__file__).resolve().parents[1]
    environment = os.environ | {"PYTHONPATH": str(root)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        if process.stdout.readline().strip() != "warm":
            print(f"{name} is not there: {process.stderr.read().strip().splitlines()[-1:]}", file=sys.stderr)
            return None
        before = counted(server)
        process.stdin.write("go\n")
        process.stdin.flush()
        answer: dict[str, float] = json.loads(process.stdout.readline())
    after = counted(server)
    return Measured(int(answer["rows"]), after[0] - before[0], after[1] - before[1], answer["seconds"])


def generated(work: Path, rows: int, parts: int) -> None:
    """The bucket: one file of real size among small ones, an old file with overlapping row groups, one to warm up."""

    bucket = work / BUCKET
    if (work / "whole").exists():
        return
    generate_index_file(bucket / index_path(CRAWL, 0), rows=rows, row_group_rows=rows // 2)
    for part in range(1, parts):
        _other_keys(work / "other.parquet", bucket / index_path(CRAWL, part), part)
    generate_index_file(bucket / WARM, rows=_FEW, row_group_rows=_FEW, domain_name="yonder", seed=99)
    generate_index_file(work / "sorted.parquet", rows=sized(10_000, 500_000), row_group_rows=500_000, crawl=OLD_CRAWL)
    _overlapping(work / "sorted.parquet", bucket / index_path(OLD_CRAWL, 0))
    (work / "whole").write_text("")


def _other_keys(scratch: Path, path: Path, part: int) -> None:
    """A small part of other top-level domains: parts of one crawl do not share keys."""
    generate_index_file(scratch, rows=_FEW, row_group_rows=_FEW, domain_name="yonder", seed=part)
    rows = pq.read_table(scratch)
    key = rows.schema.get_field_index("url_surtkey")
    elsewhere = pc.replace_substring_regex(rows["url_surtkey"], "^com,", f"net{part:02d},")
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = rows.set_column(key, rows.schema.field(key), elsewhere)
    pq.write_table(rows, path, compression="gzip", use_dictionary=False, write_page_index=True)


def _overlapping(source: Path, path: Path, groups: int = 5) -> None:
    """As before 2022: row groups that all span all keys, no page index; the domain is in one of them only."""

    rows = pq.read_table(source)
    key = rows["url_surtkey"]
    domain = pc.and_(pc.greater_equal(key, LOW), pc.less(key, HIGH))
    others, own = rows.filter(pc.invert(domain)), rows.filter(domain)
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, rows.schema, compression="gzip", use_dictionary=False) as writer:
        for number in range(groups):
            part = others.take(pa.array(range(number, others.num_rows, groups)))
            if number == 3:
                part = pa.concat_tables([part, own]).sort_by("url_surtkey")
            writer.write_table(part, row_group_size=part.num_rows)


def harvested(work: Path, url: str, crawls: dict[str, list[str]]) -> Path:
    """The home with the catalog of the bucket."""

    home = work / "home"
    store = FooterStore(home / "footers")
    with Transport(f"{url}{BUCKET}") as transport:
        for crawl, paths in crawls.items():
            harvest_crawl(crawl, paths, transport, store)
            write_catalog_rows(home / "catalog", crawl_tables(crawl, paths, store).packed())
    return home


def page_level(report: Report, work: Path) -> None:
    """One small domain: in one file of real size, and in a crawl of several files of which one holds it."""
    paths = [index_path(CRAWL, part) for part in range(PARTS)]
    with serving(work) as server:
        home = harvested(work, server.url, {CRAWL: paths, "CC-MAIN-2024-18": [WARM]})
        for what, wanted in (("one_file", paths[:1]), ("crawl", paths)):
            found = {name: _repeated(name, server, wanted, home) for name in READERS}
            ours = found.pop("ours")
            assert ours is not None
            for name, rival in found.items():
                if rival is None:
                    continue
                assert rival.rows == ours.rows, (name, rival.rows, ours.rows)
                goals = {"datafusion": (1.0, 2.0, 1.0), "pyarrow": (50.0, None, 5.0), "duckdb": (30.0, None, 5.0)}
                size, requests, seconds = goals.get(name, (None, None, 5.0))
                note = f"{ours.rows} rows, {len(COLUMNS)} columns, {len(wanted)} files, {_link()}"
                case = f"{what}_vs_{name}"
                lower = {"higher_is_better": False}
                report.figure(f"{case}_bytes", ours.bytes, rival.bytes, size, unit="B", note=note, **lower)
                report.figure(f"{case}_requests", ours.requests, rival.requests, requests, unit="", **lower)
                report.figure(f"{case}_seconds", ours.seconds, rival.seconds, seconds, unit="s", **lower)


def _repeated(name: str, server: FaultServerProcess, paths: Sequence[str], home: Path) -> Measured | None:
    """The median run by seconds; counts are the same each time."""
    runs = [measure(name, server, paths, home) for _ in range(REPEATS)]
    there = sorted((run for run in runs if run is not None), key=lambda run: run.seconds)
    return there[len(there) // 2] if there else None


def without_page_index(report: Report, work: Path) -> None:
    """Five overlapping row groups, one with a match, all columns: the key first, the rest where rows match."""

    path = index_path(OLD_CRAWL, 0)
    target = parse_target(DOMAIN)
    with serving(work) as server:
        url = server.url
        with Transport(f"{url}{BUCKET}") as transport:
            finder = FileFinder(transport, [path])
            finder.file(path)
            before = counted(server)
            rows = (
                ParquetLocator(transport, finder).locate(OLD_CRAWL, ["warc"], [target]).captures[target.slug].num_rows
            )
            ours = counted(server)[1] - before[1]
        before = counted(server)
        host = url.removeprefix("http://").rstrip("/")
        system = fs.S3FileSystem(anonymous=True, endpoint_override=host, scheme="http", region="us-east-1")
        key = pc.field("url_surtkey")
        inside = ((key >= LOW) & (key < HIGH)) | ((key >= PORTS_LOW) & (key < PORTS_HIGH))
        table = ds.dataset([f"{BUCKET}/{path}"], filesystem=system, format="parquet").to_table(filter=inside)
        rival = counted(server)[1] - before[1]
    assert table.num_rows == rows
    report.figure("no_page_index_bytes", ours, rival, 2.5, higher_is_better=False, unit="B", note=f"{rows} rows")


def _link() -> str:
    """The link in words."""
    return f"{LATENCY * 1000:g} ms a request, {BANDWIDTH / 1e9:g} Gbit/s for all together"


def bench_look_ups(report: Report, work: Path) -> None:
    """Lookups in one file, in a crawl, and without a page index. ``work`` keeps generated files."""
    work.mkdir(parents=True, exist_ok=True)
    generated(work, ROWS, PARTS)
    report.setting |= {"look_up_rows": ROWS, "look_up_files": PARTS, "link": _link()}
    page_level(report, work)
    without_page_index(report, work)
