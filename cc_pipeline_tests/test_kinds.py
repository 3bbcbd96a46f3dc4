"""Each kind of damage is reached by bytes, and handed on with the fault."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pytest

from cc_pipeline.archive import arc, sequencefile, warc
from cc_pipeline.archive.sequencefile import DEFAULT_CODEC, TEXT
from cc_pipeline.commoncrawl.crawls import parse_collinfo
from cc_pipeline.commoncrawl.paths import parse_path_list
from cc_pipeline.documents import parse
from cc_pipeline.documents.page import PageInput
from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.index.btree.format import read_header
from cc_pipeline.index.footers.decode import footer_length
from cc_pipeline_tests.archive.sequencefile_writer import write_header

GOOD = gzip.compress(b"WARC/1.0\r\nWARC-Type: resource\r\nContent-Length: 5\r\n\r\nhello\r\n\r\n", mtime=0)
SYNC = bytes(16)


def sequence(codec: str | None = None, *, key: str = TEXT, records: bytes = b"") -> bytes:
    compression = "none" if codec is None else "record"
    return write_header(compression, codec, SYNC, key_class=key) + records


def pair(key: bytes, value: bytes) -> bytes:
    return (len(key) + len(value)).to_bytes(4) + len(key).to_bytes(4) + key + value


def first_of(data: bytes) -> None:
    for found in sequencefile.iter_pairs(data, "s"):
        if isinstance(found, DataFault):
            raise found


@pytest.mark.parametrize(
    ("read", "kind"),
    [
        (lambda: warc.read_record(b"<html>", "s", 0), DataKind.NOT_GZIP),
        (lambda: warc.read_record(GOOD[:-4], "s", 0), DataKind.GZIP_TRUNCATED),
        (lambda: arc.read_record(b"", "s", 0), DataKind.GZIP_TRUNCATED),
        (lambda: warc.read_record(GOOD[:-8] + bytes(8), "s", 0), DataKind.GZIP_CORRUPT),
        (lambda: warc.read_record(GOOD, "s", 0, limit=10), DataKind.TOO_LARGE),
        (lambda: warc.read_record(gzip.compress(b"hello"), "s", 0), DataKind.NOT_A_RECORD),
        (lambda: arc.read_record(gzip.compress(b"hello"), "s", 0), DataKind.NOT_A_RECORD),
        (lambda: warc.read_record(gzip.compress(gzip.decompress(GOOD)[:-6]), "s", 0), DataKind.LENGTH_MISMATCH),
        (lambda: first_of(b"hello"), DataKind.MALFORMED),
        (lambda: first_of(b"SEQ\x07"), DataKind.UNSUPPORTED),
        (lambda: first_of(sequence()[:-3]), DataKind.TRUNCATED),
        (lambda: first_of(sequence(records=b"\0\0")), DataKind.TRUNCATED),
        (lambda: first_of(sequence(records=pair(b"a", b"b")[:-1])), DataKind.LENGTH_MISMATCH),
        (lambda: first_of(sequence(records=pair(b"\x7f", b"b"))), DataKind.MALFORMED),
        (lambda: first_of(sequence("some.Codec", records=pair(b"\x01a", b"b"))), DataKind.UNSUPPORTED),
        (lambda: first_of(sequence(DEFAULT_CODEC, records=pair(b"\x01a", b"bbbb"))), DataKind.MALFORMED),
        (lambda: parse_collinfo(b"[", "s"), DataKind.MALFORMED),
        (lambda: parse_collinfo(b"[" * 100_000, "s"), DataKind.TOO_LARGE),
        (lambda: parse_path_list(gzip.compress(b"a\n")[:-4], "s"), DataKind.GZIP_TRUNCATED),
        (lambda: footer_length(b"", 4, "s"), DataKind.TRUNCATED),
        (lambda: footer_length(bytes(4) + b"PARE", 100, "s"), DataKind.UNSUPPORTED),
        (lambda: footer_length(b"\xff\xff\xff\x7fPAR1", 100, "s"), DataKind.MALFORMED),
        (lambda: footer_length(b"\xff\xff\xff\x7fPAR1", 1 << 40, "s"), DataKind.TOO_LARGE),
        (lambda: read_header(b"", 0, "s"), DataKind.TRUNCATED),
    ],
)
def test_bytes_decide_the_kind(read: Callable[[], object], kind: DataKind) -> None:
    with pytest.raises(DataFault) as caught:
        read()
    assert caught.value.kind is kind


def test_whole_files_say_the_same_kinds_as_single_records() -> None:
    damaged = GOOD + GOOD[:-8] + bytes(8) + GOOD + gzip.compress(b"hello", mtime=0) + GOOD + GOOD[:-4]
    kinds = [found.kind for found in warc.iter_records(damaged, "s") if isinstance(found, DataFault)]
    assert kinds == [DataKind.GZIP_CORRUPT, DataKind.NOT_A_RECORD, DataKind.GZIP_TRUNCATED]


def test_a_parser_that_breaks_has_a_kind_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise ValueError("declares, cut off, inflates beyond")

    monkeypatch.setattr(parse, "_parse", breaks)
    with pytest.raises(DataFault) as caught:
        parse.parse_page(PageInput(crawl="c", subset="warc", url="http://example.com/", payload=b""))
    assert caught.value.kind is DataKind.PARSER_BROKE
