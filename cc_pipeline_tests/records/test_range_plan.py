"""Plans cover exactly the captures, within their bounds, at the price they say."""

from __future__ import annotations

from contextlib import nullcontext

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cc_pipeline.errors import UserInputError
from cc_pipeline.records import range_plan
from cc_pipeline.records.range_plan import (
    FIRST_READ,
    MAX_RECORD_BYTES,
    Coalescing,
    FetchEstimate,
    PlannedRange,
    check_budget,
    longer,
    plan_ranges,
    price_of,
    price_of_all,
)
from cc_pipeline_tests.records.planned import captures_table

CRAWL = "CC-MAIN-2024-22"


def row(key: str | None, offset: int | None, length: int | None) -> dict[str, object]:
    return {"warc_filename": key, "warc_record_offset": offset, "warc_record_length": length}


def price_ranges(ranges: list[PlannedRange], table: pa.Table) -> FetchEstimate:
    """The cost of these ranges, counted one by one."""
    offsets, lengths = (table.column(name).to_pylist() for name in ("warc_record_offset", "warc_record_length"))
    # of several lengths of a place the shortest counts
    records: dict[tuple[str, int], int] = {}
    for planned in ranges:
        for number in planned.rows:
            place, length = (planned.key, offsets[number]), lengths[number] or FIRST_READ
            records[place] = min(length, records.get(place, length))
    return FetchEstimate(
        captures=len(records),
        files=len({planned.key for planned in ranges}),
        requests=len(ranges),
        bytes=sum(planned.length for planned in ranges),
        record_bytes=sum(records.values()),
    )


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3_000), st.integers(1, 400)), max_size=40),
    st.integers(0, 300),
    st.integers(1, 2_000),
)
def test_ranges_cover_every_capture_once_within_bounds(places: list[tuple[str, int, int]], gap: int, span: int) -> None:
    table = captures_table([row(*place) for place in places], CRAWL)
    ranges = plan_ranges(table, Coalescing(gap, span))
    assert sorted(number for planned in ranges for number in planned.rows) == list(range(len(places)))
    assert ranges == sorted(ranges, key=lambda planned: (planned.key, planned.offset))
    for planned in ranges:
        members = sorted((places[number][1], sum(places[number][1:])) for number in planned.rows)
        assert planned.offset == members[0][0]
        assert planned.offset + planned.length == max(end for _, end in members)
        assert all(places[number][0] == planned.key for number in planned.rows)
        covered = members[0][1]
        for offset, end in members[1:]:
            assert offset - covered <= gap
            assert end <= covered or end - planned.offset <= span
            covered = max(covered, end)


@pytest.mark.parametrize(
    ("key", "offset", "length"),
    [
        ("", 0, 5),
        ("/a", 0, 5),
        ("b/../a", 0, 5),
        ("a\0b", 0, 5),
        ("a", -1, 5),
        ("a", 0, 0),
        ("a", 0, -3),
        ("a", 0, MAX_RECORD_BYTES + 1),
        ("a", 0, 1 << 40),
    ],
)
def test_index_rows_that_name_no_bytes_are_left_out(key: str, offset: int, length: int) -> None:
    table = captures_table([row(key, offset, length), row("a", 10, 5)], CRAWL)
    assert [planned.rows for planned in plan_ranges(table)] == [(1,)]


def test_overlapping_rows_do_not_add_up_to_a_range_without_bound() -> None:
    rows = [row("a", number * (100 << 20), MAX_RECORD_BYTES) for number in range(50)]
    assert max(planned.length for planned in plan_ranges(captures_table(rows, CRAWL))) == MAX_RECORD_BYTES


def test_a_range_of_unknown_lengths_is_no_longer_than_a_piece() -> None:
    step = FIRST_READ // 2
    rows = [row("a", number * step, None if number >= 100 else step) for number in range(600)]
    table = captures_table(rows, CRAWL)
    ranges = plan_ranges(table)
    # records of known lengths stay together, and nothing goes missing
    assert ranges[0].rows == tuple(range(100))
    assert max(planned.length for planned in ranges[1:]) == range_plan._OPEN_ENDED_SPAN
    assert [number for planned in ranges for number in planned.rows] == list(range(600))
    assert price_of(table) == price_ranges(ranges, table)


_KEYS = st.sampled_from(["a", "b", "c/../d", "", None])
_OFFSETS = st.one_of(st.none(), st.integers(-5, 3_000), st.integers(2**62, 2**63 - 1))
_LENGTHS = st.one_of(st.none(), st.integers(-1, 400), st.sampled_from([MAX_RECORD_BYTES, MAX_RECORD_BYTES + 1]))


@example([("b", 0, None), ("b", 0, 1)], 0, 1)
@given(st.lists(st.tuples(_KEYS, _OFFSETS, _LENGTHS), max_size=40), st.integers(0, 300), st.integers(1, 2_000))
def test_the_price_is_that_of_the_plan(
    places: list[tuple[str | None, int | None, int | None]], gap: int, span: int
) -> None:
    table = captures_table([row(*place) for place in places], CRAWL)
    bounds = Coalescing(gap, span)
    assert price_of(table, bounds) == price_ranges(plan_ranges(table, bounds), table)
    assert price_of_all([]) == price_of(table.slice(0, 0)) == FetchEstimate(0, 0, 0, 0, 0)


def test_ranges_have_these_bounds_by_default() -> None:
    """Half a MiB between two records costs as much as a request; 16 MiB are a bounded loss if it breaks."""
    gap, span = 1 << 19, 1 << 24
    for offset, length, joins in (
        (gap + 5, 5, True),
        (gap + 6, 5, False),
        (5, span - 5, True),
        (5, span - 4, False),
        (0, span + 1, True),
    ):
        rows = [row("a", 0, 5 if offset else length), row("a", offset, length)]
        assert (len(plan_ranges(captures_table(rows, CRAWL))) == 1) == joins
    rows = [row("a", 0, None), *(row("a", number << 19, 100) for number in range(1, 6))]
    assert [len(planned.rows) for planned in plan_ranges(captures_table(rows, CRAWL))] == [4, 2]
    [planned] = plan_ranges(captures_table([row("a", 7, None)], CRAWL))
    assert (planned.length, longer(1 << 16), MAX_RECORD_BYTES) == (1 << 16, 1 << 19, 1 << 27)
    assert longer(MAX_RECORD_BYTES) == MAX_RECORD_BYTES


def test_the_gate_says_the_figure_and_how_to_allow_it() -> None:
    price = FetchEstimate(captures=3, files=1, requests=2, bytes=5_000, record_bytes=4_000)
    for max_bytes, max_requests, message in (
        (5_000, 2, None),
        (None, None, None),
        (4_999, None, r"x would read 5,000 bytes.* 4,999 bytes allowed.*set CC_PIPELINE_MAX_BYTES=5000,"),
        (None, 1, r"in 2 requests.*, 0\.5 hours.* 1 requests allowed.*set CC_PIPELINE_MAX_REQUESTS=2,"),
        (1, 1, r"1 bytes and 1 requests allowed.*set CC_PIPELINE_MAX_BYTES=5000 CC_PIPELINE_MAX_REQUESTS=2,"),
    ):
        with nullcontext() if message is None else pytest.raises(UserInputError, match=message):
            check_budget(price, max_bytes=max_bytes, max_requests=max_requests, subject="x", rate=2 / 1_800)
    assert price + price == FetchEstimate(6, 2, 4, 10_000, 8_000)
