"""What lookups found: the rows of each slice in the order of their table, each place once, in bounded memory."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extraction.capture_buffer import CaptureBuffer, CaptureTotals, SliceLookup
from cc_pipeline.index.locator import CAPTURE_SCHEMA
from cc_pipeline.lake import ordered
from cc_pipeline.lake.slice import Slice
from cc_pipeline.records.range_plan import price_of
from cc_pipeline_tests.world import NEW

FIRST, SECOND = (Slice(NEW, target) for target in ("a.example", "b.example"))
TARGETS = {slice_: parse_target(slice_.target) for slice_ in (FIRST, SECOND)}


def captures(count: int, seed: int, by: str = "parquet") -> pa.Table:
    """Captures at ``count`` places, in no order; some name no file, or no offset."""
    draw = random.Random(seed)
    rows = [
        {
            "crawl": NEW, "subset": "warc", "url": f"https://{seed}.example/{number}", "url_surtkey": str(number),
            "warc_filename": draw.choice([None, "a.warc.gz", "b.warc.gz", "c/d.warc.gz"]),
            "warc_record_offset": draw.choice([None, number * 5_000]), "warc_record_length": 1_000,
            "archive_format": "warc", "located_by": by,
        }
        for number in range(count)
    ]  # fmt: skip
    draw.shuffle(rows)
    return pa.Table.from_pylist(rows, schema=CAPTURE_SCHEMA)


def given(taken: CaptureBuffer, **how: SliceLookup) -> tuple[pa.Table, dict[Slice, CaptureTotals]]:
    answers = {slice_: how.get(name, SliceLookup()) for slice_, name in ((FIRST, "first"), (SECOND, "second"))}
    rows, summed = taken.read_slices(answers, TARGETS, removes_unlisted=False)
    return pa.Table.from_batches(rows.batches()), summed


@pytest.mark.parametrize("in_memory", [1 << 26, 20_000])
def test_rows_come_in_the_order_of_their_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int) -> None:
    monkeypatch.setattr(ordered, "IN_MEMORY", in_memory)
    taken = CaptureBuffer(tmp_path)
    own = {SECOND: captures(700, 2), FIRST: captures(900, 1)}
    for slice_, rows in own.items():
        for start in range(0, rows.num_rows, 90):
            taken.add(slice_, rows.slice(start, 90))
    found, summed = given(taken)
    assert found["target"].to_pylist() == ["a.example"] * 900 + ["b.example"] * 700
    for slice_, rows in own.items():
        mine = found.filter(pc.equal(found["target"], slice_.target))
        # those without a file are the last, and of a file those without an offset
        place = [("warc_filename", "ascending"), ("warc_record_offset", "ascending")]
        expected = rows.take(pc.sort_indices(rows, place)).select([name for name, _ in place])
        assert mine.select([name for name, _ in place]).to_pylist() == expected.to_pylist()
        assert sorted(mine["url"].to_pylist()) == sorted(rows["url"].to_pylist())
        assert (summed[slice_].rows, summed[slice_].price) == (rows.num_rows, price_of(rows))


def test_of_rows_of_one_place_that_one_stays_that_tells_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered, "IN_MEMORY", 5_000)
    place = {"warc_filename": "a.warc.gz", "warc_record_offset": 7}
    both = [one.filter(pc.is_valid(one["warc_record_offset"])) for one in (captures(80, 3), captures(80, 3, "btree"))]
    assert place["warc_filename"] in both[0]["warc_filename"].to_pylist()
    taken = CaptureBuffer(tmp_path)
    for rows in both:
        # of the first, two indexes asked together name the same; of the second, one was here before
        taken.add(FIRST, rows)
        taken.add(SECOND, rows, was_stored=rows is both[1])
    found, summed = given(taken)
    distinct = both[0].select(["warc_filename", "warc_record_offset"]).group_by(
        ["warc_filename", "warc_record_offset"]
    ).aggregate([]).num_rows  # fmt: skip
    assert set(found["located_by"].to_pylist()) == {"parquet"}
    assert [summed[slice_].rows for slice_ in (FIRST, SECOND)] == [distinct, distinct]
    assert summed[SECOND].retained == 0
