"""The source goes into a record's header and comes out again, and no other byte changes."""

from __future__ import annotations

import gzip
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_pipeline.records.wrap import unwrap_member, wrap_member
from cc_pipeline_tests.records.planned import html_record
from cc_pipeline_tests.records.unwrapping import unwrap_content

URI = "https://data.commoncrawl.org/crawl-data/x.warc.gz"
RECORD = gzip.decompress(html_record("https://example.com/ü", b"<html>" + b"text " * 2_000))


def deflated(content: bytes, level: int, strategy: int = zlib.Z_DEFAULT_STRATEGY) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, 31, 8, strategy)
    return packer.compress(content) + packer.flush()


@given(
    st.binary(max_size=3_000),
    st.integers(0, 9),
    st.sampled_from([zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY]),
    st.integers(0, 1 << 44),
)
def test_there_and_back_is_the_same_deflate_stream(body: bytes, level: int, strategy: int, offset: int) -> None:
    content = b"WARC/1.1\r\nWARC-Type: response\r\n\r\n" + body
    member = deflated(content, level, strategy)
    stored = wrap_member(member, content, URI, offset)
    # zlib checks CRC and length itself
    kept = zlib.decompressobj(31)
    assert kept.decompress(stored).endswith(content)
    assert kept.eof
    assert kept.unused_data == b""
    assert unwrap_content(gzip.decompress(stored)) == (content, URI, offset, len(member))
    assert unwrap_member(stored)[10:] == member[10:]
    assert gzip.decompress(unwrap_member(stored)) == content


@pytest.mark.parametrize("options", [4, 8, 16, 2, 4 | 8 | 16 | 2])
def test_optional_gzip_header_fields_are_passed_over(options: int) -> None:
    plain = deflated(RECORD, 6)
    head = plain[:3] + bytes([options]) + plain[4:10]
    if options & 4:
        head += struct.pack("<H", 5) + b"extra"
    if options & 8:
        head += b"name\0"
    if options & 16:
        head += b"comment\0"
    if options & 2:
        head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    member = head + plain[10:]
    assert gzip.decompress(member) == RECORD
    stored = wrap_member(member, RECORD, URI, 0)
    assert gzip.decompress(unwrap_member(stored)) == RECORD
    assert len(stored) < len(member) + 200


def test_lf_only_headers_stay_lf_only() -> None:
    content = b"WARC/1.0\nWARC-Type: response\nContent-Length: 2\n\nhi\n\n"
    stored = gzip.decompress(wrap_member(deflated(content, 6), content, URI, 7))
    assert b"\r" not in stored
    assert unwrap_content(stored)[0] == content


def test_an_uncompressed_record_becomes_a_member() -> None:
    stored = wrap_member(RECORD, RECORD, URI, 9)
    assert unwrap_content(gzip.decompress(stored)) == (RECORD, URI, 9, len(RECORD))


def test_what_is_no_record_stays_as_it_is() -> None:
    odd = deflated(b"\r\nWARC/1.0\r\nWARC-Type: response\r\n\r\n", 6)
    assert wrap_member(odd, gzip.decompress(odd), URI, 0) == odd
    for member in (odd, deflated(RECORD, 0), deflated(RECORD, 6), b"", b"\x1f\x8b", bytes(40)):
        assert unwrap_member(member) == member
    assert unwrap_content(RECORD) == (RECORD, None, None, None)


def test_line_breaks_in_a_uri_cannot_make_header_lines() -> None:
    stored = wrap_member(deflated(RECORD, 6), RECORD, "https://x/\r\nWARC-Type: evil", 0)
    assert b"\r\nWARC-Type: evil" not in gzip.decompress(stored)
