"""Pages that claim far more than they hold cost little, and say where they are wrong."""

from __future__ import annotations

import io
import subprocess
import sys
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.index.parquet import decoding
from cc_pipeline.index.parquet.decoding import ColumnLayout, decode_batches, decode_pages
from cc_pipeline.index.parquet.page_walk import MAX_PAGE_BYTES, is_numbered, walk_pages
from cc_pipeline_tests.index.footers.footer_files import I32, STRUCT, field, struct, zigzag
from cc_pipeline_tests.peak import own_peak

GZIP = 2
LAYOUT = ColumnLayout("url", "BYTE_ARRAY", "required", GZIP)


def packed(data: bytes) -> bytes:
    engine = zlib.compressobj(9, wbits=31)
    return engine.compress(data) + engine.flush()


def page(kind: int, body: bytes, plain: int, values: int, encoding: int) -> bytes:
    """A page of type ``kind`` as the format lays it out, whatever is true of it."""
    number, place = {0: (5, 2), 2: (7, 2), 3: (8, 4)}[kind]
    details = [field(1, I32, zigzag(values)), field(place, I32, zigzag(encoding))]
    if kind == 0:
        details += [field(3, I32, zigzag(3)), field(4, I32, zigzag(3))]
    header = [field(1, I32, zigzag(kind)), field(2, I32, zigzag(plain)), field(3, I32, zigzag(len(body)))]
    return struct(*header, field(number, STRUCT, struct(*details))) + body


def run_of(entry: int, values: int) -> bytes:
    """The numbers of a page that has one dictionary entry only: bit width 8, one run."""
    count, out = values << 1, bytearray([8])
    while count > 0x7F:
        out.append(count & 0x7F | 0x80)
        count >>= 7
    return bytes([*out, count, entry])


def one_long_entry(rows: int, length: int = 1 << 20) -> bytes:
    """A few kilobytes that mean ``rows`` times the same ``length`` bytes."""
    entry = length.to_bytes(4, "little") + b"a" * length
    numbers = run_of(0, rows)
    return page(2, packed(entry), len(entry), 1, 0) + page(0, packed(numbers), len(numbers), rows, 8)


def many_large_pages(count: int = 25, length: int = 60 << 20) -> bytes:
    """About 1.5 MB that inflate to 1.5 GB in pages each of which is allowed."""
    body = packed(length.to_bytes(4, "little") + bytes(length))
    return page(0, body, length + 4, 1, 0) * count


CHUNKS: dict[str, tuple[Callable[[], bytes], int]] = {
    "dictionary": (lambda: one_long_entry(4000), 4000),
    "long dictionary": (lambda: one_long_entry(1_900_000, 4000), 1_900_000),
    "pages": (many_large_pages, 25),
}


@pytest.mark.bomb
@pytest.mark.parametrize("name", CHUNKS)
def test_memory_stays_below_the_bound_of_a_column(name: str) -> None:
    program = f"from {__name__} import costs; costs({name!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    stored, kind, peak = done.stdout.split()
    assert int(stored) < 2 << 20 and kind == DataKind.TOO_LARGE.value
    assert int(peak) < 600 << 10


def costs(name: str) -> None:
    """In a process of its own: the bytes of a hostile chunk, the kind of fault it is, and the KiB it took."""
    make, rows = CHUNKS[name]
    chunk = make()
    before = own_peak()
    try:
        decode_pages(LAYOUT, [(4, chunk)], rows, source="f")
    except DataFault as fault:
        print(len(chunk), fault.kind.value, own_peak() - before)


def test_a_streamed_column_comes_in_small_parts() -> None:
    with pytest.raises(DataFault) as fault:
        for batch in decode_batches(LAYOUT, one_long_entry(4000), 4000, source="f", offset=4):
            assert batch.nbytes < 2 * decoding._STEP_BYTES
    assert (fault.value.kind, fault.value.offset) == (DataKind.TOO_LARGE, 4)


def test_values_made_of_the_ones_before_are_bounded() -> None:
    out = io.BytesIO()
    table = pa.table({"url": pa.array([b"a" * (1 << 20)] * 100, pa.binary())})
    schema = table.schema.set(0, table.schema.field(0).with_nullable(False))
    pq.write_table(
        table.cast(schema), out, use_dictionary=False, column_encoding={"url": "DELTA_BYTE_ARRAY"}, compression="gzip"
    )
    layout, chunk = chunk_of(out.getvalue())
    with pytest.raises(DataFault) as fault:
        decode_pages(layout, [(4, chunk)], 100, source="f")
    assert fault.value.kind is DataKind.TOO_LARGE


