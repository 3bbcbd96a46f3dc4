"""Rows in order: few in memory, many through a file, and both the same."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pyarrow as pa
import pytest

from cc_pipeline.capture_columns import TIMESTAMP
from cc_pipeline.errors import EnvironmentFault
from cc_pipeline.lake import ordered
from cc_pipeline.lake.ordered import OrderedRows, complete_groups, find_group_starts

SCHEMA = pa.schema(
    [
        pa.field("file", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("when", TIMESTAMP),
        pa.field("status", pa.int16()),
        pa.field("is_good", pa.bool_()),
        pa.field("number", pa.int32(), nullable=False),
    ]
)


def drawn(count: int) -> pa.Table:
    draw = random.Random(5)
    rows = [
        {
            "file": draw.choice([None, "", "a", "á", "b/c", "~"]),
            "offset": draw.choice([None, -1, 0, 7, 1 << 62]),
            "when": draw.choice([None, 1_338_508_800_001]),
            "status": draw.choice([None, 200]),
            "is_good": draw.choice([None, True, False]),
            "number": number,
        }
        for number in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def test_many_rows_come_in_the_same_order_as_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = drawn(3_000)
    expected = sorted(
        table.to_pylist(),
        key=lambda row: ((row["file"] is not None, (row["file"] or "").encode()),
                         (row["offset"] is not None, row["offset"] or 0), row["number"]),
    )  # fmt: skip
    merge, counts = ordered._merge_sorted, list[int]()
    monkeypatch.setattr(ordered, "_MAX_RUNS", 4)
    monkeypatch.setattr(ordered, "_merge_sorted", lambda runs, order: counts.append(len(runs)) or merge(runs, order))
    # all of them kept, a few runs, and so many that merged runs are merged again
    for in_memory in (1 << 30, 30_000, 1_000):
        rows = OrderedRows(SCHEMA, ("file", "offset", "number"), tmp_path, in_memory)
        for batch in table.to_batches(max_chunksize=100):
            rows.add(batch)
        rows.add(pa.RecordBatch.from_pylist([], schema=SCHEMA))
        assert rows.rows == table.num_rows
        # as often as asked: a commit may be tried again
        for _ in range(2):
            found = pa.Table.from_batches(rows.batches(), SCHEMA)
            assert found.to_pylist() == expected
    assert len(list(tmp_path.iterdir())) == 2, "one file each, where there are files: the runs are gone"
    assert max(counts) == 4, "no more files are open than the bound says"


def test_without_an_order_rows_come_back_as_they_came(tmp_path: Path) -> None:
    table = drawn(500)
    rows = OrderedRows(SCHEMA, (), tmp_path, 1_000)
    for batch in table.to_batches(max_chunksize=9):
        rows.add(batch)
    assert pa.Table.from_batches(rows.batches(), SCHEMA) == table
    assert list(OrderedRows(SCHEMA, ("file",), tmp_path).batches()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    rows = OrderedRows(SCHEMA, ("file",), tmp_path / "not there", 1)
    with pytest.raises(EnvironmentFault, match="not there"):
        rows.add(drawn(100))


def test_rows_stay_if_a_merge_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered, "_MAX_RUNS", 2)
    rows = OrderedRows(SCHEMA, ("number",), tmp_path, 1)
    table = drawn(50)
    for start in range(0, 50, 10):
        rows.add(table.slice(start, 10))
    with monkeypatch.context() as context, pytest.raises(EnvironmentFault):

        def fail(run: ordered._Run) -> None:
            raise OSError(errno.ENOSPC, "no space left")

        context.setattr(ordered._Run, "advance", fail)
        list(rows.batches())
    assert sum(batch.num_rows for batch in rows.batches()) == 50


def test_wide_rows_take_no_more_memory_than_narrow_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a page each among thousands of a line each: memory is counted by Arrow, in bytes, not by the machine."""
    schema = pa.schema([pa.field("place", pa.int64()), pa.field("text", pa.string())])
    in_memory, wide, count = 2 << 20, 400_000, 400
    places = [place * 7 % (2 * count) for place in range(count)]
    rows = OrderedRows(schema, ("place",), tmp_path, in_memory)
    before = pa.total_allocated_bytes()
    most = largest = 0
    advance = ordered._Run.advance

    def seen(run: ordered._Run) -> None:
        nonlocal most
        advance(run)
        most = max(most, pa.total_allocated_bytes() - before)

    # the runs are merged before the first batch comes
    monkeypatch.setattr(ordered._Run, "advance", seen)
    for place in places:
        text = chr(97 + place % 26) * (wide if place % 2 else 40)
        rows.add(pa.record_batch([[place], [text]], schema=schema))
        most = max(most, pa.total_allocated_bytes() - before)
    found = []
    for batch in rows.batches():
        most = max(most, pa.total_allocated_bytes() - before)
        largest = max(largest, batch.nbytes)
        found += [(row["place"], row["text"][:1], len(row["text"])) for row in batch.to_pylist()]
    assert found == [(p, chr(97 + p % 26), wide if p % 2 else 40) for p in sorted(places)]
    assert largest <= 5 << 20
    # a piece of each of the 40 runs, a run that is sorted, and what Arrow keeps for itself; there are 80 MB of rows
    assert most < 40 << 20, most


@pytest.mark.parametrize("rows_at_once", [1, 3, 7, 1_000])
def test_rows_that_agree_come_in_one_batch(rows_at_once: int) -> None:
    rows = sorted((name, number // 3) for name in "abc" for number in range(0, 60, len(name) + 1))
    schema = pa.schema([("name", pa.string()), ("number", pa.int64())])
    table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
    batches = list(complete_groups(table.to_batches(max_chunksize=rows_at_once), schema.names))
    assert pa.Table.from_batches(batches) == table
    firsts = [
        tuple(batch.slice(row, 1).to_pylist()[0].values())
        for batch in batches
        for row in find_group_starts(batch, schema.names).tolist()
    ]
    assert firsts == sorted(set(rows))


def test_no_rows_are_no_groups() -> None:
    empty = pa.RecordBatch.from_pylist([], pa.schema([("name", pa.string())]))
    assert list(complete_groups([], ["name"])) == list(complete_groups([empty, empty], ["name"])) == []
