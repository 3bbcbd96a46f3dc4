"""A cluster.idx and its members: CDXJ lines of the wild, and damage."""

from __future__ import annotations

import gzip
import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from cc_pipeline.commoncrawl.key_ranges import KeyRange
from cc_pipeline.commoncrawl.paths import cluster_key
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import DataFault
from cc_pipeline.index.locator import LookupResult
from cc_pipeline.index.zipnum.cluster import Cluster
from cc_pipeline.index.zipnum.locator import ZipNumLocator, capture_of
from cc_pipeline.progress import format_count
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.corpus import CORPUS, needs_corpus
from cc_pipeline_tests.index.memory import Memory

CRAWL = "CC-MAIN-2024-22"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"com,a)/ 2024\tcdx-00000.gz\t0\t10\t1", "ends inside a line"),
        (b"com,a)/ 2024\tcdx-00000.gz\t0\n", "no line of a cluster.idx"),
        (b"com,a)/ 2024\tcdx-00000.gz\t-1\t10\t1\n", "no line of a cluster.idx"),
        (b"com,a)/ 2024\t../cdx-00000.gz\t0\t10\t1\n", "impossible place"),
        (b"com,a)/ 2024\tcdx-00000.gz\t0\t0\t1\n", "impossible place"),
        (b"com,b)/ 2024\tc.gz\t0\t10\t1\ncom,a)/ 2024\tc.gz\t10\t10\t2\n", "unsorted: "),
    ],
)
def test_a_damaged_cluster_is_an_error(content: bytes, reason: str) -> None:
    with pytest.raises(DataFault, match=reason):
        list(Cluster(Memory(content), "cluster.idx").members([KeyRange(b"", None)]))


def _line(key: str, **said: Any) -> bytes:
    said = {"url": "https://example.com/", "filename": "a/segments/1.2/warc/f.warc.gz", "offset": "5"} | said
    return f"{key} 20240518010203 {json.dumps({'length': '7'} | said)}".encode()


def _bucket(root: Path, members: list[list[bytes]]) -> None:
    _raw_bucket(root, [b"".join(line + b"\n" for line in lines) for lines in members])


def _raw_bucket(root: Path, members: list[bytes]) -> None:
    key = cluster_key(CRAWL)
    folder = (root / key).parent
    folder.mkdir(parents=True)
    shard, cluster = b"", b""
    for text in members:
        member = gzip.compress(text, mtime=0)
        head = text.split(b" ")[0] if text else b"com,example)/"
        cluster += b"%s 20240518010203\tcdx-00000.gz\t%d\t%d\t1\n" % (head, len(shard), len(member))
        shard += member
    (folder / "cdx-00000.gz").write_bytes(shard)
    (root / key).write_bytes(cluster)


def test_unknown_keys_of_a_line_are_kept_and_odd_values_survive() -> None:
    line = _line(
        "com,example)/", mime="unk", status="-", digest="sha1:ABC", mood={"a": 1}, vari="ä", truncated="length"
    )
    row = capture_of(line, "shard", 3)
    assert row["extra_columns"] == [("mood", '{"a": 1}'), ("vari", "ä")]
    assert (row["fetch_status"], row["content_digest"], row["content_truncated"]) == (None, "ABC", "length")
    assert (row["subset"], row["warc_segment"], row["warc_record_offset"]) == ("warc", "1.2", 5)
    odd_time = capture_of(line.replace(b"20240518010203", b"2024"), "shard", 3)
    assert odd_time["fetch_time"] is None
    assert ("timestamp", "2024") in odd_time["extra_columns"]


@pytest.mark.parametrize("written", ["{}", "<urn:uuid:{}>", "urn:uuid:{}"])
def test_the_id_of_a_record_is_as_in_the_columnar_index(written: str) -> None:
    record_id = uuid.UUID("0190a1b2-c3d4-4e5f-8a6b-7c8d9e0f1a2b")
    row = capture_of(_line("com,example)/", recordid=written.format(record_id)), "shard", 3)
    assert (row["warc_record_id"], row["extra_columns"]) == (record_id.bytes, None)
    odd = capture_of(_line("com,example)/", recordid="12"), "shard", 3)
    assert (odd["warc_record_id"], odd["extra_columns"]) == (None, [("recordid", "12")])


