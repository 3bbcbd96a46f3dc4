"""Partition keys and the ranges of runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.defs.partitions import contiguous_ranges, group_by_crawl, partition_key


def test_keys_group_by_crawl() -> None:
    keys = [partition_key("C2", "b"), partition_key("C1", "a"), partition_key("C2", "a")]
    assert group_by_crawl(keys) == {"C2": ["b", "a"], "C1": ["a"]}


@given(ordered=st.lists(st.integers(0, 30).map(str), unique=True), data=st.data())
def test_ranges_cover_the_wanted_keys_and_no_others(ordered: list[str], data: st.DataObject) -> None:
    wanted = data.draw(st.sets(st.sampled_from(ordered)) if ordered else st.just(set()))
    covered: list[str] = []
    for first, last in contiguous_ranges(ordered, wanted):
        covered += ordered[ordered.index(first) : ordered.index(last) + 1]
    assert sorted(covered) == sorted(wanted)
    assert len(covered) == len(set(covered))


def test_keys_nobody_registered_are_left_out() -> None:
    assert contiguous_ranges(["a", "b"], ["b", "z"]) == [("b", "b")]
