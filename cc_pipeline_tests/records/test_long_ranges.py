"""A range of many records gives what its records give when each is asked for alone."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from cc_pipeline.archive.record import sha1_base32
from cc_pipeline.records.range_plan import Coalescing, plan_ranges, split_range
from cc_pipeline_tests.faultserver import FaultServer, Rule
from cc_pipeline_tests.records.planned import captures_table, html_record
from cc_pipeline_tests.records.test_faults import CRAWL, fetch, same

RECORDS = 90
ALONE = Coalescing(gap=0, span=1)
BETWEEN = 700


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    """A file of 13 MB, of whose records one is damaged; the index has one more behind its end."""
    folder, draw = tmp_path_factory.mktemp("bucket"), random.Random(3)
    rows, data = [], bytearray()
    for number in range(RECORDS):
        body = draw.randbytes(140_000)
        member = html_record(f"https://example.com/{number}", body)
        place = {"warc_filename": "a.warc.gz", "warc_record_offset": len(data), "warc_record_length": len(member)}
        rows.append({"url": f"https://example.com/{number}", "content_digest": sha1_base32(body)} | place)
        data += member + bytes(BETWEEN)
    broken = rows[40]["warc_record_offset"]
    assert isinstance(broken, int)
    data[broken + 5_000 : broken + 5_100] = bytes(100)
    (folder / "a.warc.gz").write_bytes(data)
    past = {"warc_filename": "a.warc.gz", "warc_record_offset": len(data) - 100, "warc_record_length": 3_000}
    return folder, captures_table([*rows, {"url": "https://example.com/past"} | past], CRAWL)


def test_the_default_asks_once_for_neighbours_and_loses_nothing_beside_what_is_bad(
    bucket: tuple[Path, pa.Table], tmp_path: Path
) -> None:
    folder, captures = bucket
    alone = fetch(str(folder), captures, tmp_path / "alone", "c0", coalescing=ALONE)
    assert alone.outcomes == {"fetched": RECORDS - 1, "quarantined": 1, "missing": 1}
    good = captures.slice(0, RECORDS)
    with FaultServer(folder) as server:
        together = fetch(server.url, good, tmp_path / "good", "c1", coalescing=Coalescing())
        # the bad one is asked for again, alone
        assert [hit.body_bytes > 12_000_000 for hit in server.hits] == [True, False]
    assert same(together.table, alone.table.slice(0, RECORDS))
    # the range that ends behind the file is refused whole: it is asked for in parts, and only the last one by record
    with FaultServer(folder) as server:
        together = fetch(server.url, captures, tmp_path / "all", "c2", coalescing=Coalescing())
        assert len(server.hits) < RECORDS
    assert together.outcomes == alone.outcomes


def test_etags_that_are_new_with_each_answer_lose_nothing(bucket: tuple[Path, pa.Table], tmp_path: Path) -> None:
    folder, captures = bucket
    good = captures.slice(41, 49)
    bounds = Coalescing(span=2_000_000)
    with FaultServer(folder, rules=[Rule("changed_etag", times=None)]) as server:
        result = fetch(server.url, good, tmp_path, "c1", coalescing=bounds)
    assert result.outcomes == {"fetched": 49}


def test_parts_hold_all_records_and_cut_none() -> None:
    draw = random.Random(5)
    for _ in range(200):
        places = sorted((draw.randrange(3_000), draw.randrange(1, 400)) for _ in range(draw.randrange(1, 30)))
        rows = [
            {"warc_filename": "a", "warc_record_offset": offset, "warc_record_length": length}
            for offset, length in places
        ]
        offsets, lengths = [place[0] for place in places], [place[1] for place in places]
        for planned in plan_ranges(captures_table(rows, CRAWL), Coalescing(200, 2_000)):
            parts = split_range(planned, offsets, lengths, draw.choice((1, 300, 5_000)))
            assert [row for part in parts for row in part.rows] == list(planned.rows)
            for part in parts:
                assert part.offset == min(offsets[row] for row in part.rows)
                assert part.offset + part.length == max(offsets[row] + lengths[row] for row in part.rows)
            assert all(one.offset + one.length <= other.offset for one, other in pairwise(parts))
