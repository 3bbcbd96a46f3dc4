"""Every archive of the corpus, read beside warcio and FastWARC.

Where the two agree and the file is sound, so must we, field by field. Where they do not, a file is damaged, and
then there is a fault or a flag: never fewer records than others find without a word.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from warcio.archiveiterator import ArchiveIterator

from cc_pipeline.archive import arc, warc
from cc_pipeline.archive.record import FLAGS, ArchivedRecord
from cc_pipeline.errors import DataFault
from cc_pipeline_tests.archive.builders import faults_of, records_of
from cc_pipeline_tests.corpus import CORPUS, needs_corpus

pytestmark = needs_corpus

FOLDERS = ("cc_warc_wat_wet", "arc_legacy", "warc_edge_malformed")
FOUND = re.compile(r"warcio=(\d+) (ok|then).*fastwarc=(\w+)")

#: What the corpus' damaged and odd files must give: (records, faults).
EXPECTED = {
    "cc_warc_wat_wet/cc_scala_tools_wet/corrupt_two_warcinfo.wet.gz": (7, 0),
    "cc_warc_wat_wet/cc_scala_tools_wet/file_headers_only.wet.gz": (1, 0),
    "cc_warc_wat_wet/cc_scala_tools_wet/fragment1_incomplete_last.wet.gz": (2, 1),
    "cc_warc_wat_wet/cc_scala_tools_wet/fragment2_no_header.wet.gz": (1, 2),
    "cc_warc_wat_wet/sparkwarc/sample.wet.gz": (68, 1),
    "arc_legacy/jwat/invalid-arcfile-record-then-garbage.arc": (1, 1),
    "arc_legacy/netarchivesuite/arc/data/input/Reader4.cdx": (0, 1),
    "arc_legacy/netarchivesuite/arc/data/originals/2-metadata-1.arc": (2, 0),
    "arc_legacy/netarchivesuite/arc/data/originals/bitarchive1_to_fail/filedir/integrity11.ARC": (1, 1),
    "arc_legacy/warcio/bad.arc": (3, 1),
    "arc_legacy/warcio/example-space-in-url.arc": (2, 0),
    "warc_edge_malformed/daft/example.warc": (30, 0),
    "warc_edge_malformed/daft/example.warc.gz": (30, 0),
    "warc_edge_malformed/gowarc/warcs/corrupted-mid-record.warc.gz.open": (12, 1),
    "warc_edge_malformed/gowarc/warcs/corrupted-trailing-bytes.warc.gz.open": (30, 1),
    "warc_edge_malformed/gowarc/warcs/good.warc.gz.open": (50, 0),
    "warc_edge_malformed/ipwb/warcs/5mementos.warc": (8, 0),
    "warc_edge_malformed/ipwb/warcs/broken.warc": (6, 1),
    "warc_edge_malformed/jwat/jwat-gzip/src/test/resources/invalid-entries.gz": (0, 3),
    "warc_edge_malformed/jwat/jwat-warc/src/test/resources/invalid-warcfile-record-then-garbage.warc": (1, 1),
    "warc_edge_malformed/jwat/jwat-warc/src/test/resources/valid-warcfile-fields-continuation.warc": (1, 0),
    "warc_edge_malformed/resiliparse/clipped.warc.gz": (0, 1),
    "warc_edge_malformed/richardlehane_jhove/jhove/invalid/invalid-warcrecord-1.warc": (4, 2),
    "warc_edge_malformed/solrwayback/compressions_warc/transfer_compression_none_truncated.warc.gz": (2, 1),
    "warc_edge_malformed/solrwayback/example_warc/Evil-Warc-Headers.warc": (0, 1),
    "warc_edge_malformed/toimik_cc/WarcParserStreamer/conversion.warc": (3, 0),
}


def manifest() -> dict[str, str]:
    with (CORPUS / "MANIFEST.tsv").open(newline="") as file:
        return {row["path"]: row["how other readers fare"] for row in csv.DictReader(file, delimiter="\t")}


def archives() -> list[str]:
    if not CORPUS.is_dir():
        return []
    paths = (path for folder in FOLDERS for path in (CORPUS / folder).rglob("*") if path.is_file())
    return sorted(str(path.relative_to(CORPUS)) for path in paths)


def reader(name: str) -> Callable[..., Iterator[ArchivedRecord | DataFault]]:
    legacy = name.startswith("arc_legacy") or name.lower().endswith(".arc")
    return arc.iter_records if legacy else warc.iter_records


def read(name: str) -> tuple[list[ArchivedRecord], list[DataFault]]:
    found = list(reader(name)(CORPUS / name, name))
    return records_of(found), faults_of(found)


def test_the_whole_corpus() -> None:
    """Records or faults from every file, closed flags, places in range, and nobody finds more without our saying so."""
    others = manifest()
    compared = 0
    for name in archives():
        records, faults = read(name)
        assert records or faults, name
        size = (CORPUS / name).stat().st_size
        assert all(fault.source == name and 0 <= (fault.offset or 0) <= size for fault in faults), name
        assert all(set(record.flags) <= set(FLAGS) for record in records), name
        said = FOUND.search(others.get(name, ""))
        if said is not None and said[2] == "ok" and name not in EXPECTED:
            assert len(records) == int(said[1]) or faults, name
            compared += 1
    assert compared > 80


@pytest.mark.parametrize("name", list(EXPECTED))
def test_odd_and_damaged_files(name: str) -> None:
    records, faults = read(name)
    assert (len(records), len(faults)) == EXPECTED[name]


@pytest.mark.parametrize("name", archives())
def test_field_by_field_beside_warcio(name: str) -> None:
    records, faults = read(name)
    theirs = list(as_warcio_reads(CORPUS / name))
    repaired = any("wrong-length" in record.flags or "folded-header" in record.flags for record in records)
    if faults or repaired or {} in theirs:
        return
    if len(theirs) != len(records):
        assert name in EXPECTED
        return
    for ours, their in zip(records, theirs, strict=True):
        assert ours.url == their["url"]
        assert {"arc": "response", "filedesc": "arc_header"}.get(ours.record_type, ours.record_type) == their["type"]
        if {"http-lf-only", "no-status-line", "no-header-end", "bytes-after-record"} & set(ours.flags):
            continue
        if ours.http_status is not None and ours.url.startswith("http"):
            assert (ours.http_status, ours.payload) == (their["status"], their["payload"])
            if "http-malformed-line" not in ours.flags and "http-folded-header" not in ours.flags:
                assert [key.lower() for key, _ in ours.http_headers] == [key.lower() for key, _ in their["http"]]
        elif ours.http_status_line is None and ours.container == "warc":
            assert ours.payload == their["payload"]


def as_warcio_reads(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        try:
            for record in ArchiveIterator(file, arc2warc=False):
                http = record.http_headers
                status = http.get_statuscode() if http else None
                yield {
                    "type": record.rec_type,
                    "url": (
                        record.rec_headers.get_header("WARC-Target-URI") or record.rec_headers.get_header("uri") or ""
                    ).strip("<>"),
                    "status": int(status) if status and status.isdigit() else None,
                    "http": http.headers if http else [],
                    "payload": record.raw_stream.read(),
                }
        except Exception:  # warcio raises many things on damage; then there is nothing to compare
            yield {}


TWINS = [
    ("cc_warc_wat_wet/whirlwind/whirlwind.warc", "cc_warc_wat_wet/whirlwind/whirlwind.warc.gz"),
    (
        "cc_warc_wat_wet/ia-web-commons/format/warc/IAH-urls-wget.warc",
        "cc_warc_wat_wet/ia-web-commons/format/gzip/IAH-urls-wget.warc.gz",
    ),
    ("cc_warc_wat_wet/sparkwarc/sample.wet", "cc_warc_wat_wet/sparkwarc/sample.wet.gz"),
    ("arc_legacy/warcio/example.arc", "arc_legacy/warcio/example.arc.gz"),
    ("warc_edge_malformed/daft/example.warc", "warc_edge_malformed/daft/example.warc.gz"),
]


@pytest.mark.parametrize(("plain", "packed"), TWINS)
def test_compressed_and_uncompressed_twins(plain: str, packed: str) -> None:
    texts = [
        [
            (one.record_type, one.url, one.fetch_time, one.http_status, one.http_headers, one.payload)
            for one in read(name)[0]
        ]
        for name in (plain, packed)
    ]
    assert texts[0] == texts[1]
    assert texts[0]


def test_arc_and_warc_twins() -> None:
    """One crawl that was stored in both formats: the same exchanges, the same payloads."""
    as_arc, _ = read("arc_legacy/jwat/IAH-20080430204825-00000-blackbook.arc.gz")
    as_warc, _ = read(
        "warc_edge_malformed/jwat/jwat-gzip/src/test/resources/IAH-20080430204825-00000-blackbook.warc.gz"
    )
    exchanges = {(one.url, one.fetch_time): one for one in as_warc if one.record_type == "response"}
    compared = 0
    for one in as_arc:
        twin = exchanges.get((one.url, one.fetch_time))
        if twin is not None:
            assert (one.http_status, one.http_headers, one.payload) == (
                twin.http_status,
                twin.http_headers,
                twin.payload,
            )
            compared += 1
    assert compared > 200


def test_an_arc_file_that_was_cut_off_gives_what_the_whole_one_has() -> None:
    cut, _ = read("arc_legacy/webarchive-commons/IAH-20080430204825-00000-blackbook-truncated.arc")
    whole, _ = read("arc_legacy/jwat/IAH-20080430204825-00000-blackbook.arc.gz")
    same = [(one.url, one.payload) for one in cut]
    assert same[1:] == [(one.url, one.payload) for one in whole][1 : len(cut)]


def test_real_range_responses() -> None:
    folder = CORPUS / "cc_index" / "real_range_responses"
    for answer in json.loads((folder / "responses.json").read_text()):
        record = warc.read_record((folder / answer["file"]).read_bytes(), answer["url"], answer["offset"])
        row = answer["index_row"]
        assert (record.url, record.http_status, record.payload_digest) == (
            row["url"],
            int(row["status"]),
            row["digest"],
        )
        assert record.fetch_time is not None
        assert record.fetch_time.strftime("%Y%m%d%H%M%S") == row["timestamp"]
        assert record.flags == ()


def test_real_captures_of_three_crawls() -> None:
    """Every capture the index of the real bucket names: URL, status, time and digest as the index has them."""
    bucket = CORPUS / "realcrawl" / "bucket"
    expected = json.loads(gzip.decompress((CORPUS / "realcrawl" / "expected.json.gz").read_bytes()))
    for crawl in ("CC-MAIN-2024-22", "CC-MAIN-2018-05"):
        for row in expected[crawl]:
            member = part(bucket / row["warc_filename"], row["warc_record_offset"], row["warc_record_length"])
            record = warc.read_record(member, row["warc_filename"], row["warc_record_offset"])
            assert (record.url, record.http_status, record.flags) == (row["url"], row["fetch_status"], ())
            assert record.payload_digest == record.declared_digest == row["content_digest"] == row["sha1_body"]
            assert record.fetch_time is not None
            assert record.fetch_time.isoformat() == row["fetch_time"]
    for _, (segment, date, number, offset, size), url, time in expected["CC-MAIN-2012"]:
        path = bucket / "parse-output" / "segment" / str(segment) / f"{date}_{number}.arc.gz"
        legacy = arc.read_record(part(path, offset, size), path.name, offset)
        assert (legacy.url, legacy.flags) == (url, ())
        assert legacy.fetch_time is not None
        assert legacy.fetch_time.strftime("%Y%m%d%H%M%S") == time


def part(path: Path, offset: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset, io.SEEK_SET)
        return file.read(length)
