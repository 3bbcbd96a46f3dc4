"""A long range that is read in pieces gives what its records give when each is asked for alone."""

from __future__ import annotations

import random
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from cc_pipeline.transport.pieces import PIECE

from cc_pipeline.archive.record import sha1_base32
from cc_pipeline.records.fetch import Planned, fetch_records
from cc_pipeline.records.locations import LocationCollector
from cc_pipeline.records.orders import Order, RecordOptions
from cc_pipeline.records.range_plan import Coalescing, part_of, plan_ranges, split_range
from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.source_client import SourceOptions
from cc_pipeline_tests.faultserver import FaultServer, FaultServerProcess, Rule
from cc_pipeline_tests.records.planned import captures_table, html_record, shelf_at
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
    # a folder is read in pieces, of which only the last one fails
    pieces = fetch(str(folder), captures, tmp_path / "pieces", "c3", coalescing=Coalescing())
    assert pieces.outcomes == alone.outcomes
    assert same(pieces.table.slice(0, RECORDS), alone.table.slice(0, RECORDS))


def test_a_broken_connection_costs_no_whole_record(bucket: tuple[Path, pa.Table], tmp_path: Path) -> None:
    folder, captures = bucket
    good = captures.slice(0, 30)
    with FaultServer(folder, rules=[Rule("cut")]) as server:
        result = fetch(server.url, good, tmp_path, "c1", coalescing=Coalescing())
        asked = [hit.range or "" for hit in server.hits]
    assert result.outcomes == {"fetched": 30}
    ends = {row["warc_record_offset"] + row["warc_record_length"] for row in good.to_pylist()}
    starts = [int(one.removeprefix("bytes=").partition("-")[0]) for one in asked]
    assert starts[0] == 0
    assert len(starts) > 3
    assert set(starts[1:]) <= ends
    assert starts == sorted(starts)


def test_etags_that_are_new_with_each_answer_lose_nothing(bucket: tuple[Path, pa.Table], tmp_path: Path) -> None:
    folder, captures = bucket
    good = captures.slice(41, 49)
    # four ranges, most of which come in two pieces
    bounds = Coalescing(span=PIECE + 200_000)
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
                assert part_of(planned, part.offset, part.length, offsets).rows == part.rows
            assert all(one.offset + one.length <= other.offset for one, other in pairwise(parts))


def test_a_fetch_holds_a_group_and_two_pieces_of_each_range(tmp_path: Path) -> None:
    """What Python holds at most, which is the same each time, where the peak of a process is not."""
    draw = random.Random(11)
    body = draw.randbytes(200_000)
    member = html_record("https://example.com/", body)
    (tmp_path / "bucket").mkdir()
    rows = []
    for name in ("a.warc.gz", "b.warc.gz"):
        with (tmp_path / "bucket" / name).open("wb") as out:
            for _ in range(60):
                place = {"warc_record_offset": out.tell(), "warc_record_length": len(member)}
                known = {"url": "https://example.com/", "content_digest": sha1_base32(body), "warc_filename": name}
                rows.append(known | place)
                out.write(member)
    captures = captures_table(rows, CRAWL)
    with FaultServerProcess(tmp_path / "bucket") as server:
        few = _held(server.url, captures.slice(0, 60), tmp_path / "few")
        all_of_them = _held(server.url, captures, tmp_path / "all")
    # a file is 12 MB, a request, and a group of its own
    assert few < 5 * PIECE
    assert all_of_them < few + 2 * PIECE  # twelve pieces more, of which two may be in memory at another moment


def _held(url: str, captures: pa.Table, lake: Path) -> int:
    wanted = LocationCollector()
    wanted.add(captures)
    order = Order(CRAWL, "c", options=RecordOptions(group=60, examiners=0))
    with Transport(url, SourceOptions(concurrency=1)) as transport, shelf_at(lake) as storage:
        tracemalloc.start()
        planned = Planned(captures.to_batches(), wanted.places())
        result = fetch_records(planned, order, transport, storage, keep=lambda batch: None, scratch=lake)
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert result.outcomes == {"fetched": captures.num_rows}
    assert result.requests == captures.num_rows // 60
    return held
