"""Gzip members: complete or a fault, bounded, and found again behind damage."""

from __future__ import annotations

import gzip
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.archive.gzip_members import InflatedMember, inflate_member
from cc_pipeline.errors import DataFault

NOISE = random.Random(7).randbytes(50_000)


@given(st.binary(max_size=3000), st.binary(max_size=50), st.integers(1, 9))
def test_a_member_gives_its_content_and_where_it_ends(content: bytes, behind: bytes, level: int) -> None:
    packed = gzip.compress(content, level, mtime=0)
    assert inflate_member(packed + behind, "s", 5) == InflatedMember(5, len(packed), content)


@given(st.data())
def test_every_cut_and_every_flipped_bit_is_noticed(data: st.DataObject) -> None:
    packed = gzip.compress(NOISE[:2000], mtime=0)
    cut = packed[: data.draw(st.integers(0, len(packed) - 1))]
    with pytest.raises(DataFault):
        inflate_member(cut, "s", 3)
    place = data.draw(st.integers(10 * 8, len(packed) * 8 - 1))
    flipped = bytearray(packed)
    flipped[place // 8] ^= 1 << place % 8
    try:
        content = inflate_member(bytes(flipped), "s", 3).content
    except DataFault:
        return
    assert content == NOISE[:2000]  # a padding bit, which nobody reads


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no bytes"),
        (b"\x1f\x8b", "cut off"),
        (b"\x1f\x8b\x07rest", "compression method"),
        (b"<?xml version='1.0'?><Error><Code>SlowDown</Code></Error>", "markup"),
        (b"WARC/1.0\r\n", "not a gzip member"),
    ],
)
def test_what_is_there_instead_is_said(data: bytes, words: str) -> None:
    with pytest.raises(DataFault, match=words) as caught:
        inflate_member(data, "crawl/x.warc.gz", 42)
    assert (caught.value.source, caught.value.offset) == ("crawl/x.warc.gz", 42)
