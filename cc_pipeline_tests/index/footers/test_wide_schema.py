"""A schema of absurdly many columns is refused."""

from __future__ import annotations

import pytest

from cc_pipeline.errors import DataFault, DataKind
from cc_pipeline.index.footers.decode import decode_footer
from cc_pipeline.index.footers.thrift import MAX_COLUMNS
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
    "elements", [listed(STRUCT, *[struct()] * 400_000), schema(MAX_COLUMNS)], ids=["elements", "columns"]
)
def test_absurd_widths_are_typed_faults(elements: bytes) -> None:
    with pytest.raises(DataFault) as fault:
        decoded(footer(elements))
    assert (fault.value.kind, fault.value.source) == (DataKind.TOO_LARGE, "f")
    assert fault.value.offset is not None


def test_the_widest_schema_is_read() -> None:
    assert decoded(footer(schema(MAX_COLUMNS - 1), chunks=MAX_COLUMNS, orders=MAX_COLUMNS)) == MAX_COLUMNS - 1
