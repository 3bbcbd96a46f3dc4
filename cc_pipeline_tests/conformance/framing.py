"""Files of records: what stands between them, and records that are not as they say."""

from __future__ import annotations

import io
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from cc_pipeline.archive import arc, warc
from cc_pipeline.errors import DataFault
from cc_pipeline.index.archive_rows import Tally, index_rows
from cc_pipeline_tests.archive import builders
from cc_pipeline_tests.archive.builders import arc as arc_record
from cc_pipeline_tests.archive.builders import filedesc, member, members, response

A, B = "http://a.example/", "http://b.example/"
_BODY = "<p>Größe, 中文: a body whose characters are fewer than its bytes.</p>".encode()
_FIRST, _SECOND = response(_BODY, url=A), response(b"second", url=B)


@dataclass(frozen=True, slots=True)
class Archive:
    """``urls`` are those of the records that are to be read, in order; ``faults`` how many stretches are to be named.
    ``is_by_record`` says that each record is a gzip member of its own."""

    report: str
    about: str
    data: bytes
    urls: tuple[str, ...] = (A, B)
    faults: int = 0
    is_arc: bool = False
    is_by_record: bool = False

    def __str__(self) -> str:
        return f"{self.report} {self.about}"


#: What reading a file found: the URLs of its records, and how many faults.
Found = tuple[tuple[str, ...], int]


class _Drops(io.RawIOBase):
    """A stream that gives what it likes: seven bytes, then one, then a thousand."""

    def __init__(self, data: bytes) -> None:
        self._inner = io.BytesIO(data)
        self._turn = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        self._turn += 1
        most = (7, 1, 1000)[self._turn % 3]
        return self._inner.read(most if size < 0 else min(size, most))


def _read(found: Iterable[object]) -> Found:
    urls, faults = [], 0
    for each in found:
        if isinstance(each, DataFault):
            faults += 1
        else:
            record = getattr(each, "record", each)
            urls.append(record.url)
    return tuple(url for url in urls if url.startswith("http")), faults


def _of_bytes(archive: Archive) -> Found:
    return _read((arc if archive.is_arc else warc).iter_records(archive.data, "file"))


def _of_drops(archive: Archive) -> Found:
    return _read((arc if archive.is_arc else warc).iter_located(_Drops(archive.data), "file"))


def _of_a_file(archive: Archive) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(archive.data)
        with path.open("rb") as stream:
            return _read((arc if archive.is_arc else warc).iter_located(stream, "file"))


def _one_by_one(archive: Archive) -> Found:
    """Each record again, out of the bytes that an index would name, as a fetch reads it."""
    reader = arc if archive.is_arc else warc
    urls, faults = [], 0
    for each in reader.iter_located(archive.data, "file"):
        if isinstance(each, DataFault):
            faults += 1
            continue
        assert each.length is not None
        assert not each.inner_offset
        stored = archive.data[each.offset : each.offset + each.length]
        record = reader.read_record(stored, "file", each.offset)
        assert record.payload_digest == each.record.payload_digest
        urls.append(record.url)
    return tuple(url for url in urls if url.startswith("http")), faults


def _indexed(archive: Archive) -> Found:
    tally = Tally()
    rows = index_rows(archive.data, "crawl/x.arc.gz" if archive.is_arc else "crawl/x.warc.gz", None, tally)
    urls = tuple(row[1] for row in rows if not isinstance(row, DataFault))
    assert (len(urls), Counter(urls)) == (tally.rows, Counter(dict.fromkeys(urls, 1)))
    return urls, tally.faults


#: Readers of any file, and of those compressed by record.
ARCHIVE_READERS: dict[str, Callable[[Archive], Found]] = {
    "bytes": _of_bytes,
    "a stream that gives drops": _of_drops,
    "a file": _of_a_file,
}
BY_RECORD_READERS: dict[str, Callable[[Archive], Found]] = {
    "record by record": _one_by_one,
    "an index of one's own": _indexed,
}


def _said_length(record: bytes, by: int) -> bytes:
    """The record with another Content-Length of its block."""
    head, blank, block = record.partition(b"\r\n\r\n")
    before, name, length = head.rpartition(b"Content-Length: ")
    return before + name + str(int(length) + by).encode() + blank + block


