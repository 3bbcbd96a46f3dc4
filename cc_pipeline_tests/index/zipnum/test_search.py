"""The search of a cluster.idx against a plain bisection, hostile files included, and how many reads it takes."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.key_ranges import KeyRange, RangeSet, prefix_range
from cc_pipeline.errors import DataFault
from cc_pipeline.index.zipnum import cluster as cluster_search
from cc_pipeline.index.zipnum.cluster import Cluster, Marks
from cc_pipeline_tests.index.memory import Memory


def lines(keys: Sequence[bytes]) -> list[bytes]:
    return [b"%s 20240518000000\tcdx-00000.gz\t%d\t100\t%d\n" % (key, 100 * n, n) for n, key in enumerate(keys)]


def plain(keys: Sequence[bytes], ranges: Sequence[KeyRange]) -> set[int]:
    """The members that may hold keys of ``ranges``: those that begin in them, and the one before each."""
    found: set[int] = set()
    for wanted in ranges:
        first = bisect_left(keys, wanted.start)
        last = len(keys) if wanted.end is None else bisect_left(keys, wanted.end)
        found |= set(range(max(0, first - 1), last))
    return found


#: Names of one letter repeated, long ones, ends of the alphabet, bytes that no key has: nothing a guess expects.
hostile = st.one_of(
    st.text("abc,)", min_size=1, max_size=8).map(str.encode),
    st.sampled_from([b"com,example)/", b"com,", b"a", b"zw,co)/", b"\xff\xfe", b"!"]),
    st.integers(0, 400).map(lambda n: b"org," + b"m" * n),
    st.integers(0, 10**6).map(lambda n: b"com,a%09d)/" % n),
)


@given(
    st.lists(hostile, min_size=1, max_size=300),
    st.integers(1, 40),
    st.lists(hostile, min_size=1, max_size=10),
    st.sampled_from([(16, 40, 30), (60, 200, 64), (400, 1000, 300)]),
    st.lists(st.tuples(hostile, st.floats(0, 1)), max_size=20),
)
@settings(max_examples=150)
def test_members_are_those_of_a_plain_bisection(
    keys: list[bytes], equal: int, asked: list[bytes], sizes: tuple[int, int, int], marks: list[tuple[bytes, float]]
) -> None:
    keys = sorted([*keys, *[keys[0]] * equal])
    ranges = RangeSet(prefix_range(key) for key in asked)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in zip(("PROBE", "WHOLE_READ_BYTES", "FIRST_READ_BYTES"), sizes, strict=True):
            patch.setattr(cluster_search, name, value)
        memory = Memory(b"".join(lines(keys)))
        cluster = Cluster(memory, "cluster.idx", guide=lambda: Marks(marks))
        for some in (ranges, *([one] for one in ranges)):
            found = [member.offset // 100 for member in cluster.members(some)]
            # reading on, a member before a range may be one that a range before it has read already
            assert found == sorted(set(found))
            assert plain(keys, some) <= set(found)
            assert len(set(found) - plain(keys, some)) <= len(some)
        memory.reads.clear()
        again = Cluster(memory, "cluster.idx", len(memory.content), stored_spans=cluster.learnt)
        assert {m.offset // 100 for m in again.members(ranges)} >= plain(keys, ranges)
        if sum(span.end - span.at for span in cluster.learnt) == len(memory.content):
            assert memory.reads == []


@given(st.lists(hostile, min_size=20, max_size=200, unique=True), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_a_file_that_is_not_sorted_is_an_error_or_never_seen(keys: list[bytes], chance: random.Random) -> None:
    chance.shuffle(keys)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("PROBE", 200), ("WHOLE_READ_BYTES", 400), ("FIRST_READ_BYTES", 200)):
            patch.setattr(cluster_search, name, value)
        cluster = Cluster(Memory(b"".join(lines(keys))), "cluster.idx")
        try:
            found = [m.first_key for m in cluster.members([KeyRange(b"", None)])]
        except DataFault:
            assert keys != sorted(keys)
        else:
            assert found == sorted(keys)
        for key in keys[:10]:
            try:
                list(cluster.members([prefix_range(key)]))
            except DataFault:
                assert keys != sorted(keys)


def test_a_span_that_is_not_what_was_read_before_is_an_error() -> None:
    memory = Memory(b"".join(lines([b"a", b"b", b"c"])))
    cluster = Cluster(memory, "cluster.idx")
    list(cluster.members([KeyRange(b"", None)]))
    (span,) = cluster.learnt
    other = memory.content.replace(b"c 2024", b"d 2024")
    again = Cluster(memory, "cluster.idx", len(other), stored_spans=[span], load=lambda _: other)
    assert len(list(again.members([KeyRange(b"b", None)]))) == 3, "it has its lines"
    told = cluster_search.Span(span.at, span.end, span.first, span.last)
    with pytest.raises(DataFault, match="differ from those that were read before"):
        list(
            Cluster(memory, "c", len(other), stored_spans=[told], load=lambda _: other).members([KeyRange(b"b", None)])
        )
