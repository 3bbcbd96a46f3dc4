"""Mutated WARC and ARC: records or faults, never anything else, and whole neighbours stay whole."""

from __future__ import annotations

import gzip
import random
from itertools import accumulate
from types import ModuleType

import pytest
from hypothesis import assume

from cc_pipeline.archive import arc, warc, writing
from cc_pipeline.archive.record import FLAGS, ArchivedRecord, decoded_payload
from cc_pipeline.errors import DataFault
from cc_pipeline_tests.archive import builders
from cc_pipeline_tests.archive.builders import records_of
from cc_pipeline_tests.fuzzing import bounded, edits, fuzz, scratches

LIMIT = 1 << 16
RANDOM = random.Random(12)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type:text/html\r\nContent-Encoding:gzip\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n"
YEAR_2012 = [builders.arc(HEAD + RANDOM.randbytes(size) + b"\n", end=b"") for size in (0, 100, 2000)]
RECORDS = {
    arc: [
        builders.filedesc(),
        *(builders.arc(HEAD + RANDOM.randbytes(size), url=f"http://example.com/{size}") for size in (0, 10, 3000, 200)),
        builders.arc(HEAD + b"<p>text</p>\r\n" * 50, url="http://example.com/a b"),
        builders.arc(b"20120208\nexample.com. 1 IN A 192.0.2.1", url="dns:example.com", mime="text/dns"),
    ],
    warc: [
        builders.warc(b"software: x\r\n", [("WARC-Type", "warcinfo"), ("WARC-Date", "2024-05-31T01:16:45Z")]),
        *(builders.response(RANDOM.randbytes(size), url=f"http://example.com/{size}") for size in (0, 10, 3000, 200)),
        builders.response(
            b"5\r\nhello\r\n0\r\n\r\n", url="http://example.com/c", head=CHUNKED, digest="sha1:" + "A" * 32
        ),
        builders.response(b"text " * 300, url="http://example.com/t", extra=[("X-Folded", "a\r\n b")]),
    ],
}
OF_THEIR_OWN = {arc: builders.members(YEAR_2012), warc: b"".join(RECORDS[warc]).replace(b"\r\n", b"\n")}
FILES = {
    kind: [b"".join(parts), builders.members(parts), gzip.compress(b"".join(parts), mtime=0), OF_THEIR_OWN[kind]]
    for kind, parts in RECORDS.items()
}


def check(kind: ModuleType, found: ArchivedRecord | DataFault) -> None:
    assert isinstance(found, ArchivedRecord | DataFault)
    if isinstance(found, ArchivedRecord):
        assert len(found.payload) <= LIMIT
        assert set(found.flags) <= set(FLAGS)
        if kind is warc:
            assert builders.sha1(found.payload) == found.payload_digest
            decoded_payload(found, LIMIT)
        elif found.fetch_time is not None:
            writing.arc_as_warc(found, "s", 0)


def read(kind: ModuleType, data: bytes) -> int:
    """Reads a whole file and checks each of its records; how many came of it."""
    count = 0
    # one at a time, as a stage reads: of tens of thousands of faults each would keep its frames
    for one in kind.iter_records(data, "s", LIMIT):
        check(kind, one)
        count += 1
    return count


@pytest.mark.parametrize("kind", [arc, warc], ids=["arc", "warc"])
def test_mutated_files(kind: ModuleType) -> None:
    @fuzz(60, data=edits(FILES[kind]))
    def mutated(data: bytes) -> None:
        with bounded(2, 100):
            assert read(kind, data)

    mutated()


@pytest.mark.parametrize("kind", [arc, warc], ids=["arc", "warc"])
def test_members_beside_one_damaged_stretch_are_found(kind: ModuleType) -> None:
    @fuzz(60, scratch=scratches(len(FILES[kind][1])))
    def damaged(scratch: tuple[int, int, bytes]) -> None:
        # a WARC file that begins with a record and goes on compressed is neither
        assume(kind is arc or b"WARC/" not in scratch[2])
        survive(kind, [builders.member(record) for record in RECORDS[kind]], scratch)

    damaged()


def test_an_empty_payload_vouches_for_no_length() -> None:
    """Found by the test above: cut off in its HTTP header, a record ran into the next, and hid it."""
    survive(warc, RECORDS[warc], (489, 518, b""))


def test_a_header_that_breaks_off_takes_no_other_with_it() -> None:
    """Found by the test above: without its empty line, a header went on into the next record's."""
    survive(warc, RECORDS[warc], (71, 101, b""))


def survive(kind: ModuleType, parts: list[bytes], scratch: tuple[int, int, bytes]) -> None:
    begin, end, new = scratch
    whole = b"".join(parts)
    ends = list(accumulate(map(len, parts)))
    safe = [
        kind.read_record(part, "s", 0).payload_digest
        for part, stop in zip(parts, ends, strict=True)
        if stop <= begin or stop - len(part) >= end
    ]
    found = [one.payload_digest for one in records_of(kind.iter_records(whole[:begin] + new + whole[end:], "s", LIMIT))]
    for digest in safe:
        assert digest in found
        found.remove(digest)
