"""ZipNum, path lists, collinfo, and the B-tree of 2012, read here with the plainest code that can read them."""

from __future__ import annotations

import gzip
import json
import struct

import pytest

from cc_pipeline_tests.testing.mini_crawl.conftest import ARC, NEW, OLD, Bucket


def key_list(bucket: Bucket, crawl: str, name: str) -> list[str]:
    return gzip.decompress((bucket.root / f"crawl-data/{crawl}/{name}.paths.gz").read_bytes()).decode().splitlines()


@pytest.mark.parametrize("crawl", [NEW, OLD])
def test_the_path_lists_name_every_file_and_nothing_else(bucket: Bucket, crawl: str) -> None:
    names = ("warc", "robotstxt", "non200responses", "cc-index", "cc-index-table")
    listed = [key for name in names for key in key_list(bucket, crawl, name)]
    assert len(listed) == len(set(listed))
    lists = {f"crawl-data/{crawl}/{name}.paths.gz" for name in (*names, "segment")}
    present = {
        path.relative_to(bucket.root).as_posix()
        for path in bucket.root.rglob("*")
        if path.is_file() and crawl in path.as_posix()
    }
    assert set(listed) == present - lists
    segments = key_list(bucket, crawl, "segment")
    assert segments and all((bucket.root / key).is_dir() and key.endswith("/") for key in segments)


def test_collinfo_lists_the_crawls_newest_first(bucket: Bucket) -> None:
    entries = json.loads((bucket.root / "collinfo.json").read_bytes())
    assert [entry["id"] for entry in entries] == [NEW, OLD, ARC]
    assert all(set(entry) == {"id", "name", "timegate", "cdx-api", "from", "to"} for entry in entries)
    assert all(entry["from"] < entry["to"] for entry in entries)


@pytest.mark.parametrize("crawl", [NEW, OLD])
def test_zipnum_lines_are_the_index_rows(bucket: Bucket, crawl: str) -> None:
    folder = bucket.root / f"cc-index/collections/{crawl}/indexes"
    lines: list[bytes] = []
    numbers = []
    for entry in (folder / "cluster.idx").read_text().splitlines():
        start, shard, offset, length, number = entry.split("\t")
        member = (folder / shard).read_bytes()[int(offset) : int(offset) + int(length)]
        block = gzip.decompress(member).splitlines()
        assert len(block) <= bucket.spec.crawl(crawl).zipnum_lines
        assert block[0].startswith(start.encode() + b" {")
        numbers.append(int(number))
        lines += block
    assert lines == sorted(lines) and numbers == list(range(1, len(numbers) + 1))
    assert lines == [
        line for path in sorted(folder.glob("cdx-*.gz")) for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    found = set()
    for line in lines:
        key, moment, text = line.decode().split(" ", 2)
        document = json.loads(text)
        assert all(isinstance(value, str) for value in document.values())
        found.add((key, moment, document["filename"], int(document["offset"]), int(document["length"])))
    assert found == {
        (
            row["url_surtkey"],
            f"{row['fetch_time']:%Y%m%d%H%M%S}",
            row["warc_filename"],
            row["warc_record_offset"],
            row["warc_record_length"],
        )
        for row in bucket.index_rows(crawl)
    }


def test_the_btree_has_a_pointer_to_every_arc_record(bucket: Bucket) -> None:
    data = (bucket.root / "projects/url-index/url-index.1356128792").read_bytes()
    size, index_blocks = struct.unpack_from("<II", data)
    assert size == bucket.spec.btree_block_size and (len(data) - 8) % size == 0 and index_blocks > 1
    items = []
    for start in range(8 + index_blocks * size, len(data), size):
        block, position = data[start : start + size], 0
        while position < size and block[position]:
            end = block.index(b"\0", position)
            items.append((block[position:end], struct.unpack_from("<QQIQI", block, end + 1)))
            position = end + 1 + 32
    assert [key for key, _ in items] == sorted(key for key, _ in items)
    found = {
        (key.decode(), f"parse-output/segment/{segment}/{date}_{part}.arc.gz", offset, length)
        for key, (segment, date, part, offset, length) in items
    }
    truth = bucket.truth.captures_of(ARC)
    expected = {(c.btree_key, c.warc_filename, c.warc_record_offset, c.warc_record_length) for c in truth}
    assert found == expected and len(items) == len(truth)
    assert len({key for key, _ in items}) < len(items), "some URL was captured twice"
