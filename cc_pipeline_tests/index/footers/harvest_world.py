"""A bucket of index files for the harvest tests, and readers that need no network."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from cc_pipeline.transport.faults import RangeFault
from cc_pipeline.transport.ranges import ByteRange, RangeBytes
from cc_pipeline_tests.index.footers.footer_files import index_table, parquet_bytes

CRAWL = "CC-MAIN-2024-22"


def key_of(number: int, subset: str = "warc") -> str:
    return f"cc-index/table/cc-main/warc/crawl={CRAWL}/subset={subset}/part-{number:05d}-abc.c000.gz.parquet"


def bucket_of(root: Path, count: int, row_groups: int = 3) -> list[str]:
    """``count`` index files in three subsets, four distinct ones linked under all names."""
    subsets = ("warc", "crawldiagnostics", "robotstxt")
    keys = [key_of(number // 3, subsets[number % 3]) for number in range(count)]
    for number, key in enumerate(keys):
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        if number < 4:
            path.write_bytes(parquet_bytes(index_table(20 * row_groups, f"com,site{number}"), 20, compression="gzip"))
        else:
            os.link(root / keys[number % 4], path)
    return keys


class MemoryReader:
    """Answers from a dict; ``asked`` remembers everything."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.etags = {key: f'"{len(data)}-{number}"' for number, (key, data) in enumerate(objects.items())}
        self.asked: list[ByteRange] = []
        self.faults: dict[str, RangeFault] = {}

    def read_many(
        self, requests: Iterable[ByteRange], concurrency: int | None = None
    ) -> Iterator[RangeBytes | RangeFault]:
        for asked in requests:
            self.asked.append(asked)
            if asked.key in self.faults:
                fault = self.faults[asked.key]
                fault.tag = asked.tag
                yield fault
                continue
            data = self.objects[asked.key]
            start = max(0, len(data) - asked.length) if asked.offset is None else asked.offset
            body = data[start : start + asked.length]
            yield RangeBytes(asked.key, start, body, len(data), self.etags[asked.key], 1, asked.tag)
