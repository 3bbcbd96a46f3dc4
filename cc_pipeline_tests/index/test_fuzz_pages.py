"""Mutated Parquet pages: values or a fault, bounded in time and memory."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from cc_pipeline.errors import DataFault
from cc_pipeline.index.parquet.decoding import ColumnLayout, decode_batches, decode_pages
from cc_pipeline.index.parquet.page_walk import column_bound
from cc_pipeline_tests.fuzzing import bounded, edits, fuzz

ROWS = 400
CODECS = {"NONE": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6}


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
            assert sum(map(len, decode_batches(layout, data, rows, source="f", offset=4))) == rows
        except DataFault as fault:
            assert fault.source == "f"
