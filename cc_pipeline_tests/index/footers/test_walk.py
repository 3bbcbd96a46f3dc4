"""Absurd metadata faults as it should, and bounds derived from signed order hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_pipeline.errors import DataFault
from cc_pipeline.index.footers.decode import decode_footer
from cc_pipeline.index.footers.statistics import sound_writer
from cc_pipeline_tests.index.footers.footer_files import PATH, old_file


def fault_of(metadata: bytes) -> str:
    tail = metadata + len(metadata).to_bytes(4, "little") + b"PAR1"
    with pytest.raises(DataFault) as fault:
        decode_footer(tail, 1000 + len(tail), PATH)
    return fault.value.reason


def test_promises_of_millions_of_row_groups_cost_nothing():
    """A list may promise as many elements as there are bytes; row groups of nothing are refused at the first."""
    head = b"\x15\x02\x19\x1c\x48\x01\x61\x00\x16\x02\x19"
    metadata = head + b"\xfc\xff\x7f" + bytes(2**16)
    assert fault_of(metadata) == "a row group has no columns"


def test_nesting_is_bounded():
    metadata = b"\x1c" * 10_000
    assert fault_of(metadata) == "structures are nested too deeply"


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
