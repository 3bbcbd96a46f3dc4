"""The walk faults as it should on any bytes, and bounds derived from signed order hold."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_pipeline.errors import DataFault
from cc_pipeline.index.footers.decode import decode_footer
from cc_pipeline.index.footers.statistics import bounds_from_signed, sound_writer
from cc_pipeline.index.footers.thrift import FooterFault, parse_schema
from cc_pipeline.index.footers.walk import walk
from cc_pipeline_tests.index.footers.footer_files import PATH, encrypted_bytes, index_table, old_file, parquet_bytes

NAMES = (b"url_surtkey", b"fetch_time", b"nested.list.element", b"warc_record_offset")


def metadata_of(data: bytes) -> bytes:
    length = int.from_bytes(data[-8:-4], "little")
    return data[len(data) - 8 - length : len(data) - 8]


@cache
def bases() -> tuple[bytes, ...]:
    table = index_table(9)
    return (
        metadata_of(parquet_bytes(table, 3, write_page_index=True)),
        metadata_of(parquet_bytes(table, 9, version="1.0")),
        metadata_of(encrypted_bytes(table, plaintext_footer=True)),
        metadata_of(old_file(b"a", b"c\xff")[0]),
        b"",
    )


def fault_of(metadata: bytes) -> str:
    with pytest.raises(FooterFault) as fault:
        walk(metadata, NAMES, 0, 10)
    return fault.value.reason


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A real footer with a few bytes changed, cut, doubled or put in; thrift's special bytes more often."""
    data = bytearray(draw(st.sampled_from(bases())))
    special = st.sampled_from([0x00, 0x0F, 0x15, 0x19, 0x1C, 0x7F, 0x80, 0xF9, 0xFC, 0xFF])
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(["set", "insert", "cut", "double", "end"]))
        if how == "set" and at < len(data):
            data[at] = draw(special | st.integers(0, 255))
        elif how == "insert":
            data[at:at] = bytes(draw(st.lists(special | st.integers(0, 255), min_size=1, max_size=12)))
        elif how == "cut":
            del data[at : at + draw(st.integers(1, 40))]
        elif how == "double":
            data[at:at] = data[at : at + draw(st.integers(1, 200))]
        elif how == "end" and at:
            del data[at:]
    return bytes(data)


@settings(max_examples=120)
@given(damaged())
def test_only_data_faults_leave_the_decoder(metadata):
    tail = metadata + len(metadata).to_bytes(4, "little") + b"PAR1"
    try:
        found = decode_footer(tail, 5000 + len(tail), PATH)
    except DataFault as fault:
        assert fault.source == PATH
        assert 0 <= fault.offset <= 5000 + len(tail)
    else:
        assert all(group.rows >= 0 for group in found.row_groups)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_only_footer_faults_leave_the_schema_parser(elements):
    try:
        parse_schema(elements)
    except FooterFault as fault:
        assert 0 <= fault.offset <= len(elements)


def test_promises_of_millions_of_row_groups_cost_nothing():
    """A list may promise as many elements as there are bytes; row groups of nothing are refused at the first."""
    head = b"\x15\x02\x19\x1c\x48\x01\x61\x00\x16\x02\x19"
    metadata = head + b"\xfc\xff\x7f" + bytes(2**16)
    assert fault_of(metadata) == "a row group has no columns"
    metadata = head + b"\xfc\x80\x80\x04" + bytes(2**17)
    assert fault_of(metadata) == "more row groups than the format can number"


def test_nesting_is_bounded():
    metadata = b"\x1c" * 10_000
    assert fault_of(metadata) == "structures are nested too deeply"


keys = st.binary(max_size=5) | st.text("aé~)", max_size=4).map(str.encode)


def signed(value: bytes) -> bytes:
    return bytes(octet ^ 0x80 for octet in value)


@settings(max_examples=300)
@given(st.lists(keys, min_size=1, max_size=6))
def test_bounds_from_signed_extremes_hold_for_every_value(values):
    low, high = bounds_from_signed(min(values, key=signed), max(values, key=signed))
    for value in values:
        assert low is None or low <= value
        assert high is None or value <= high


@settings(max_examples=200)
@given(st.lists(st.text("abc)/,", max_size=6).map(str.encode), min_size=1, max_size=6))
def test_ascii_keys_keep_their_lower_bound_and_all_equal_ones_both(values):
    low, high = bounds_from_signed(min(values), max(values))
    assert low == min(values)
    assert len(set(values)) > 1 or high == max(values)


@settings(max_examples=200)
@given(
    st.lists(st.text("aé\u07ff)/,", max_size=6).map(str.encode), min_size=1, max_size=6),
    st.integers(1, 7),
    st.booleans(),
)
def test_old_bounds_hold_in_whichever_order_a_writer_compared_and_where_it_cut(values, longest, signed):
    in_order = sorted(values, key=lambda value: bytes(octet ^ 0x80 for octet in value) if signed else value)
    low, high = in_order[0], in_order[-1]
    tail, size = old_file(low[:longest], high[:longest], created_by=b"impala version 2.6.0")
    found = decode_footer(tail, size, PATH).row_groups[0].statistics["url_surtkey"]
    for value in values:
        assert found.minimum is None or found.minimum <= value
        assert found.maximum is None or value <= found.maximum


@pytest.mark.parametrize(
    ("writer", "sound"),
    [
        (b"parquet-mr version 1.8.1 (build 4aba4da)", True),
        (b"parquet-mr version 1.12.3", True),
        (b"parquet-mr version 1.7.0", False),
        (b"parquet-mr version 99999999999999999999.1", True),
        (b"parquet-cpp version 1.0.0", True),
        (b"impala version 1.2-INTERNAL", True),
        (b"parquet-mr", False),
        (b"\xff\xfe", False),
        (None, False),
    ],
)
def test_which_writers_are_sound(writer, sound):
    assert sound_writer(writer) is sound
