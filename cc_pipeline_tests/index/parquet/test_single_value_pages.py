"""Pages that need no read because their column index tells all their values."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.errors import DataFault
from cc_pipeline.index.footers.decode import decode_footer
from cc_pipeline.index.parquet.chunk_locations import KEY, ColumnLayout, ColumnLocation
from cc_pipeline.index.parquet.locator import ParquetLocator
from cc_pipeline.index.parquet.pages import Pages, read_offset_index, single_values
from cc_pipeline.transport.client import Transport
from cc_pipeline_tests.faultserver import FaultServer
from cc_pipeline_tests.index.parquet.file_finder import FileFinder

PATH = "cc-index/table/cc-main/warc/crawl=CC-MAIN-2024-22/subset=warc/part-00000-x.c000.gz.parquet"
TYPES = {"INT32": pa.int32(), "INT64": pa.int64(), "BOOLEAN": pa.bool_(), "BYTE_ARRAY": pa.binary()}


def _place(physical: str, repetition: str = "optional", size: int = 10) -> ColumnLocation:
    return ColumnLocation(ColumnLayout("c", physical, repetition, 0), "", 4, size, (100, 10), (200, 10))


@given(st.sampled_from(sorted(TYPES)), st.lists(st.tuples(st.none() | st.booleans(), st.integers(1, 9)), min_size=1))
@settings(max_examples=80)
def test_a_page_said_to_hold_one_value_holds_it(physical: str, runs: list[tuple[bool | None, int]]) -> None:
    kinds: dict[str, tuple[Any, Any]] = {
        "INT32": (-200, 404),
        "INT64": (1 << 40, -1),
        "BOOLEAN": (True, False),
        "BYTE_ARRAY": (b"com", b"x" * 200),
    }
    truth, lie = kinds[physical]
    values = [None if value is None else truth if value else lie for value, length in runs for _ in range(length)]
    out = io.BytesIO()
    table = pa.table({"c": pa.array(values, TYPES[physical])})
    pq.write_table(table, out, write_page_index=True, max_rows_per_page=4, write_batch_size=1, compression="none")
    raw = out.getvalue()
    offset_index, column_index = _index_positions(raw)
    pages = read_offset_index(offset_index, len(values), 4, len(raw), "f", 0)
    assert len(pages) > 1 or len(values) <= 4
    for page, said in enumerate(single_values(column_index, _place(physical), pages, "f")):
        start = pages.first_rows[page]
        held = values[start : start + pages.row_count(page)]
        if said is None:
            assert len(set(held)) > 1
        else:
            assert said.type == TYPES[physical]
            assert set(held) == {said.as_py()}


def _index_positions(raw: bytes) -> tuple[bytes, bytes]:
    """Offset and column index of the only column, by its place in the footer."""
    chunk = decode_footer(raw, len(raw), "f", columns=("c",), lookup_columns=("c",)).row_groups[0].chunks["c"]
    assert chunk.offset_index is not None and chunk.column_index is not None
    (first, second), (third, fourth) = chunk.offset_index, chunk.column_index
    return raw[first : first + second], raw[third : third + fourth]


def _index(empty: bool, low: bytes, high: bytes, nulls: int | None) -> bytes:
    """A column index of one page in thrift's compact protocol."""
    out = bytes([0x19, 0x12, 1 if empty else 2, 0x19, 0x18, len(low)]) + low + bytes([0x19, 0x18, len(high)]) + high
    return out + b"\x15\x02" + (b"" if nulls is None else bytes([0x19, 0x16, nulls * 2])) + b"\0"


def test_an_index_that_leaves_a_doubt_says_nothing() -> None:
    pages = Pages((4,), (10,), (0,), 7)
    status = struct.pack("<i", 200)

    def said(place: ColumnLocation, *index: Any) -> Any:
        (found,) = single_values(_index(*index), place, pages, "f")
        return None if found is None else (found.as_py(),)

    assert said(_place("INT32"), False, status, status, 0) == (200,)
    assert said(_place("INT32", "required"), False, status, status, None) == (200,)
    assert said(_place("INT32"), True, b"", b"", 7) == (None,)
    assert said(_place("BYTE_ARRAY"), False, b"", b"", 0) == (b"",)
    for doubtful in (
        (False, status, status, None),
        (False, status, status, 1),
        (False, status, struct.pack("<i", 201), 0),
        (False, b"\xc8", b"\xc8", 0),
        (True, b"", b"", 6),
        (True, b"", b"", None),
        (True, status, status, 7),
    ):
        assert said(_place("INT32"), *doubtful) is None
    with pytest.raises(DataFault, match="page index"):
        single_values(b"\x19\xfc", _place("INT32"), pages, "f")
    with pytest.raises(DataFault, match="bounds of 1 pages"):
        single_values(_index(False, status, status, 0), _place("INT32"), Pages((4, 14), (10, 10), (0, 3), 7), "f")


def test_a_column_of_one_value_costs_no_request(tmp_path: Path) -> None:
    count = 20_000
    table = pa.table(
        {
            KEY: [f"com,h{number // 10:04d})/{number % 10}" for number in range(count)],
            "url": [f"https://h{number // 10:04d}.com/{number % 10}" for number in range(count)],
            "fetch_status": pa.array([200] * count, pa.int16()),
            "fetch_redirect": pa.nulls(count, pa.string()),
        }
    )
    path = tmp_path / PATH
    path.parent.mkdir(parents=True)
    pq.write_table(table, path, write_page_index=True, max_rows_per_page=1000, compression="gzip")
    group = pq.read_metadata(path).row_group(0)
    target = parse_target("h1200.com")
    with FaultServer(tmp_path) as server, Transport(server.url) as transport:
        finder = FileFinder(transport, [PATH])
        finder.file(PATH)
        server.hits.clear()
        found = ParquetLocator(transport, finder).locate("CC-MAIN-2024-22", ["warc"], [target]).captures[target.slug]
        asked = [tuple(int(end) for end in (hit.range or "").removeprefix("bytes=").split("-")) for hit in server.hits]
    assert found["fetch_status"].to_pylist() == [200] * 10
    assert found["fetch_redirect"].to_pylist() == [None] * 10
    for number in (2, 3):
        chunk = group.column(number)
        first = chunk.dictionary_page_offset or chunk.data_page_offset
        assert not any(start < first + chunk.total_compressed_size and first <= end for start, end in asked)
