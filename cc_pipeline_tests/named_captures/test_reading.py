"""Files of places, URLs and times, as tools and data sets write them."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cc_pipeline.errors import UserInputError
from cc_pipeline.named_captures.capture_rows import CaptureRowParser
from cc_pipeline.named_captures.reading import RejectedRows, read_chunks

_KEY = "crawl-data/CC-MAIN-2024-22/segments/1715/warc/CC-MAIN-20240518034305-20240518064305-00000.warc.gz"
_OLD = "s3n://aws-publicdatasets/common-crawl/parse-output/segment/1341690147253/1341708194364_4.arc.gz"
_WHEN, _DIGITS = datetime(2024, 5, 18, 4, 5, 6, tzinfo=UTC), "20240518040506"
_URL, _FACTS = "http://www.example.com/a", ("com,example)/a", "example.com", _KEY, 77)


def read(path: Path, **named: str) -> tuple[list[dict[str, object]], RejectedRows]:
    """The captures, and what is wrong."""
    wrong = RejectedRows()
    places = CaptureRowParser({"CC-MAIN-2024-22", "CC-MAIN-2012"}.__contains__, wrong)
    captures: list[dict[str, object]] = []
    for chunk in read_chunks(path, named, wrong):
        captures += places.parse(chunk).to_pylist()
    return captures, wrong


def _lines(*rows: dict[str, object]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _parquet(path: Path, rows: dict[str, object]) -> bytes:
    pq.write_table(pa.table({name: [value] for name, value in rows.items()}), path)
    return path.read_bytes()


_CDX = {"url": _URL, "mime": "text/html", "status": "200", "digest": "ABC", "length": "99", "offset": "77"}
_INDEX = {
    "url": _URL, "fetch_time": _WHEN, "fetch_status": 200, "content_mime_type": "text/html", "content_digest": "ABC",
    "warc_filename": _KEY, "warc_record_offset": 77, "warc_record_length": 99,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["cdx", "cdxj", "csv", "tsv", "athena", "gzip", "parquet", "named"])
def test_one_place_in_every_form(tmp_path: Path, kind: str) -> None:
    path, named = tmp_path / "rows", {}
    cdx = {**_CDX, "filename": f"https://data.commoncrawl.org/{_KEY}", "timestamp": _DIGITS}
    text = [[str(value) for value in row] for row in (cdx, cdx.values())]
    athena = ",".join(_INDEX) + "\n" + ",".join(f'"{value}"' for value in _INDEX.values()) + "\n"
    if kind == "named":
        named = {"warc_filename": "path", "warc_record_offset": "start"}
    data = {
        "cdx": lambda: _lines(cdx),
        "cdxj": lambda: b"com,example)/a %s %s" % (_DIGITS.encode(), _lines({**_CDX, "filename": _KEY})),
        "csv": lambda: "\r\n".join(map(",".join, text)).encode("utf-8-sig"),
        "tsv": lambda: "\n".join(map("\t".join, text)).encode(),
        "athena": lambda: athena.replace("+00:00", ".000 UTC").encode(),
        "gzip": lambda: gzip.compress(_lines(cdx)),
        "parquet": lambda: _parquet(path, _INDEX),
        "named": lambda: _lines({**_CDX, "timestamp": "2024-05-18T04:05:06Z", "path": f"/{_KEY}", "start": 77.0}),
    }[kind]()
    path.write_bytes(data)
    [row], wrong = read(path, **named)
    assert wrong.count == 0
    assert (row["url_surtkey"], row["domain"], row["warc_filename"], row["warc_record_offset"]) == _FACTS
    assert (row["crawl"], row["subset"], row["warc_record_length"]) == ("CC-MAIN-2024-22", "warc", 99)
    assert (row["fetch_time"], row["fetch_status"], row["content_digest"]) == (_WHEN, 200, "ABC")
    assert (row["content_mime_type"], row["warc_segment"], row["archive_format"]) == ("text/html", "1715", "warc")


def test_wrong_rows_are_named_and_cost_no_other(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    good = {"filename": _OLD, "offset": 5}
    path.write_bytes(
        _lines(
            good,
            {"filename": _KEY, "offset": -5},
            {"filename": "nonsense.warc.gz", "offset": 5},
            {"filename": _KEY.replace("2024-22", "1999-01"), "offset": 5},
            {"filename": _KEY, "offset": "five"},
            {"filename": _KEY, "offset": 5, "length": 0},
            {"filename": _KEY.replace("/warc/", "/wet/"), "offset": 5},
            {"filename": _KEY, "offset": 5, "crawl": "CC-MAIN-2012"},
            {"filename": f"../{_KEY}", "offset": 5},
            {"url": _URL},
            {"filename": _KEY, "offset": 5, "date": "yesterday"},
            {"offset": 5},
            {"url": _URL, "date": _DIGITS, "crawl": "CC-MAIN-2024-22"},
        )
        + b"{torn\n\n"
    )
    captures, wrong = read(path)
    [old] = captures
    assert old["warc_filename"] == "parse-output/segment/1341690147253/1341708194364_4.arc.gz"
    assert (old["crawl"], old["archive_format"], old["url"], old["warc_record_length"]) == (
        "CC-MAIN-2012", "arc", None, None,
    )  # fmt: skip
    # lines that cannot be read are told before the others of their piece
    assert wrong.count == 13 and sorted(row for row, _ in wrong.first) == list(range(2, 15))
    said = dict(wrong.first)
    for row, part in ((2, "-5 is negative"), (3, "no WARC file"), (4, "no such crawl"), (7, "of wet"), (8, "row says"),
                      (10, "has no location"), (13, "has no location"),
                      (11, "'yesterday' cannot be read; write 20240131235959")):  # fmt: skip
        assert part in said[row], said[row]


def test_columns_that_name_nothing_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    for text, part in (("a,b\n1,2\n", "its columns are a, b"), ("", "has no rows"), (b"\xff\xfe", "cannot be read")):
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(UserInputError, match=part):
            read(path)
    path.write_bytes(f"filename,offset\nx\n{_KEY},5\n".encode())
    [row], wrong = read(path)
    assert row["warc_record_offset"] == 5 and wrong.first == [(1, "the row has 1 column, and the first line has 2")]
    path.write_bytes(b"url,date\nhttp://example.com/,2024-05-18\n")
    with pytest.raises(UserInputError, match="needs two columns with archive file and offset"):
        read(path)
    with pytest.raises(UserInputError, match="has no column 'path'"):
        read(path, warc_filename="path")


def test_odd_values_cost_no_other_row(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    good = {"filename": _KEY, "offset": 5}
    deep = b'{"filename": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    path.write_bytes(_lines(good) + deep + _lines({**good, "offset": 6, "url": "http://a.com/\ud800"}))
    [row, torn], wrong = read(path)
    assert (row["warc_record_offset"], torn["url"]) == (5, "http://a.com/\\ud800")
    assert [number for number, _ in wrong.first] == [2]

    late = pa.array([1_715_000_000, 300_000_000_000], pa.timestamp("s"))
    columns = [pa.array([_KEY] * 2), pa.array([5, 6]), pa.array([7, 8]), late]
    pq.write_table(pa.Table.from_arrays(columns, ["filename", "offset", "offset", "date"]), path)
    [row], wrong = read(path)
    assert (row["warc_record_offset"], row["fetch_time"]) == (5, datetime(2024, 5, 6, 12, 53, 20, tzinfo=UTC))
    assert (wrong.count, wrong.first[0][0]) == (1, 2) and "11476" in wrong.first[0][1]

    packed = bytearray(gzip.compress(_lines(good) * 100, mtime=0))
    packed[15] ^= 0xFF
    path.write_bytes(packed)
    with pytest.raises(UserInputError, match=r"rows cannot be read: .*Error -3"):
        read(path)
