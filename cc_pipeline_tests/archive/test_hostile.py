"""Files made to be slow, large or confusing: the work stays in proportion to their size."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator

import pytest

from cc_pipeline.archive import arc, warc
from cc_pipeline.archive.record import ArchivedRecord
from cc_pipeline.errors import DataFault
from cc_pipeline_tests.archive import builders
from cc_pipeline_tests.archive.builders import faults_of, records_of

pytestmark = pytest.mark.bomb

Reader = Callable[..., Iterator[ArchivedRecord | DataFault]]
LINE = b"http://a/ 1.2.3.4 20120101000000 text/html 5\n"


def stored(content: bytes) -> bytes:
    """A gzip member that holds its content as it is, in stored blocks."""
    engine = zlib.compressobj(0, wbits=31)
    return engine.compress(content) + engine.flush()


def nested(depth: int) -> bytes:
    """A member inside a member inside a member, each visible in the one around it, none of them whole."""
    data = b"WARC/1.0\r\nContent-Length: 5\r\n\r\n"
    for _ in range(depth):
        data = stored(b"WARC/1.0\r\nContent-Length: 5\r\n\r\n" + data[:-8])
    return data[:-8]


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (warc.iter_records, b"WARC/1.0\r\n" * 2_000),
        (warc.iter_records, b"WARC/1.0\n\n" * 2_000),
        (warc.iter_records, b"WARC/1.0\r\nContent-Length: 300000\r\n\r\n" * 3_000),
        (warc.iter_records, b"WARC/1.0\r\nContent-Length: 9\r\n\r\n" * 3_000),
        (warc.iter_records, b"WARC/1.0\r\n" + b"A: b\r\n" * 300_000),
        (warc.iter_records, b"\r\n" * 1_000_000),
        (warc.iter_records, b"x" * 3_000_000),
        (warc.iter_records, b"\x1f\x8b\x08" * 10_000),
        (warc.iter_records, nested(60)),
        (warc.iter_records, gzip.compress(b"\r\n" * 3_000_000, mtime=0)),
        (warc.iter_records, b"".join(builders.member(b"") for _ in range(5_000))),
        (arc.iter_records, LINE * 3_000),
        (arc.iter_records, LINE.replace(b" 5\n", b" 300000\n") * 3_000),
        (arc.iter_records, LINE.replace(b" 5\n", b" -1\n") * 3_000),
        (arc.iter_records, b"http: 12345678 " * 30_000),
        (arc.iter_records, b"http://a/" + b" -" * 30_000 + b" 5\n" + b"- " * 500_000),
        (arc.iter_records, b"http: 12345678 1\n" * 30_000),
    ],
)
def test_work_stays_in_proportion(read: Reader, data: bytes) -> None:
    found = list(read(data, "s", 1 << 20))
    assert faults_of(found) or read is arc.iter_records


@pytest.mark.parametrize("distance", [0, 1, 2, 4094, 4095, 4096, 4097, 12_285, *range(262_140, 262_148), 1_000_003])
@pytest.mark.parametrize("read", [warc.iter_records, arc.iter_records])
def test_a_record_is_found_at_any_distance_behind_damage(read: Reader, distance: int) -> None:
    record = builders.response(b"x") if read is warc.iter_records else builders.arc(b"HTTP/1.0 200 OK\r\n\r\nx")
    found = list(read(b"#" + b"-" * distance + record, "s"))
    assert [one.payload for one in records_of(found)] == [b"x"]
    assert len(faults_of(found)) == 1


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
def test_a_large_record_at_the_end_hides_no_small_ones(end: bytes) -> None:
    inner = builders.response(b"inner") * 500
    large = builders.response(inner)[:-4] + end
    found = list(warc.iter_records(builders.response(b"first") + large, "s", 100_000))
    assert [one.payload for one in records_of(found)] == [b"first"]
    assert len(faults_of(found)) == 1


def test_a_record_whose_line_is_longer_than_a_peek() -> None:
    url = "http://example.com/" + "a" * 40_000
    parts = [
        builders.filedesc(),
        builders.arc(b"1", url="dns:a"),
        builders.arc(b"2", url=url),
        builders.arc(b"3", url=url),
    ]
    found = list(arc.iter_records(b"".join(parts), "s"))
    assert [one.payload for one in records_of(found)][1:] == [b"1", b"2", b"3"]
    assert len(found) == 4


def test_odd_digits_are_no_numbers() -> None:
    line = "http://example.com/ 192.0.2.1 20120208213013 text/html \xb2\xb2\xb2 - - 0 x.arc.gz 4\n".encode("latin-1")
    assert arc.read_record(line + b"text\n", "s", 0).http_status is None
    with pytest.raises(DataFault):
        arc.read_record(LINE.replace(b"5", b"\xb2") + b"text\n", "s", 0)