_UNNAMED = builders.warc(
    b"HTTP/1.1 200 OK\r\n\r\nx", [("WARC-Type", "response"), ("WARC-Date", "2024-05-18T01:58:10Z")]
)
_IN_CHARACTERS = len(_BODY.decode()) - len(_BODY)
_ARC_FIRST, _ARC_SECOND = arc_record(builders.HTTP_OK + _BODY, url=A), arc_record(b"second", url=B)

ARCHIVES = (
    Archive("webrecorder/warcio#131", "one line end behind a record", _FIRST[:-2] + _SECOND),
    Archive("bitextor/bitextor#104", "nothing between two records", _FIRST[:-4] + _SECOND),
    Archive("archivesunleashed/aut#267", "five line ends between records", _FIRST + b"\r\n\r\n\r\n" + _SECOND),
    Archive("chfoo/warcat-rs#5", "compressed, under a name that does not say so", member(_FIRST) + member(_SECOND)),
    Archive(
        "webrecorder/warcio#42",
        "an address in angle brackets, by Wget",
        members([_FIRST.replace(A.encode(), b"<http://a.example/>"), _SECOND]),
        is_by_record=True,
    ),
    Archive("webrecorder/warcio#203", "a response without an address", _FIRST + _UNNAMED + _SECOND),
    Archive(
        "machawk1/warcreate#122",
        "the block's length counts characters, not bytes",
        _said_length(_FIRST, _IN_CHARACTERS) + _SECOND,
        faults=1,
    ),
    Archive(
        "gwu-libraries/sfm-ui#301",
        "a rest of a chunk behind a record",
        _FIRST[:-4] + b"\r\n3\r\n\r\n" + _SECOND,
        faults=1,
    ),
    Archive(
        "webrecorder/pywb#878",
        "half a page stands behind its record",
        _said_length(_FIRST, -30) + _SECOND,
        faults=1,
    ),
    Archive(
        "iipc/jwarc#86",
        "control characters and bytes beyond ASCII in an address",
        _FIRST.replace(A.encode(), b"http://a.example/tag/\x08\xc3\x80") + _SECOND,
        urls=("http://a.example/tag/\x08À", B),
    ),
    Archive(
        "webrecorder/warcio#99",
        "damage in a compressed file costs the record that it hit",
        member(_FIRST)
        + member(response(bytes(range(256)) * 9, url="http://hit.example/"))[:-60]
        + b"\0" * 60
        + member(_SECOND),
        faults=1,
        is_by_record=True,
    ),
    Archive(
        "openzim/zimit#299",
        "a record cut off within a file compressed by record",
        member(_FIRST) + member(response(b"x" * 999, url="http://cut.example/")[:700]) + member(_SECOND),
        faults=1,
        is_by_record=True,
    ),
    Archive(
        "apache/stormcrawler#652",
        "a zero byte behind the last member",
        member(_FIRST) + member(_SECOND) + b"\0",
        is_by_record=True,
    ),
    Archive(
        "RFC 1952 2.2",
        "padding with zero bytes to a tape's block",
        member(_FIRST) + member(_SECOND) + b"\0" * 4096,
        is_by_record=True,
    ),
    Archive("RFC 1952 2.2", "the same where nothing is compressed", _FIRST + _SECOND + b"\0" * 70_000),
    Archive(
        "iipc/jwarc#84",
        "zero bytes behind the last ARC record",
        filedesc() + _ARC_FIRST + _ARC_SECOND + b"\0" * 512,
        is_arc=True,
    ),
    Archive(
        "RFC 1952 2.2",
        "zero bytes between members are damage",
        member(_FIRST) + b"\0" * 512 + member(_SECOND),
        faults=1,
        is_by_record=True,
    ),
    Archive(
        "iipc/jwarc#84",
        "an ARC address with spaces",
        filedesc() + _ARC_FIRST.replace(A.encode(), b"http://a.example/form.cfm?no=WEL 802.02(B)&x=1") + _ARC_SECOND,
        urls=("http://a.example/form.cfm?no=WEL 802.02(B)&x=1", B),
        is_arc=True,
    ),
    Archive(
        "internetarchive/warctools#3",
        "an ARC line without type and length, which costs itself",
        filedesc()
        + _ARC_FIRST
        + b"http://x.example/robots.txt 192.0.2.5 20130908181048 08Sep201318:10-1:47GMT\n"
        + _ARC_SECOND,
        is_arc=True,
        faults=1,
    ),
    Archive(
        "iipc/jwarc#84", "two line ends between ARC records", filedesc() + _ARC_FIRST + b"\n" + _ARC_SECOND, is_arc=True
    ),
)