SOUND = page(0, packed(b"\1\0\0\0x"), 5, 1, 0)


@pytest.mark.parametrize(
    ("pages", "kind", "offset"),
    [
        (SOUND + page(0, b"x", MAX_PAGE_BYTES + 1, 1, 0), DataKind.TOO_LARGE, 10 + len(SOUND)),
        (SOUND + page(0, b"x", -1, 1, 0), DataKind.MALFORMED, 10 + len(SOUND)),
        (SOUND + page(0, b"x" * 9, 1, 1, 0)[:-5], DataKind.MALFORMED, 10 + len(SOUND)),
        (SOUND + page(0, b"x", 1, -1, 0), DataKind.MALFORMED, 10 + len(SOUND)),
        (SOUND + page(2, b"x", 1, 1, 0), DataKind.MALFORMED, 10 + len(SOUND)),
        (page(2, b"x", 8, 9, 0), DataKind.MALFORMED, 10),
        (page(0, b"x", 8, 9, 8), DataKind.MALFORMED, 10),
        (SOUND * 70_000, DataKind.TOO_LARGE, 10 + 65_536 * len(SOUND)),
        (SOUND + b"\xff\xff\xff", DataKind.MALFORMED, None),
        (b"\x1d" * (1 << 19), DataKind.MALFORMED, None),
    ],
    ids=[
        "plain",
        "negative",
        "cut",
        "values",
        "late dictionary",
        "entries",
        "no dictionary",
        "many",
        "noise",
        "header",
    ],
)
def test_what_headers_cannot_claim(pages: bytes, kind: DataKind, offset: int | None) -> None:
    with pytest.raises(DataFault) as fault:
        walk_pages([(10, pages)], source="f")
    assert (fault.value.kind, fault.value.source) == (kind, "f")
    assert offset is None or fault.value.offset == offset


def test_pieces_have_their_own_offsets() -> None:
    claims = walk_pages([(10, SOUND), (500, SOUND + SOUND)], source="f")
    assert (claims.values, claims.plain, claims.numbered, claims.dictionary) == (3, 15, 0, None)
    with pytest.raises(DataFault) as fault:
        walk_pages([(10, SOUND), (500, SOUND + page(0, b"", -5, 1, 0))], source="f")
    assert fault.value.offset == 500 + len(SOUND)
    assert is_numbered(page(3, b"", 0, 1, 8), source="f", offset=0)
    with pytest.raises(DataFault, match="another type than a data page"):
        is_numbered(page(2, b"", 0, 1, 0), source="f", offset=0)


def chunk_of(data: bytes) -> tuple[ColumnLayout, bytes]:
    column = pq.read_metadata(io.BytesIO(data)).row_group(0).column(0)
    start = column.data_page_offset
    if column.dictionary_page_offset is not None:
        start = min(start, column.dictionary_page_offset)
    optional = pq.ParquetFile(io.BytesIO(data)).schema.column(0).max_definition_level
    layout = ColumnLayout("url", column.physical_type, "optional" if optional else "required", GZIP)
    return layout, data[start : start + column.total_compressed_size]


def written(values: list[bytes | None], **options: Any) -> tuple[ColumnLayout, bytes]:
    out = io.BytesIO()
    pq.write_table(pa.table({"url": pa.array(values, pa.binary())}), out, compression="gzip", **options)
    return chunk_of(out.getvalue())


@given(
    st.lists(st.none() | st.sampled_from([b"", b"a", b"bb", b"c" * 40]) | st.binary(max_size=30), min_size=1),
    st.sampled_from(["1.0", "2.0"]),
    st.sampled_from([{"use_dictionary": True}, {"use_dictionary": True, "dictionary_pagesize_limit": 30}]),
    st.integers(1, 200),
)
@settings(max_examples=120)
def test_small_steps_give_the_same_values(
    values: list[bytes | None], version: str, options: dict[str, Any], step: int
) -> None:
    layout, chunk = written(values, data_page_version=version, max_rows_per_page=7, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "_STEP_BYTES", step)
        assert decode_pages(layout, [(4, chunk)], len(values), source="f").to_pylist() == values
        found = list(decode_batches(layout, chunk, len(values), source="f", offset=4))
    assert [value for each in found for value in each.to_pylist()] == values
