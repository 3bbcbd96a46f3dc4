"""A path list costs what its keys cost, whatever a source sends in its place."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.paths import parse_keys, parse_path_list
from cc_pipeline.errors import DataFault, DataKind

KEYS = st.lists(st.from_regex(r"[a-z0-9][a-z0-9._-]{0,30}(/[a-z0-9]{1,8}){0,3}", fullmatch=True), max_size=40)


@given(KEYS, st.lists(st.integers(0, 2000), max_size=6), st.sampled_from([b"\n", b"\r\n", b"\n\n", b" \n"]))
def test_pieces_and_members_make_no_difference(keys: list[str], cuts: list[int], end: bytes) -> None:
    text = b"".join(key.encode() + end for key in keys)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[first:last] for first, last in itertools.pairwise(places)]
    assert parse_keys(pieces, "s") == tuple(keys)
    packed = b"".join(gzip.compress(piece, mtime=0) for piece in pieces) or gzip.compress(b"")
    assert parse_path_list(packed) == tuple(keys)
    assert parse_path_list(packed + b"\0" * 40) == tuple(keys)


@given(KEYS, st.binary(max_size=12), st.integers(0, 400), st.booleans())
def test_damage_is_a_fault_of_the_list(keys: list[str], noise: bytes, at: int, cut: bool) -> None:
    packed = gzip.compress("\n".join(keys).encode(), mtime=0)
    at %= len(packed)
    damaged = packed[:at] + noise + (b"" if cut else packed[at + len(noise) :])
    try:
        parse_path_list(damaged, "list.gz")
    except DataFault as fault:
        assert fault.source == "list.gz" and isinstance(fault.kind, DataKind)


def drawn(piece: bytes, most: int) -> Iterator[bytes]:
    """Endless text; drawing more than ``most`` pieces fails the test."""
    for count in itertools.count():
        assert count < most, "the bounds did not stop the reading"
        yield piece


@pytest.mark.bomb
@pytest.mark.parametrize(
    ("piece", "most", "kind"),
    [
        (b"a\n" * 50_000, 42, DataKind.TOO_LARGE),
        (b"\n" * 100_000, 22, DataKind.TOO_LARGE),
        (b"x" * 1000 + b"\n", 270_000, DataKind.TOO_LARGE),
        (b" " * 1000, 6, DataKind.MALFORMED),
    ],
    ids=["keys", "empty lines", "text", "one line"],
)
def test_an_endless_list_is_left_where_a_bound_is_reached(piece: bytes, most: int, kind: DataKind) -> None:
    with pytest.raises(DataFault) as fault:
        parse_keys(drawn(piece, most), "list")
    assert (fault.value.kind, fault.value.source) == (kind, "list")


def test_members_are_counted_too() -> None:
    with pytest.raises(DataFault, match="gzip members") as fault:
        parse_path_list(gzip.compress(b"", mtime=0) * 20_000)
    assert fault.value.kind is DataKind.TOO_LARGE
