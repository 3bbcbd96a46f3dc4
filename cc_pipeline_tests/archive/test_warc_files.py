"""Whole WARC files: every way they are compressed, and what damage costs."""

from __future__ import annotations

import gzip
import io
import random
from pathlib import Path

import pytest

from cc_pipeline.archive import record as flag
from cc_pipeline.archive import warc
from cc_pipeline.archive.gzip_members import ByteSource
from cc_pipeline.archive.plainwalk import StoredRecord
from cc_pipeline.errors import DataFault, EnvironmentFault
from cc_pipeline_tests.archive import builders
from cc_pipeline_tests.archive.builders import faults_of, records_of

RANDOM = random.Random(3)
BODIES = [RANDOM.randbytes(RANDOM.randrange(0, 9000)) for _ in range(20)]
RECORDS = [builders.response(body, url=f"http://example.com/{number}") for number, body in enumerate(BODIES)]
URLS = [f"http://example.com/{number}" for number in range(20)]


def urls(data: ByteSource, limit: int = 1 << 20) -> tuple[list[str], list[int | None]]:
    """URLs of the records and offsets of the faults; payloads are checked on the way."""
    found = list(warc.iter_records(data, "s", limit))
    for record in records_of(found):
        if not record.flags:
            assert record.payload == BODIES[URLS.index(record.url)]
    return [record.url for record in records_of(found)], [fault.offset for fault in faults_of(found)]


class Slow(io.RawIOBase):
    """A stream that cannot seek and gives a few bytes at a time."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def read(self, size: int = -1, /) -> bytes:
        return self._data.read(min(size, 777))


WHOLE = {
    "by record": builders.members(RECORDS),
    "uncompressed": b"".join(RECORDS),
    "one member": gzip.compress(b"".join(RECORDS), mtime=0),
    "members of five": b"".join(gzip.compress(b"".join(RECORDS[at : at + 5]), mtime=0) for at in range(0, 20, 5)),
}


@pytest.mark.parametrize("how", list(WHOLE))
def test_every_compression_and_every_kind_of_source(how: str, tmp_path: Path) -> None:
    data = WHOLE[how]
    path = tmp_path / "x.warc"
    path.write_bytes(data)
    for source in (data, memoryview(data), path, io.BytesIO(data), Slow(data)):
        assert urls(source) == (URLS, [])


@pytest.mark.parametrize("how", ["one member", "members of five"])
def test_a_member_larger_than_the_bound_is_read_piece_by_piece(how: str) -> None:
    for source in (WHOLE[how], Slow(WHOLE[how])):
        assert urls(source, limit=10_000) == (URLS, [])


def test_places() -> None:
    data = WHOLE["by record"]
    for found in warc.iter_located(data, "s"):
        assert isinstance(found, StoredRecord)
        assert found.length is not None
        member = data[found.offset : found.offset + found.length]
        assert warc.read_record(member, "s", found.offset) == found.record
    plain = list(warc.iter_located(WHOLE["uncompressed"], "s"))
    lengths = [found.length for found in plain if isinstance(found, StoredRecord)]
    assert lengths == [len(record) for record in RECORDS]
    inner = [
        found.inner_offset for found in warc.iter_located(WHOLE["one member"], "s") if isinstance(found, StoredRecord)
    ]
    assert inner == [sum(map(len, RECORDS[:number])) for number in range(20)]


@pytest.mark.parametrize("seekable", [True, False])
def test_a_damaged_member_costs_one_record(seekable: bool) -> None:
    parts = [bytearray(builders.member(record)) for record in RECORDS]
    parts[7][len(parts[7]) // 2] ^= 0x55
    data = b"".join(parts)
    source = data if seekable else Slow(data)
    assert urls(source) == (URLS[:7] + URLS[8:], [sum(map(len, parts[:7]))])


def test_a_truncated_file_says_so() -> None:
    data = WHOLE["by record"]
    last = sum(len(builders.member(record)) for record in RECORDS[:-1])
    assert urls(data[:-500]) == (URLS[:-1], [last])
    # Only the trailer is missing: the record's own digest vouches for it.
    found = list(warc.iter_records(data[:-5], "s"))
    assert records_of(found)[-1].flags == (flag.DAMAGED_MEMBER,)
    assert [fault.offset for fault in faults_of(found)] == [last]


def test_a_lone_record_in_a_member_with_a_wrong_checksum_needs_its_digest() -> None:
    sound = bytearray(builders.member(RECORDS[1]))
    sound[-8] ^= 1
    (record, fault) = list(warc.iter_records(bytes(sound), "s"))
    assert isinstance(fault, DataFault)
    assert not isinstance(record, DataFault)
    assert (record.payload, record.flags) == (BODIES[1], (flag.DAMAGED_MEMBER,))
    unsure = bytearray(builders.member(builders.response(BODIES[1], digest="md5:1")))
    unsure[-8] ^= 1
    assert [type(one) for one in warc.iter_records(bytes(unsure), "s")] == [DataFault]


def test_empty_members_are_passed_over_but_nothing_else_is_no_file() -> None:
    empty = gzip.compress(b"", mtime=0)
    assert urls(empty + builders.member(RECORDS[0]) + empty) == (URLS[:1], [])
    assert urls(empty * 3) == ([], [0])
    assert urls(b"") == ([], [0])
    assert urls(b"\r\n\r\n") == ([], [0])


@pytest.mark.parametrize("packed", [False, True])
def test_a_record_that_is_none_is_passed_over(packed: bool) -> None:
    bad = b"WARC/1.0\r\nWARC-Type: response\r\n\r\n\r\n\r\n"
    data = b"".join((RECORDS[0], bad, RECORDS[1]))
    found = list(warc.iter_records(gzip.compress(data, mtime=0) if packed else data, "s"))
    assert [record.url for record in records_of(found)] == URLS[:2]
    (fault,) = faults_of(found)
    assert "no Content-Length" in fault.reason
    assert fault.offset == (0 if packed else len(RECORDS[0]))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("error", [-300, -3, 3, 300, 100_000, 10**15])
def test_a_length_that_lies_costs_only_its_own_record(error: int, packed: bool) -> None:
    body = b"<p>text</p>\r\n" * 100
    honest = len(builders.HTTP_OK) + len(body)
    lie = builders.response(body, url="http://example.com/lie", length=honest + error)
    data = b"".join((*RECORDS[:3], lie, *RECORDS[3:6]))
    found = list(warc.iter_records(gzip.compress(data, mtime=0) if packed else data, "s"))
    true = [record for record in records_of(found) if record.url != "http://example.com/lie"]
    assert [record.url for record in true] == URLS[:6]
    assert all(record.payload == BODIES[number] and not record.flags for number, record in enumerate(true))
    lies = [record for record in records_of(found) if record not in true]
    if error == 3:  # inside the line breaks that end the record
        assert [record.flags for record in lies] == [(flag.MISSING_RECORD_END, flag.END_IN_PAYLOAD)]
        assert lies[0].payload == body
        return
    assert len(faults_of(found)) == 1
    assert all(flag.BYTES_AFTER_RECORD in record.flags for record in lies)
    assert bool(lies) == (error < 0)


def test_a_missing_file_is_no_data_fault(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="nowhere"):
        list(warc.iter_records(tmp_path / "nowhere.gz", "s"))
