"""A schema of absurdly many columns is refused before it is read."""

from __future__ import annotations

import pytest

from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.index.footers import thrift
from cc_pipeline.index.footers.decode import decode_footer
from cc_pipeline.index.footers.thrift import MAX_COLUMNS, FooterFault, parse_schema
from cc_pipeline_tests.index.footers.footer_files import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    field,
    listed,
    struct,
    text,
    zigzag,
)


def schema(columns: int) -> bytes:
    leaf = struct(field(1, I32, zigzag(6)), field(3, I32, zigzag(0)), field(4, BINARY, text(b"c")))
    root = struct(field(4, BINARY, text(b"r")), field(5, I32, zigzag(columns)))
    return listed(STRUCT, root, *[leaf] * columns)


def footer(elements: bytes, chunks: int = 1, orders: int = 0) -> bytes:
    group = struct(field(1, LIST, listed(STRUCT, *[struct()] * chunks)), field(3, I64, zigzag(1)))
    parts = [field(2, LIST, elements), field(3, I64, zigzag(1)), field(4, LIST, listed(STRUCT, group))]
    return struct(*parts, field(7, LIST, listed(STRUCT, *[struct()] * orders)))


def decoded(metadata: bytes) -> int:
    tail = metadata + len(metadata).to_bytes(4, "little") + b"PAR1"
    return len(decode_footer(tail, 1000 + len(tail), "f").schema.columns)


@pytest.mark.parametrize(
    "metadata",
    [
        footer(listed(STRUCT, *[struct()] * 1_900_000)),
        footer(schema(MAX_COLUMNS)),
        footer(schema(3), chunks=MAX_COLUMNS + 1),
        footer(schema(3), orders=MAX_COLUMNS + 1),
        footer(schema(2)[:-1] + field(9, BINARY, text(bytes(1 << 17))) + b"\0"),
    ],
    ids=["elements", "columns", "chunks", "orders", "bytes"],
)
def test_absurd_widths_are_typed_faults(metadata: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    class Counting(thrift.CompactReader):
        def struct(self, depth: int = 0) -> dict[int, thrift.Value]:
            nonlocal read
            read += 1
            return super().struct(depth)

    monkeypatch.setattr(thrift, "CompactReader", Counting)
    with pytest.raises(DataFault) as fault:
        decoded(metadata)
    assert (fault.value.kind, fault.value.source) == (DataKind.TOO_LARGE, "f")
    assert fault.value.offset is not None and read == 0


def test_the_widest_schema_is_read() -> None:
    assert decoded(footer(schema(MAX_COLUMNS - 1), chunks=MAX_COLUMNS, orders=MAX_COLUMNS)) == MAX_COLUMNS - 1
    with pytest.raises(FooterFault) as fault:
        parse_schema(schema(MAX_COLUMNS))
    assert fault.value.too_large
