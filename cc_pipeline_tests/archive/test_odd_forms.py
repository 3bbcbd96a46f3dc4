"""Forms that writers of archives came up with: odd, but readable; and what is not read says what it is."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import pytest

from cc_pipeline.archive import arc, warc
from cc_pipeline.archive import record as flag
from cc_pipeline.archive.plainwalk import StoredRecord
from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline_tests.archive import builders
from cc_pipeline_tests.archive.builders import member, records_of

BODY = b"<p>one</p>\r\ntwo " * 40
RECORD = builders.response(BODY)
NEXT = builders.response(b"next", url="http://example.com/next")


def _header_lines(record: bytes, end: bytes) -> bytes:
    header, block = record.split(b"\r\n\r\n", 1)
    return header.replace(b"\r\n", end) + end * 2 + block


@pytest.mark.parametrize(
    ("record", "odd"),
    [
        (RECORD.replace(b"WARC/1.0", b"warc/1.0"), flag.VERSION_CASE),
        (RECORD.replace(b"WARC/1.0", b"Warc/1.0"), flag.VERSION_CASE),
        (_header_lines(RECORD, b"\r\r\n"), flag.CR_CR_LF),
        (RECORD.replace(builders.HTTP_OK, _header_lines(builders.HTTP_OK, b"\r\r\n")), flag.HTTP_CR_CR_LF),
    ],
    ids=["lower", "capital", "cr_cr_lf", "http_cr_cr_lf"],
)
def test_odd_headers_are_read(record: bytes, odd: str) -> None:
    if odd == flag.HTTP_CR_CR_LF:
        extra = len(_header_lines(builders.HTTP_OK, b"\r\r\n")) - len(builders.HTTP_OK)
        length = len(builders.HTTP_OK) + len(BODY)
        record = record.replace(b"Length: %d" % length, b"Length: %d" % (length + extra))
    for found in (
        warc.read_record(record, "s", 0),
        warc.read_record(member(record), "s", 0),
        *records_of(warc.iter_records(record + record + NEXT, "s"))[:2],
        *records_of(warc.iter_records(member(record) + member(NEXT), "s"))[:1],
    ):
        assert found.flags == (odd,)
        assert (found.payload, found.url, found.http_status) == (BODY, "http://example.com/", 200)
        assert dict(found.http_headers)["Content-Type"] == "text/html; charset=utf-8"


def test_behind_damage_a_version_line_in_lower_case_is_found() -> None:
    lower = RECORD.replace(b"WARC/1.0", b"warc/1.0")
    found = list(warc.iter_records(b"garbage warc/1.0\r\n and more\r\n" + lower + NEXT, "s"))
    assert [one.url for one in records_of(found)] == ["http://example.com/", "http://example.com/next"]


@pytest.mark.parametrize("cuts", [(30,), (100, 101, 400), (700,), tuple(range(20, 1000, 7))], ids=len)
@pytest.mark.parametrize("form", ["warc", "arc"])
def test_a_record_over_several_members(form: str, cuts: tuple[int, ...]) -> None:
    if form == "warc":
        reader, record, following = warc, RECORD, NEXT
    else:
        reader = arc
        record, following = builders.arc(builders.HTTP_OK + BODY), builders.arc(b"next", url="http://example.com/next")
    places = [0, *(cut for cut in cuts if cut < len(record)), len(record)]
    pieces = b"".join(member(record[begin:end]) for begin, end in itertools.pairwise(places))
    whole = reader.read_record(pieces, "s", 0)
    assert (whole.payload.rstrip(b"\n"), whole.flags) == (BODY, (flag.SEVERAL_MEMBERS,))
    before = member(following)
    found = list(reader.iter_located(before + pieces + member(following), "s"))
    assert all(isinstance(one, StoredRecord) for one in found)
    places_found = [(one.offset, one.length, one.inner_offset) for one in found if isinstance(one, StoredRecord)]
    assert places_found == [
        (0, len(before), 0),
        (len(before), len(pieces), 0),
        (len(before) + len(pieces), len(before), 0),
    ]
    assert [one.record.url for one in found if isinstance(one, StoredRecord)][1] == "http://example.com/"


def test_half_a_record_takes_nothing_of_the_next() -> None:
    data = member(RECORD[:500]) + member(NEXT) + member(RECORD)
    found = list(warc.iter_records(data, "s"))
    assert [one.url for one in records_of(found)] == ["http://example.com/next", "http://example.com/"]
    assert [one.kind for one in found if isinstance(one, DataFault)] == [DataKind.LENGTH_MISMATCH]
    with pytest.raises(DataFault, match="record declares"):
        warc.read_record(member(RECORD[:500]) + member(NEXT), "s", 0)


NOON = datetime(2012, 2, 28, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "line",
    [
        "http://example.com/ 192.0.2.1 20120228120000Z text/html {n}",
        "http://example.com/ 192.0.2.1 20120228120000;x=1 text/html {n}",
        "http://example.com/ 192.0.2.1 text/html 20120228120000 {n}",
        "http://example.com/ 192.0.2.1 20122802120000 text/html {n}",
    ],
)
def test_arc_dates_with_text_or_in_another_place(line: str) -> None:
    block = builders.HTTP_OK + BODY
    record = line.format(n=len(block)).encode() + b"\n" + block + b"\n"
    for found in (arc.read_record(member(record), "s", 0), *records_of(arc.iter_records(record * 2, "s"))):
        assert (found.fetch_time, found.declared_mime, found.flags) == (NOON, "text/html", (flag.UNUSUAL_DATE,))
        assert found.payload == BODY


def test_an_offset_that_looks_like_a_date_is_none() -> None:
    block = builders.HTTP_OK + BODY
    line = f"http://example.com/ 192.0.2.1 20120228120000 text/html 200 abc - 20120101 file.arc {len(block)}\n"
    found = arc.read_record(member(line.encode() + block + b"\n"), "s", 0)
    assert (found.fetch_time, found.url, found.flags) == (NOON, "http://example.com/", ())


@pytest.mark.parametrize(
    ("magic", "name"),
    [
        (b"\x04\x22\x4d\x18\x64\x40\xa7" + RECORD, "LZ4"),  # which stores short texts as they are
        (b"\x28\xb5\x2f\xfd", "Zstandard"),
        (b"\xfd7zXZ\0", "xz"),
        (b"BZh9", "bzip2"),
    ],
)
def test_other_compressions_are_named(magic: bytes, name: str) -> None:
    data = magic + bytes(range(256)) * 20
    for reader in (warc, arc):
        found = list(reader.iter_records(data, "s"))
        assert [isinstance(one, DataFault) and (one.kind, name in one.reason) for one in found] == [
            (DataKind.UNSUPPORTED, True)
        ]
    with pytest.raises(DataFault, match=name) as fault:
        warc.read_record(data, "s", 0)
    assert fault.value.kind == DataKind.NOT_GZIP


@pytest.mark.parametrize("junk", [b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"BZh"])
@pytest.mark.parametrize("form", ["plain", "gzip"])
def test_bytes_of_damage_that_look_like_another_compression_hide_no_record(junk: bytes, form: str) -> None:
    """Found by fuzzing: four bytes before the first record cost the file."""
    records = [RECORD, NEXT] if form == "plain" else [member(RECORD), member(NEXT)]
    found = records_of(warc.iter_records(junk + b"".join(records), "s"))
    assert [one.url for one in found] == ["http://example.com/", "http://example.com/next"]
