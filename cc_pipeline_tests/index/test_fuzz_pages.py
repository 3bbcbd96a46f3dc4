"""Mutated Parquet pages and page indexes: values or a fault, bounded in time and memory."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from cc_pipeline.errors import DataFault
from cc_pipeline.index.footers.decode import decode_footer
from cc_pipeline.index.parquet.decoding import ColumnLayout, decode_batches, decode_pages
from cc_pipeline.index.parquet.page_walk import column_bound
from cc_pipeline.index.parquet.pages import index_lists, read_column_index, read_offset_index
from cc_pipeline_tests.fuzzing import bounded, edits, fuzz, swollen

ROWS = 400
CODECS = {"NONE": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6}
#: Bytes Thrift's compact protocol gives a meaning: types of fields, lists and structs, long numbers, ends.
TOKENS = (
    *(
        b"\0",
        b"\x15",
        b"\x16",
        b"\x18",
        b"\x19",
        b"\x1c",
        b"\x2c",
        b"\x4c",
        b"\x5c",
        b"\x7c",
        b"\xff",
        b"\x80",
        b"\x01",
    ),
    *(b"\xfc\xff\xff\xff\x0f", b"\x19\xfc", b"\x19\xf5\xff\xff\x03", b"\x15\xfe\xff\xff\xff\x0f", b"\x1b", b"\xf1"),
)


def _chunk(codec: str, dictionary: bool, encoding: str | None, kind: str) -> tuple[ColumnLayout, bytes]:
    texts = [f"com,example)/{number % 37:04d}" for number in range(ROWS)]
    numbers = [number % 50 for number in range(ROWS)]
    column = {"url": pa.array(texts), "number": pa.array(numbers, pa.int32())}[kind]
    out = io.BytesIO()
    schema = pa.schema([pa.field("c", column.type, nullable=False)])
    options = {"column_encoding": encoding} if encoding else {}
    pq.write_table(
        pa.table([column], schema=schema),
        out,
        compression=codec,
        use_dictionary=dictionary,
        data_page_size=1000,
        write_statistics=True,
        **options,
    )
    place = pq.ParquetFile(io.BytesIO(out.getvalue())).metadata.row_group(0).column(0)
    first = place.dictionary_page_offset if place.has_dictionary_page else place.data_page_offset
    layout = ColumnLayout("c", place.physical_type, "required", CODECS[codec])
    return layout, out.getvalue()[first : first + place.total_compressed_size]


CHUNKS = [
    _chunk(codec, dictionary, encoding, kind)
    for codec in CODECS
    for dictionary, encoding in ((True, None), (False, None), (False, "DELTA_BYTE_ARRAY"))
    for kind in ("url", "number")
    if not (encoding and kind == "number")
]


@st.composite
def chunks(draw: st.DrawFn) -> tuple[ColumnLayout, bytes]:
    """A column chunk, changed; often read as another column."""
    layout, data = draw(st.sampled_from(CHUNKS))
    if draw(st.booleans()):
        layout = draw(st.sampled_from(CHUNKS))[0]
    return layout, draw(edits([data], 6))


@fuzz(80, chunk=chunks(), rows=st.sampled_from((ROWS, ROWS, 1, 0, ROWS * 100)))
def test_mutated_pages(chunk: tuple[ColumnLayout, bytes], rows: int) -> None:
    layout, data = chunk
    with bounded(2, 400 + column_bound(rows) / 2**20):
        try:
            found = decode_pages(layout, [(4, data)], rows, source="f")
            assert len(found) == rows
            assert found.nbytes <= column_bound(rows) + 4096
            assert sum(map(len, decode_batches(layout, data, rows, 100, source="f", offset=4))) == rows
        except DataFault as fault:
            assert fault.source == "f"


def _indexes() -> tuple[list[bytes], bytes]:
    """The page indexes of a file, and its footer."""
    out = io.BytesIO()
    rows = {f"c{number}": [f"com,example)/{row:05d}" for row in range(2000)] for number in range(3)}
    pq.write_table(pa.table(rows), out, write_page_index=True, data_page_size=2000, row_group_size=1000)
    data = out.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    # the indexes lie between the last page and the footer
    last = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(1).column(2)
    begin = (last.dictionary_page_offset or last.data_page_offset) + last.total_compressed_size
    return [data[at : len(data) - length - 8] for at in range(begin, len(data) - length - 8, 97)][:12], data[
        -8 - length :
    ]


INDEXES, FOOTER = _indexes()


@fuzz(120, data=edits(INDEXES) | swollen(TOKENS, [each[:12] for each in INDEXES]), pages=st.integers(0, 40))
def test_mutated_page_indexes(data: bytes, pages: int) -> None:
    with bounded(1, 200):
        for read in (
            lambda: read_offset_index(data, 1000, 4, 100_000, "f", 7),
            lambda: read_column_index(data, pages, "f", 7),
            lambda: index_lists(data, pages, "f", 7),
        ):
            try:
                read()
            except DataFault as fault:
                assert fault.source == "f"


@fuzz(120, data=edits([FOOTER], 8) | swollen(TOKENS, [FOOTER[:30], FOOTER[:300]]).map(
    lambda data: data + len(data).to_bytes(4, "little") + b"PAR1"
))  # fmt: skip
def test_footers_cost_what_they_are_long(data: bytes) -> None:
    with bounded(1, 200):
        try:
            groups = decode_footer(data, 10_000_000, "f.parquet", ("c0", "c1"), ("c0",)).row_groups
        except DataFault as fault:
            assert fault.source == "f.parquet"
        else:
            assert all(group.rows >= 0 for group in groups)
