"""Places as numbers, and captures in groups of whole files."""

from __future__ import annotations

import random
from itertools import groupby

import pyarrow as pa
import pytest

from cc_pipeline.records.locations import LocationCollector
from cc_pipeline.records.range_plan import group_by_file

SCHEMA = pa.schema([("warc_filename", pa.string()), ("warc_record_offset", pa.int64()), ("number", pa.int64())])

#: Of files, and such as no file has.
OFFSETS = (None, -7, 0, 5, (1 << 39) - 2, (1 << 39) - 1, 1 << 39, (1 << 40) + 5, (1 << 63) - 1)


def table(places: list[tuple[str | None, int | None]]) -> pa.Table:
    files, offsets = zip(*places, strict=True) if places else ((), ())
    return pa.table([files, offsets, range(len(places))], schema=SCHEMA)


def test_a_place_is_found_by_file_and_offset_together() -> None:
    draw = random.Random(2)
    every = [(file, offset) for file in (None, "a", "b", "c") for offset in OFFSETS]
    mine = draw.choices(every, k=20)
    found = LocationCollector()
    for start in range(0, len(mine), 5):
        found.add(table(mine[start : start + 5]))
    places = found.places()
    # to a plan, no offset is as good as one that no file has
    named = {(file, -1 if offset is None else offset) for file, offset in mine}
    assert len(places) == len(named)
    asked = [*every, ("d", 0), ("a", 6), ("a", (1 << 63) - 2)]
    among = places.contains(table(asked)).to_pylist()
    assert among == [(file, -1 if offset is None else offset) in named for file, offset in asked]
    numbers = [number for number in places.positions(table(asked)).tolist() if number >= 0]
    assert set(numbers) == set(range(len(places)))
    assert set(places.files) == {file for file, _ in mine}
    assert LocationCollector().places().contains(table(every)).to_pylist() == [False] * len(every)


@pytest.mark.parametrize("most", [1, 3, 10, 1_000])
@pytest.mark.parametrize("batch", [1, 4, 1_000])
def test_groups_hold_whole_files_and_cut_only_those_that_are_too_large(most: int, batch: int) -> None:
    draw = random.Random(most)
    sizes = {f"file-{number:02d}": draw.choice([1, 2, 3, 9, 25]) for number in range(20)}
    # some captures twice, as two targets ask for them
    places = sorted((file, draw.randrange(size)) for file, size in sizes.items() for _ in range(size))
    rows = table([(None, None), *places])
    groups = list(group_by_file(rows.to_batches(max_chunksize=batch), most))
    assert pa.concat_tables(groups).combine_chunks() == rows
    owners = [set(group["warc_filename"].to_pylist()) for group in groups]
    for file, size in sizes.items():
        there = [number for number, owner in enumerate(owners) if file in owner]
        assert len(there) == 1 or size > most
        assert there == list(range(there[0], there[-1] + 1))
    ends = [(group["warc_filename"][-1].as_py(), group["warc_record_offset"][-1].as_py()) for group in groups]
    assert len(set(ends)) == len(ends), "rows of one place stay together"
    repeats = max(len(list(same)) for _, same in groupby(places))
    assert all(group.num_rows <= max(most, repeats) for group in groups)
    if most == 1_000:
        assert len(groups) == 1
