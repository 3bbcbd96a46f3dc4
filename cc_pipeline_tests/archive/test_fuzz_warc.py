"""Mutated WARC: records or faults, never anything else, and whole neighbours stay whole."""

from __future__ import annotations

import gzip
import random
from contextlib import suppress
from itertools import accumulate

from hypothesis import assume
from hypothesis import strategies as st

from cc_pipeline.archive import warc
from cc_pipeline.archive.record import FLAGS, ArchivedRecord, decoded_payload
from cc_pipeline.errors import DataFault
from cc_pipeline.pagefiles.wat import iter_wat, iter_wet
from cc_pipeline_tests.archive import builders
from cc_pipeline_tests.archive.builders import records_of
from cc_pipeline_tests.fuzzing import bounded, edits, fuzz, scratches, swollen

LIMIT = 1 << 16
RANDOM = random.Random(11)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n"
RECORDS = [
    builders.warc(b"software: x\r\n", [("WARC-Type", "warcinfo"), ("WARC-Date", "2024-05-31T01:16:45Z")]),
    *(builders.response(RANDOM.randbytes(size), url=f"http://example.com/{size}") for size in (0, 10, 3000, 200)),
    builders.response(b"5\r\nhello\r\n0\r\n\r\n", url="http://example.com/c", head=CHUNKED, digest="sha1:" + "A" * 32),
    builders.response(b"text " * 300, url="http://example.com/t", extra=[("X-Folded", "a\r\n b")]),
]
BASES = [
    b"".join(RECORDS),
    builders.members(RECORDS),
    gzip.compress(b"".join(RECORDS), mtime=0),
    b"".join(RECORDS).replace(b"\r\n", b"\n"),
]


def check(found: ArchivedRecord | DataFault) -> None:
    assert isinstance(found, ArchivedRecord | DataFault)
    if isinstance(found, ArchivedRecord):
        assert len(found.payload) <= LIMIT
        assert set(found.flags) <= set(FLAGS)
        assert builders.sha1(found.payload) == found.payload_digest
        decoded_payload(found, LIMIT)


@fuzz(60, data=edits(BASES))
def test_mutated_files(data: bytes) -> None:
    with bounded(2, 100):
        found = list(warc.iter_records(data, "s", LIMIT))
    assert found
    for one in found:
        check(one)
    for one in (*iter_wat(data, "s", LIMIT), *iter_wet(data, "s", LIMIT)):
        assert one is not None


@fuzz(60, data=edits(RECORDS))
def test_mutated_records(data: bytes) -> None:
    for member in (data, gzip.compress(data, 1, mtime=0)):
        with suppress(DataFault):
            check(warc.read_record(member, "s", 0, LIMIT))


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
            for one in warc.iter_records(content, "s", LIMIT):
                check(one)
            with suppress(DataFault):
                check(warc.read_record(content, "s", 0, LIMIT))


@fuzz(60, data=st.binary(max_size=400))
def test_noise(data: bytes) -> None:
    for content in (data, gzip.compress(data, mtime=0), b"WARC/1.0\r\n" + data):
        for one in warc.iter_records(content, "s", LIMIT):
            check(one)


@fuzz(60, scratch=scratches(len(BASES[1])))
def test_members_beside_one_damaged_stretch_are_found(scratch: tuple[int, int, bytes]) -> None:
    assume(b"WARC/" not in scratch[2])  # a file that begins with a record and goes on compressed is neither
    survive([builders.member(record) for record in RECORDS], scratch)


@fuzz(60, scratch=scratches(len(BASES[0])))
def test_uncompressed_records_beside_one_damaged_stretch_are_found(scratch: tuple[int, int, bytes]) -> None:
    assume(b"WARC/" not in scratch[2])
    survive(RECORDS, scratch)


def test_an_empty_payload_vouches_for_no_length() -> None:
    """Found by the test above: cut off in its HTTP header, a record ran into the next, and hid it."""
    survive(RECORDS, (489, 518, b""))


def test_a_header_that_breaks_off_takes_no_other_with_it() -> None:
    """Found by the test above: without its empty line, a header went on into the next record's."""
    survive(RECORDS, (71, 101, b""))


def survive(parts: list[bytes], scratch: tuple[int, int, bytes]) -> None:
    begin, end, new = scratch
    whole = b"".join(parts)
    ends = list(accumulate(map(len, parts)))
    safe = [
        warc.read_record(part, "s", 0).payload_digest
        for part, stop in zip(parts, ends, strict=True)
        if stop <= begin or stop - len(part) >= end
    ]
    found = [one.payload_digest for one in records_of(warc.iter_records(whole[:begin] + new + whole[end:], "s", LIMIT))]
    for digest in safe:
        assert digest in found
        found.remove(digest)
