"""Our harvest, measured: rate and memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.catalog_files import CRAWL
from cc_pipeline.index.catalog.from_footers import FooterTableBuilder
from cc_pipeline.index.footers.decode import FooterRows
from cc_pipeline.index.footers.harvest import harvest_crawl
from cc_pipeline.index.footers.store import FooterEntry, FooterStore
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.place import PlaceOptions
from cc_pipeline_tests.peak import own_peak

ROW_GROUPS = 16
_FILES_A_TABLE = 500


class TableSink:
    """Makes the catalog's tables of decoded footers, some hundred files at a time, and counts their rows."""

    def __init__(self) -> None:
        self.row_groups = 0
        self._builder = FooterTableBuilder(CRAWL)
        self._waiting = 0

    def take(self, rows: FooterRows, entry: FooterEntry) -> None:
        self._builder.add(rows, entry)
        self._waiting += 1
        if self._waiting == _FILES_A_TABLE:
            self.finish()

    def finish(self) -> None:
        if self._waiting:
            tables = self._builder.tables()
            self.row_groups += tables.row_groups.num_rows
            self._builder, self._waiting = FooterTableBuilder(CRAWL), 0


def our_rate(url: str, keys: Sequence[str], concurrency: int, scratch: Path) -> float:
    """Files a second: fetched, decoded, stored durably, and turned into the catalog's tables."""
    sink = TableSink()
    with (
        tempfile.TemporaryDirectory(dir=scratch) as folder,
        Transport(url, PlaceOptions(concurrency=concurrency)) as transport,
    ):
        started = time.perf_counter()
        report = harvest_crawl(CRAWL, keys, transport, FooterStore(Path(folder)), on_footer=sink.take)
        sink.finish()
        seconds = time.perf_counter() - started
    if report.fetched != len(keys) or sink.row_groups != ROW_GROUPS * len(keys):
        raise RuntimeError(f"{report.fetched} files and {sink.row_groups} row groups of {len(keys)} files")
    return len(keys) / seconds


def peak_memory(url: str, keys: Sequence[str], concurrency: int) -> float:
    """Megabytes at the peak of a process of its own that harvests ``keys``."""
    arguments = [sys.executable, "-m", "benchmarks.catalog_harvests", url, str(concurrency)]
    done = subprocess.run(arguments, input=json.dumps(list(keys)), capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    keys = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder:
        our_rate(sys.argv[1], keys, int(sys.argv[2]), Path(folder))
    print(own_peak() / 1024)


if __name__ == "__main__":
    main()