def test_a_broken_line_elsewhere_harms_nobody(tmp_path: Path) -> None:
    _bucket(tmp_path, [[b"com,aaa)/ 2024 broken", _line("com,example)/"), b"com,zzz)/ 2024 broken"]])
    # a target's own broken line is an error; that of somebody else is not
    with Transport(str(tmp_path)) as transport:
        found = ZipNumLocator(transport, CRAWL).locate(CRAWL, ["warc"], [parse_target("example.com")])
    assert found.captures["example.com"].num_rows == 1


def _locate(root: Path) -> LookupResult:
    with Transport(str(root)) as transport:
        locator = ZipNumLocator(transport, CRAWL)
        return locator.locate(CRAWL, ["warc"], [parse_target("example.com")])


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
def test_old_members_have_no_last_line_end_and_joined_records(tmp_path: Path, end: bytes) -> None:
    lines = [_line(f"com,example)/{n}?}}{{", url=f"https://example.com/{n}?}}{{", offset=str(n)) for n in range(6)]
    text = lines[0] + b"\n" + lines[1] + lines[2] + lines[3] + b"\n" + lines[4] + b"\n" + lines[5] + end
    _raw_bucket(tmp_path, [text])
    found = _locate(tmp_path)
    assert found.captures["example.com"]["warc_record_offset"].to_pylist() == list(range(6))
    assert (found.notes, found.gaps) == ((), None)


@pytest.mark.parametrize(
    "bad",
    [
        _line("com,example)/b", length="-1"),
        _line("com,example)/b", offset="x"),
        _line("com,example)/b")[:-4],
        b"com,example)/b 20240518010203",
        b"\0\xff",
    ],
)
def test_a_bad_line_costs_itself_and_is_named(tmp_path: Path, bad: bytes) -> None:
    _bucket(tmp_path, [[_line("com,example)/a"), bad, _line("com,example)/c"), bad, _line("com,example)/d")]])
    if bad.startswith(b"com,example)/b"):
        _bucket(tmp_path / "sorted", [[_line("com,example)/a"), bad, _line("com,example)/c")]])
        tmp_path, count = tmp_path / "sorted", 1
    else:
        count = 2
    found = _locate(tmp_path)
    assert found.captures["example.com"].num_rows == 2 + (count - 1)
    [note] = found.notes
    assert note.startswith(f"{format_count(count, 'line')} of the index left out")
    assert "cdx-00000.gz at byte 0" in note


def test_a_member_that_cannot_be_read_is_a_named_gap(tmp_path: Path) -> None:
    _bucket(tmp_path, [[_line(f"com,example)/{m}{n}") for n in range(9)] for m in range(3)])
    key = cluster_key(CRAWL)
    _, second, _ = (tmp_path / key).read_bytes().splitlines()
    offset = int(second.split(b"\t")[2])
    shard = tmp_path / key.replace("cluster.idx", "cdx-00000.gz")
    content = shard.read_bytes()
    shard.write_bytes(content[:offset] + b"\0" + content[offset + 1 :])
    found = _locate(tmp_path)
    assert found.captures["example.com"].num_rows == 18
    assert found.gaps is not None
    assert found.gaps.summary == f"1 of 3 blocks of the URL index of {CRAWL} warc"
    assert f"cdx-00000.gz at byte {offset} (a member cannot be inflated" in found.gaps.file_summary


@needs_corpus
def test_a_real_piece_of_a_cluster_idx() -> None:
    snippet = (CORPUS / "cc_index" / "preciz" / "cluster_idx_snippet").read_bytes()
    whole = snippet[: snippet.rindex(b"\n") + 1]
    lines = [line.split(b"\t") for line in whole.splitlines()]
    cluster = Cluster(Memory(whole), "cluster.idx")
    members = list(cluster.members([KeyRange(b"", None)]))
    assert [member.offset for member in members] == [int(line[2]) for line in lines]
    middle = lines[len(lines) // 2]
    key = middle[0].split(b" ")[0]
    assert int(middle[2]) in [member.offset for member in cluster.members([KeyRange(key, key + b"\0")])]


@needs_corpus
def test_real_lines_of_index_servers() -> None:
    rows = json.loads((CORPUS / "cc_index" / "extracted_vectors" / "cdxj_lines_from_java_tests.json").read_text())
    read = [capture_of(row["cdxj"].encode(), "s", 0) for row in rows if not row["cdxj"].startswith("{")]
    assert [row["url"] for row in read[:1]] == ["dns:www.example.com"]
    assert all(row["warc_record_length"] > 0 and row["fetch_status"] == 200 for row in read)
