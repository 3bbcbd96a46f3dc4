"""Path lists and names of files, of all years."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
from datetime import UTC, datetime
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.paths import (
    ArcFile,
    IndexFile,
    PathList,
    WarcFile,
    arc_key,
    cluster_key,
    current_key,
    listed_keys,
    parse_arc_key,
    parse_keys,
    parse_path_list,
    parse_valid_segments,
    path_list_key,
    refuse_faulty_list,
    segment_of,
    segments_key,
    subset_of,
)
from cc_pipeline.errors import DataFault, DataKind, UserInputError
from cc_pipeline_tests.corpus import CORPUS, needs_corpus

INDEX_PATH = (
    "cc-index/table/cc-main/warc/crawl=CC-MAIN-2022-05/subset=warc/"
    "part-00017-dbb5a216-dcb2-4bac-b117-e812a7114833.c000.gz.parquet"
)


def test_path_lists() -> None:
    assert path_list_key("2024-22", "cc-index-table") == "crawl-data/CC-MAIN-2024-22/cc-index-table.paths.gz"
    assert len(get_args(PathList)) == 6 and "segment" in get_args(PathList)
    assert cluster_key("CC-MAIN-2024-22") == "cc-index/collections/CC-MAIN-2024-22/indexes/cluster.idx"
    text = f"{INDEX_PATH}\n\n common-crawl/crawl-data/CC-MAIN-2013-20/segments/1/ \r\n"
    assert parse_path_list(gzip.compress(text.encode(), mtime=0)) == (
        INDEX_PATH,
        "crawl-data/CC-MAIN-2013-20/segments/1/",
    )
    two_members = gzip.compress(b"a\nb", mtime=0) + gzip.compress(b"c\n", mtime=0) + b"\0" * 512
    assert parse_path_list(two_members) == ("a", "bc")
    assert parse_path_list(gzip.compress(b"", mtime=0)) == ()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"<?xml version='1.0'?><Error><Code>SlowDown</Code></Error>", "not gzip"),
        (gzip.compress(b"a\nb\n" * 100, mtime=0)[:-9], "too early"),
        (gzip.compress(b"a\n", mtime=0) + b"rubbish", "not gzip"),
        (gzip.compress(b"\0" * 5_000_000, mtime=0), "more than"),
        (gzip.compress(b"good\n../../etc/passwd\n", mtime=0), r"'\.\.'"),
        (gzip.compress(b"https://elsewhere.example/x\n", mtime=0), "relative"),
        (gzip.compress("crawl-data/é\n".encode(), mtime=0), "ASCII"),
        (gzip.compress(b"a//b\n", mtime=0), "relative"),
    ],
)
def test_a_damaged_list_is_a_data_fault(data: bytes, reason: str) -> None:
    with pytest.raises(DataFault, match=reason) as fault:
        parse_path_list(data, "list.gz", limit=1_000_000)
    assert fault.value.source == "list.gz"


@needs_corpus
def test_the_lists_of_the_real_bucket_name_what_is_there() -> None:
    bucket = CORPUS / "realcrawl" / "bucket"
    for crawl in ("CC-MAIN-2024-22", "CC-MAIN-2018-05"):
        files = parse_path_list((bucket / path_list_key(crawl, "cc-index-table")).read_bytes())
        assert {IndexFile.from_path(key).crawl for key in files} == {crawl}
        assert {IndexFile.from_path(key).subset for key in files} == {"warc", "crawldiagnostics"}
        archives = parse_path_list((bucket / path_list_key(crawl, "warc")).read_bytes())
        assert {WarcFile.from_path(key).crawl for key in archives} == {crawl}
        assert all((bucket / key).is_file() for key in (*files, *archives, cluster_key(crawl)))


def test_index_files() -> None:
    assert IndexFile.from_path(INDEX_PATH) == IndexFile(INDEX_PATH, "CC-MAIN-2022-05", "warc", 17)
    for wrong in ("", "x.parquet", INDEX_PATH + ".crc", INDEX_PATH.replace("subset=warc/", "")):
        with pytest.raises(DataFault):
            IndexFile.from_path(wrong)


@needs_corpus
def test_warc_files_of_all_years() -> None:
    for row in json.loads((CORPUS / "cc_index/extracted_vectors/warc_filename_parts.json").read_text()):
        file = WarcFile.from_path(row["filename"])
        assert (file.crawl, file.segment, file.subset) == (row["crawl"], row["segment"], row["subset"])
    lines = (CORPUS / "cc_index/extracted_vectors/early_crawl_paths_sample.txt").read_text().splitlines()
    assert len(lines) == 2906
    for line in lines:
        file = WarcFile.from_path(line)
        assert file.path == line.removeprefix("common-crawl/") and f"segments/{file.segment}/{file.subset}/" in line
        assert file.number is not None and file.started is not None and file.started.year in (2013, 2014)


def test_warc_file_names() -> None:
    name = "CC-MAIN-20240517233122-20240518023122-00042.warc.gz"
    file = WarcFile.from_path(f"crawl-data/CC-MAIN-2024-22/segments/1715971057216.39/robotstxt/{name}")
    assert (file.subset, file.segment, file.number) == ("robotstxt", "1715971057216.39", 42)
    assert file.ended == datetime(2024, 5, 18, 2, 31, 22, tzinfo=UTC)
    odd = WarcFile.from_path("crawl-data/CC-MAIN-2030-01/segments/abc/warc/new-name.warc.gz")
    assert odd.segment == "abc" and odd.number is None and odd.started is None
    with pytest.raises(DataFault):
        WarcFile.from_path("parse-output/segment/1/2_3.arc.gz")


@pytest.mark.parametrize(
    "address",
    [
        "crawl-002/2009/09/17/0/1253228619531_0.arc.gz",
        "/crawl-002/2009/09/17/0/1253228619531_0.arc.gz",
        "common-crawl/crawl-002/2009/09/17/0/1253228619531_0.arc.gz",
        "s3://aws-publicdatasets/common-crawl/crawl-002/2009/09/17/0/1253228619531_0.arc.gz",
        "s3n://aws-publicdatasets/common-crawl/crawl-002/2009/09/17/0/1253228619531_0.arc.gz",
        "https://aws-publicdatasets.s3.amazonaws.com/common-crawl/crawl-002/2009/09/17/0/1253228619531_0.arc.gz",
        "http://s3.amazonaws.com/aws-publicdatasets/common-crawl/crawl-002/2009/09/17/0/1253228619531_0.arc.gz",
        "https://data.commoncrawl.org/crawl-002/2009/09/17/0/1253228619531_0.arc.gz",
        "s3://commoncrawl/crawl-002/2009/09/17/0/1253228619531_0.arc.gz",
        "https://commoncrawl.s3.us-east-1.amazonaws.com/crawl-002/2009/09/17/0/1253228619531_0.arc.gz",
    ],
)
def test_addresses_of_all_years(address: str) -> None:
    assert current_key(address) == "crawl-002/2009/09/17/0/1253228619531_0.arc.gz"
    assert parse_arc_key(address) == ArcFile("CC-MAIN-2009-2010", 0, 1253228619531, 0)


@pytest.mark.parametrize("address", ["", "a\nb", "x/../y", "s3://other/x", "a\\b", "x" * 1025, "./a", "http://[::1/x"])
def test_what_is_no_key(address: str) -> None:
    with pytest.raises(DataFault):
        current_key(address)


@pytest.mark.parametrize(
    ("key", "file"),
    [
        ("crawl-001/2008/06/25/11/1214440586619_11.arc.gz", ArcFile("CC-MAIN-2008-2009", 0, 1214440586619, 11)),
        ("crawl-001/2008/10/14/22/1224046153641_22.arc.gz", ArcFile("CC-MAIN-2008-2009", 0, 1224046153641, 22)),
        ("crawl-002/2010/01/06/0/1262850367358_0.arc.gz", ArcFile("CC-MAIN-2009-2010", 0, 1262850367358, 0)),
        (
            "parse-output/segment/1346876860567/1346913882801_4096.arc.gz",
            ArcFile("CC-MAIN-2012", 1346876860567, 1346913882801, 4096),
        ),
    ],
)
def test_arc_files(key: str, file: ArcFile) -> None:
    assert parse_arc_key(key) == file
    assert arc_key(file) == key


@needs_corpus
def test_every_listed_file_of_crawl_002_follows_from_its_numbers() -> None:
    listed = gzip.decompress((CORPUS / "cc_index/matpalm_arc_paths/arc_files.gz").read_bytes()).decode().splitlines()
    keys = ["crawl-002/" + line.partition("\t")[0] for line in listed]
    assert len(keys) == 323_694
    for key in keys[::23]:
        assert arc_key(parse_arc_key(key)) == key


@pytest.mark.parametrize(
    "key",
    [
        "crawl-002/2009/09/18/0/1253228619531_0.arc.gz",
        "crawl-002/2009/09/17/1/1253228619531_0.arc.gz",
        "crawl-003/2009/09/17/0/1253228619531_0.arc.gz",
        "crawl-002/2009/09/17/0/999999999999999_0.arc.gz",
        "parse-output/segment/1/metadata-00000",
    ],
)
def test_what_is_no_arc_file(key: str) -> None:
    with pytest.raises(DataFault):
        parse_arc_key(key)


def test_valid_segments() -> None:
    assert segments_key() == "parse-output/valid_segments.txt"
    assert parse_valid_segments(b"1346823845675\n1346876860567\r\n\n1346823845675\n") == (1346823845675, 1346876860567)
    with pytest.raises(UserInputError):
        segments_key("CC-MAIN-2009-2010")
    with pytest.raises(DataFault) as fault:
        parse_valid_segments(b"1\n<Error>\n")
    assert fault.value.offset == 2
    odd: list[DataFault] = []
    assert parse_valid_segments(b"1\n<Error>\n2\n", faults=odd) == (1, 2)
    assert [fault.offset for fault in odd] == [2]


#: Lines that are no key, as lists have them by mistake: a long one, other bytes, half a page of HTML.
_ODD = st.sampled_from([b"../x", b"a//b", b"x" * 5_000, "crawl-data/\u00e9".encode(), b"a/../b", b"\x00\xff", b"s3://"])


@given(st.lists(st.one_of(st.sampled_from([b"crawl-data/a", b"cc-index/b", b""]), _ODD)), st.integers(1, 6_000))
def test_an_odd_line_costs_itself_wherever_the_text_is_cut(lines: list[bytes], size: int) -> None:
    text = b"\n".join(lines)
    odd: list[DataFault] = []
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    good = [line.decode() for line in lines if line.startswith((b"crawl-data/a", b"cc-index/b"))]
    assert [key for _, key in listed_keys(pieces, "list", faults=odd)] == good
    assert len(odd) == len([line for line in lines if line.strip()]) - len(good)
    starts = [len(b"\n".join(lines[:at])) + (at > 0) for at in range(len(lines))]
    bad = [at for at, line in zip(starts, lines, strict=True) if line and line.decode("latin-1") not in good]
    assert [fault.offset for fault in odd] == bad


@pytest.mark.parametrize(
    ("odd", "good", "refused"), [(0, 0, False), (1, 0, True), (1, 1, False), (2, 19, True), (2, 20, False)]
)
def test_a_list_of_many_odd_lines_is_none(odd: int, good: int, refused: bool) -> None:
    faults = [DataFault(DataKind.MALFORMED, "list", at, "is no key") for at in range(odd)]
    with pytest.raises(DataFault) if refused else contextlib.nullcontext():
        refuse_faulty_list(faults, good)


def test_the_segment_and_the_subset_of_archive_files() -> None:
    assert segment_of("crawl-data/C/segments/17.2/robotstxt/f.warc.gz") == "17.2"
    assert segment_of("parse-output/segment/13/f.arc.gz") == "13"
    assert segment_of("crawl-002/2009/f.arc.gz") is None
    assert subset_of("crawl-data/C/segments/17.2/robotstxt/f.warc.gz") == "robotstxt"
    assert subset_of("parse-output/segment/13/f.arc.gz") == "warc"


KEYS = st.lists(st.from_regex(r"[a-z0-9][a-z0-9._-]{0,30}(/[a-z0-9]{1,8}){0,3}", fullmatch=True), max_size=40)


@given(KEYS, st.lists(st.integers(0, 2000), max_size=6), st.sampled_from([b"\n", b"\r\n", b"\n\n", b" \n"]))
def test_pieces_and_members_make_no_difference(keys: list[str], cuts: list[int], end: bytes) -> None:
    text = b"".join(key.encode() + end for key in keys)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[first:last] for first, last in itertools.pairwise(places)]
    assert parse_keys(pieces, "s") == tuple(keys)
    packed = b"".join(gzip.compress(piece, mtime=0) for piece in pieces) or gzip.compress(b"")
    assert parse_path_list(packed) == tuple(keys)
    assert parse_path_list(packed + b"\0" * 40) == tuple(keys)
