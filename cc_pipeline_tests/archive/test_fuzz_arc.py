"""Mutated ARC: records or faults, never anything else, and whole neighbours stay whole."""

from __future__ import annotations

import gzip
import random
from contextlib import suppress
from itertools import accumulate

from hypothesis import strategies as st

from cc_pipeline.archive import arc, writing
from cc_pipeline.archive.record import FLAGS, ArchivedRecord
from cc_pipeline.errors import DataFault
from cc_pipeline_tests.archive import builders
from cc_pipeline_tests.archive.builders import records_of
from cc_pipeline_tests.fuzzing import bounded, edits, fuzz, scratches, swollen

LIMIT = 1 << 16
RANDOM = random.Random(12)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type:text/html\r\nContent-Encoding:gzip\r\n\r\n"
RECORDS = [
    builders.filedesc(),
    *(builders.arc(HEAD + RANDOM.randbytes(size), url=f"http://example.com/{size}") for size in (0, 10, 3000, 200)),
    builders.arc(HEAD + b"<p>text</p>\r\n" * 50, url="http://example.com/a b"),
    builders.arc(b"20120208\nexample.com. 1 IN A 192.0.2.1", url="dns:example.com", mime="text/dns"),
]
YEAR_2012 = [builders.arc(HEAD + RANDOM.randbytes(size) + b"\n", end=b"") for size in (0, 100, 2000)]
BASES = [
    b"".join(RECORDS),
    builders.members(RECORDS),
    gzip.compress(b"".join(RECORDS), mtime=0),
    builders.members(YEAR_2012),
]


def check(found: ArchivedRecord | DataFault) -> None:
    assert isinstance(found, ArchivedRecord | DataFault)
    if isinstance(found, ArchivedRecord):
        assert len(found.payload) <= LIMIT
        assert set(found.flags) <= set(FLAGS)
        if found.fetch_time is not None:
            writing.arc_as_warc(found, "s", 0)


@fuzz(60, data=edits(BASES))
def test_mutated_files(data: bytes) -> None:
    with bounded(2, 100):
        found = list(arc.iter_records(data, "s", LIMIT))
    assert found
    for one in found:
        check(one)


@fuzz(60, data=edits([*RECORDS, *YEAR_2012]))
def test_mutated_records(data: bytes) -> None:
    for member in (data, gzip.compress(data, 1, mtime=0)):
        with suppress(DataFault):
            check(arc.read_record(member, "s", 0, LIMIT))


TOKENS = (
    *(
        b"\n",
        b"\r\n",
        b"\r\r\n",
        b" ",
        b":",
        b"0",
        b"-",
        b"WARC/1.0\r\n",
        b"warc/1.0\n",
        b"Content-Length: 5\r\n",
        b"\0",
    ),
    *(
        b"Content-Length: 99999\r\n",
        b"\x1f\x8b\x08\0",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"http://a/ 1.2.3.4 20120101000000 ",
    ),
    *(b"text/html 5\n", b" 20120101 9", b"a", b"\t", b"filedesc:", b"dns:", b"WARC-Type: response\r\n"),
    *(
        builders.member(part)
        for part in (b"", b"a", b"\n", RECORDS[0][:30], RECORDS[1], RECORDS[1][:90], RECORDS[1][90:])
    ),
)


@fuzz(60, data=swollen(TOKENS, [b"", *RECORDS, *(builders.member(record) for record in RECORDS)]))
def test_swollen_files(data: bytes) -> None:
    with bounded(1 + len(data) / 40_000, 100):  # a record, or a fault, of ten bytes takes as long as any other
        for content in (data, gzip.compress(data, 1, mtime=0)):
            for one in arc.iter_records(content, "s", LIMIT):
                check(one)
            with suppress(DataFault):
                check(arc.read_record(content, "s", 0, LIMIT))


@fuzz(60, data=st.binary(max_size=400))
def test_noise(data: bytes) -> None:
    for content in (data, gzip.compress(data, mtime=0), b"http://a/ 1.2.3.4 20120101000000 text/html " + data):
        for one in arc.iter_records(content, "s", LIMIT):
            check(one)


@fuzz(60, scratch=scratches(len(BASES[1])))
def test_members_beside_one_damaged_stretch_are_found(scratch: tuple[int, int, bytes]) -> None:
    begin, end, new = scratch
    parts = [builders.member(record) for record in RECORDS]
    whole = b"".join(parts)
    ends = list(accumulate(map(len, parts)))
    safe = [
        arc.read_record(part, "s", 0).payload_digest
        for part, stop in zip(parts, ends, strict=True)
        if stop <= begin or stop - len(part) >= end
    ]
    found = [one.payload_digest for one in records_of(arc.iter_records(whole[:begin] + new + whole[end:], "s", LIMIT))]
    for digest in safe:
        assert digest in found
        found.remove(digest)
