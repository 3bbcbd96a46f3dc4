"""Partition keys and the ranges of runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.defs.partitions import (
    KEYS_TAG,
    by_crawl,
    contiguous_ranges,
    keys_in,
    keys_tags,
    partition_key,
    range_tags,
    run_partitions,
)


def test_keys_group_by_crawl() -> None:
    keys = [partition_key("C2", "b"), partition_key("C1", "a"), partition_key("C2", "a")]
    assert by_crawl(keys) == {"C2": ["b", "a"], "C1": ["a"]}


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


_SLUGS = st.text("abz.-_~09é", min_size=1, max_size=5)


@given(st.lists(st.tuples(st.sampled_from(["C1", "C2", "C3"]), _SLUGS), unique=True))
def test_a_tag_of_keys_reads_back(pairs: list[tuple[str, str]]) -> None:
    keys = [partition_key(*pair) for pair in pairs]
    tags = keys_tags(keys)
    read = keys_in(tags)
    assert read is not None
    assert sorted(read) == sorted(keys)
    # grouped by crawl, in the order of crawls that was asked for
    assert list(by_first_seen(read)) == list(by_first_seen(keys))
    assert sorted(run_partitions(tags, [], [])) == sorted(pairs)


def by_first_seen(keys: list[str]) -> dict[str, None]:
    return dict.fromkeys(key.split("|")[0] for key in keys)


def test_other_runs_have_no_tag_of_keys() -> None:
    assert keys_in(range_tags("C1|a", "C1|b")) is None
    assert run_partitions({KEYS_TAG: '["C1|a"]'}, ["C1"], ["a"]) == []
    assert run_partitions({KEYS_TAG: "C1|a"}, ["C1"], ["a"]) == []
