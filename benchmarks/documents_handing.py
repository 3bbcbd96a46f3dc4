"""What it costs to hand pages over in a run: its parse from stored records to rows on disk, beside parsing alone."""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import pyarrow as pa

from benchmarks.report import Report, spread
from cc_pipeline.documents.page import PageInput, ParseOptions
from cc_pipeline.documents.parse import parse_page
from cc_pipeline.extraction.parsed_pages import spill_pages
from cc_pipeline.records.schema import RECORD_SCHEMA
from cc_pipeline.records.storage import RecordStorage
from cc_pipeline.transport.client import Transport

_TICKS = os.sysconf("SC_CLK_TCK")


def bench_handing(report: Report, pages: Sequence[PageInput], repeats: int) -> None:
    """Processor time of a run's process and its parser a page: reading the record, sending it, inflating, parsing, rows
    to Arrow and back, writing them. The rival parses the same pages, which lie in memory, and drops the rows."""
    with TemporaryDirectory() as folder, Transport(folder) as place:
        records, storage = _stored(Path(folder), pages), RecordStorage(place)

        def handed() -> None:
            with TemporaryDirectory() as spilled:
                spill_pages([records] * repeats, storage, ParseOptions(), 1, Path(spilled), lambda done: None)

        def bare() -> None:
            for _ in range(repeats):
                for page in pages:
                    parse_page(page)

        turns = [(_spent(handed), _spent(bare)) for _ in range(1 + repeats)][1:]  # parsers start in the first
    each = 1000 / len(pages) / repeats
    ours, alone = (median(taken) * each for taken in zip(*turns, strict=True))
    ratios = [one / other for one, other in turns]
    note = f"parse_page alone; {median(ratios):.2f} x of it, goal 1.2; {spread(ratios)}"
    report.figure("handing_over", ours, alone, 1 / 1.2, unit="ms/page", higher_is_better=False, note=note)


def _stored(folder: Path, pages: Sequence[PageInput]) -> pa.RecordBatch:
    """Records of pages in a file below ``folder``, as rows of ``records``."""
    rows, at = [], 0
    with (folder / "pages.warc.gz").open("wb") as file:
        for page in pages:
            lines = [page.http_status_line, *(f"{name}: {value}" for name, value in page.http_headers)]
            block = "\r\n".join(map(str, lines)).encode() + b"\r\n\r\n" + page.payload
            head = (
                f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: {page.url}\r\nWARC-Date: 2024-05-18T00:00:00Z\r\n"
            )
            length = f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(block)}\r\n\r\n"
            member = gzip.compress((head + length).encode() + block + b"\r\n\r\n")
            file.write(member)
            rows.append(
                {
                    "crawl": page.crawl, "subset": page.subset, "url": page.url, "fetch_status": 200,
                    "outcome": "fetched", "archive_format": "warc", "stored_file": "pages.warc.gz", "stored_offset": at,
                    "stored_length": len(member), "warc_filename": "pages.warc.gz", "warc_record_offset": at,
                    "warc_record_length": len(member), "attempts": 1,
                }
            )  # fmt: skip
            at += len(member)
    return pa.RecordBatch.from_pylist(rows, RECORD_SCHEMA)


def _spent(work: Callable[[], None]) -> float:
    """Seconds of processor time of this process and its children; those that ended meanwhile are not among them."""
    before = time.process_time(), _of_children()
    work()
    return time.process_time() - before[0] + _of_children() - before[1]


def _of_children() -> float:
    own = Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii").split()
    stats = (Path(f"/proc/{child}/stat").read_text("utf-8").rpartition(")")[2].split() for child in own)
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / _TICKS
